"""Write to a collection of MongoDB; read a collection: copy it, then follow its change stream."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice, takewhile
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import bson
import pymongo
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp
from pymongo import MongoClient, ReadPreference, ReplaceOne
from pymongo.change_stream import ChangeStream
from pymongo.client_session import ClientSession
from pymongo.errors import BulkWriteError, DuplicateKeyError, OperationFailure
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from tidings.client.errors import Unwritten
from tidings.lineage import datasets
from tidings.lineage.datasets import Dataset
from tidings.pipelines.bodies import blame_message, object_of, until_refused, version_of
from tidings.pipelines.documents import DELETES_MAX, Keyed
from tidings.pipelines.ingest_source import BATCH, COMPLETE, COPY, Batch, Known, ReaderState
from tidings.pipelines.messages import Busy, Message, Overtaken, WrongPipeline, checked_table
from tidings.pipelines.ownership import ADOPTED, FENCES, OURS, OwnedStore, Target
from tidings.pipelines.refusals import of_code
from tidings.pipelines.row_rules import STOP, Names

PORT = 27017
ANSWER_MS = 60_000  # a batch fails if the server takes longer than this
COUNT_MS = 3_600_000  # the limit of a count, which reads the whole collection
GONE_S = 86_400  # the time for which the document of a deleted object is kept
DOCUMENT_BYTES = 16 * 1024 * 1024  # MongoDB's limit for a document
FIND_MS = 5_000  # the limit of the search for an available server
_EXPIRY = "gone_1"  # the index on the deletion; a collection of another program does not have it
_DUPLICATE_KEY = 11000


def database_of(url: str) -> tuple[str, str]:
    """Return the name of the database in *url*, and the address to show to people.

    Raises:
        WrongPipeline: *url* is not a MongoDB address with a database.
    """
    parts = urlsplit(url)
    database = parts.path.strip("/")
    if parts.scheme not in ("mongodb", "mongodb+srv") or not (parts.netloc and database):
        raise WrongPipeline("url must be mongodb://user:password@host:27017/database")
    return database, f"{parts.netloc.rpartition('@')[2]}/{database}"


def collection_of(url: str, name: str) -> Dataset:
    """Return the lineage dataset of the collection *name* of the database in *url*."""
    return Dataset(datasets.server(url, "mongodb", PORT), f"{database_of(url)[0]}.{name}")


def connect(url: str, answer_ms: int = ANSWER_MS) -> MongoClient[Any]:
    return MongoClient(
        url, serverSelectionTimeoutMS=FIND_MS, socketTimeoutMS=answer_ms, appname="tidings"
    )


class MongoDB(OwnedStore):
    """A sink that keeps *collection* of the database in *url* equal to the objects of the feed.

    A document has `namespace`, `id`, `ts`, `data`, `event_id` and `version`. The version is the
    position of the event in the log. So a repeated or late message changes nothing, whichever
    worker sends it. A deleted object leaves a document with `_id`, `version` and `gone` for a
    day. A batch is one bulk write, which the majority of the servers must acknowledge. A reset
    empties the collection. The mark of the collection (`ownership`) is a document of the
    collection `tidings_writers`.

    Raises:
        WrongPipeline: *url* is not a MongoDB address with a database, or *collection* is not a
            simple name.
    """

    def __init__(self, url: str, collection: str = "objects") -> None:
        self._url, (self._database, self._shown) = url, database_of(url)
        self._name = checked_table(collection, "collection")
        self._client: MongoClient[Any] | None = None

    def open(self, consumer: str) -> None:
        self._own(consumer)
        self.close()
        self._client = connect(self._url)
        reason = self._claim(self.inspect())
        if reason == ADOPTED:
            # The fences of an earlier feed may be higher than those of this one.
            self._collection(FENCES).delete_one({"_id": self._writer})
        self._collection().create_index("gone", name=_EXPIRY, expireAfterSeconds=GONE_S)
        if reason != OURS:
            mark = {"$set": {"mark": self._owner.mark, "written": self.written}}
            self._collection(FENCES).update_one({"_id": self._name}, mark, upsert=True)

    def inspect(self) -> Target:
        self._client = self._client or connect(self._url)
        objects, writers = self._collection(), self._collection(FENCES)
        # A fence is not evidence after the collection was marked, whatever happened to it since.
        fenced, marked = (writers.find_one({"_id": each}) for each in (self._writer, self._name))
        mark, written = self._mark()
        return Target(
            str(self),
            mark,
            objects.find_one({}, {"_id": 1}) is None,
            bool(fenced and not marked),
            lambda: int(objects.count_documents({})),
            written,
        )

    def count(self) -> int:
        with connect(self._url, COUNT_MS) as client:
            objects = client[self._database].get_collection(
                self._name, read_preference=ReadPreference.PRIMARY
            )
            gone = objects.count_documents({"gone": {"$exists": True}})
            return int(objects.count_documents({})) - int(gone)

    def write(self, messages: list[Message], fence: int) -> None:
        """Write the messages as documents.

        Raises:
            Unwritten: the message at the error's *index* cannot be stored. The messages before it
                are written.
            Overtaken: a later worker has written.
            Busy: the server did not accept the whole batch.
        """
        documents, refusal = until_refused(messages, _document)
        if documents:
            self._check(fence)
            mark, written = self._mark()
            self._verify(mark, written)
            with blame_message(messages):
                self._put(documents)
            # Last, so that the number never counts documents that are missing.
            self.written = written + 1
            count = {"$max": {"written": self.written}}
            self._collection(FENCES).update_one({"_id": self._name, "mark": mark}, count)
        if refusal is not None:
            raise refusal

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def datasets(self) -> list[Dataset]:
        """Return the datasets of this store, for lineage."""
        return [collection_of(self._url, self._name)]

    def __str__(self) -> str:
        return f"collection {self._name} at {self._shown}"

    @property
    def _writer(self) -> str:
        return f"{self._owner.consumer}:{self._name}"

    def _mark(self) -> tuple[str, int]:
        """Return the mark of the collection, and the number of its batches.

        The mark is "" if others have dropped and created the collection since.
        """
        found = self._collection(FENCES).find_one({"_id": self._name}) or {}
        is_ours = _EXPIRY in self._collection().index_information()
        return str(found.get("mark", "")) if is_ours else "", int(found.get("written", 0))

    def _collection(self, name: str = "") -> Any:
        assert self._client is not None
        kept = WriteConcern("majority", wtimeout=ANSWER_MS)
        return self._client[self._database].get_collection(name or self._name, write_concern=kept)

    def _check(self, fence: int) -> None:
        """Raise `Overtaken` if a later worker has written.

        A write of an earlier worker may still be running. Because of the versions, this write does
        no harm, unless it is a reset.
        """
        mine, earlier = {"_id": self._writer}, {"fence": {"$lte": fence}}
        try:
            self._collection(FENCES).update_one(
                {**mine, **earlier}, {"$set": {"fence": fence}}, upsert=True
            )
        except DuplicateKeyError:
            raise Overtaken(f"a worker later than {fence} writes {self._name}") from None

    def _put(self, documents: Sequence[_Document | None]) -> None:
        """Write the documents in order. A None in *documents* empties the collection."""
        latest: dict[str, _Document] = {}
        for document in documents:
            if document is None:
                self._collection().delete_many({})
                latest.clear()
            else:
                # Keep only the last document of an object. So the server may write the documents
                # in any order.
                latest[document.id] = document
        self._bulk(list(latest.values()))

    def _bulk(self, documents: list[_Document], *, upsert: bool = True) -> None:
        """Write the documents, except for those that already exist with a later version."""
        if not documents:
            return
        try:
            self._collection().bulk_write(
                [ReplaceOne(each.or_earlier, each.content, upsert=upsert) for each in documents],
                ordered=False,
            )
        except BulkWriteError as error:
            failures, unconfirmed = (
                error.details[name] for name in ("writeErrors", "writeConcernErrors")
            )
            for each in failures:
                if each["code"] != _DUPLICATE_KEY or "index: _id_ " not in each["errmsg"]:
                    # The client's own error would show the document.
                    raise Busy(each["errmsg"], of_code("MongoDB", each["code"])) from None
            if unconfirmed:
                raise Busy(unconfirmed[0]["errmsg"]) from None
            # Each failed document already exists: with a later version, or because another worker
            # has just inserted it. In the second case, replace the document now.
            self._bulk([documents[each["index"]] for each in failures], upsert=False)


class _Document(NamedTuple):
    """A document to write. *content* is already encoded, so that errors occur before sending."""

    id: str
    version: int
    content: RawBSONDocument

    @property
    def or_earlier(self) -> dict[str, Any]:
        """Return the query for the document to replace, which must not have a later version."""
        return {"_id": self.id, "version": {"$lte": self.version}}


def _document(index: int, message: Message) -> _Document | None:
    if message.is_command:
        return None
    fields: dict[str, Any] = {"_id": object_of(message), "version": version_of(message.id)}
    if message.is_gone:
        fields["gone"] = datetime.fromtimestamp(time.time_ns() / 1e9, UTC)
    else:
        fields |= {
            "namespace": message.namespace,
            "id": message.key,
            "ts": message.ts,
            "data": message.data,
            "event_id": message.id,
        }
    content = bson.encode(fields)
    if len(content) > DOCUMENT_BYTES:
        raise Unwritten(index, f"a document has at most {DOCUMENT_BYTES:,} bytes")
    return _Document(fields["_id"], fields["version"], RawBSONDocument(content))


LOOK_MS = 300  # the time to collect changes; it is short, so that a change is soon in the feed
# The position in an idle stream is stored after this time, before the oplog drops the position that
# was stored last.
SAID_S = 600.0
CHECK_S = 5.0  # the limit of a check; an available server responds within 1 s
_CHANGES = ("insert", "update", "replace")
_ENDS = ("drop", "dropDatabase", "rename", "invalidate")
# Errors that mean that the stream cannot continue at the position, for example because the oplog no
# longer contains it.
_LOST = (136, 260, 280, 286)


class MongoCollection:
    """A source that reads the documents of *collection* of the database in *url*.

    Each document is an object of *type* (default: the collection's name), with `_id` as id. The
    collection is copied. If *follow*, later changes are read, too, which requires a replica set. An
    interrupted copy starts again from the beginning.

    If the collection is dropped or renamed, or the oplog no longer contains the position, the
    collection is copied again, and objects of this reader without a document are deleted. The
    reader stops before it deletes more than 10 % of them and more than *max_deletes*.

    *columns* or *exclude* select fields, and *too_large* is the rule for large documents
    (`RowRules`).

    Raises:
        WrongPipeline: *url* is not a MongoDB address with a database.
    """

    is_copy = True

    def __init__(
        self,
        url: str,
        collection: str,
        *,
        type: str = "",
        follow: bool = True,
        max_deletes: int = DELETES_MAX,
        columns: Names = (),
        exclude: Names = (),
        too_large: str = STOP,
    ) -> None:
        self._url, (self._database, self._shown) = url, database_of(url)
        options = columns, exclude, too_large
        self._rows = Keyed(collection, "_id", type or collection, max_deletes, *options)
        self.refit = self._rows.refit
        self._follow, self._state = follow, dict[str, Any]()
        self._client: MongoClient[Any] | None = None

    def open(self, name: str, state: ReaderState, known: Known) -> None:
        """Connect, and resume at *state*.

        Raises:
            pymongo.errors.PyMongoError: the server is not available.
        """
        self._state, self._known = dict(state.get(self._rows.type, {})), known
        chosen = [list(self._rows.columns), list(self._rows.exclude)]
        if self._state and self._state.get("fields", [[], []]) != chosen:
            self._state = {"again": True, "fields": chosen}
        # An earlier release has published all fields, so the state of its reader has no choice.
        self._fields = {"fields": chosen} if not self._state or "fields" in self._state else {}
        self._client = connect(self._url)
        self._client.admin.command("ping")  # fails if the address is wrong
        self._collection = self._client[self._database].get_collection(
            self._rows.name,
            codec_options=CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_AUTO),
            read_concern=ReadConcern("majority"),
        )

    def _problems_of_documents(self, name: str, collection: Any) -> list[str]:
        return self._rows.problems_of_size(
            name, lambda: (self._rows.select(each, None) for each in collection.find())
        )

    def read(self) -> Iterator[Batch]:
        """Yield batches of operations, and an empty one if nothing is new.

        Raises:
            WrongPipeline: the server is not in a replica set.
            pymongo.errors.PyMongoError: the server is not available or rejects the request.
        """
        while True:
            is_known = not self._follow or self._state.keys() & {"time", "token"}
            if self._state.get("mode") != COMPLETE or not is_known:
                yield from self._copy()
            if not self._follow:
                return
            try:
                yield from self._stream()
            except OperationFailure as error:
                if error.code not in _LOST:
                    raise
            self._state = {"again": True, **self._fields}

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def datasets(self) -> list[Dataset]:
        """Return the datasets of this source, for lineage."""
        return [collection_of(self._url, self._rows.name)]

    def check(self, name: str) -> tuple[list[str], list[str]]:
        """Return the problems that prevent the reader *name* from reading, and the grants it needs.

        Raises:
            pymongo.errors.PyMongoError: the server is not available.
        """
        with pymongo.timeout(CHECK_S), connect(self._url) as client:
            hello = client.admin.command("hello")
            found = list[str]()
            if self._follow and "setName" not in hello and hello.get("msg") != "isdbgrid":
                found.append("to follow it, the server must be in a replica set; or follow=False")
            try:
                client[self._database][self._rows.name].find_one({}, {"_id": 1})
            except OperationFailure as error:
                found.append(str(error))
            collection = client[self._database][self._rows.name]
            found = found or self._problems_of_documents(name, collection)
        role = f'{{role: "read", db: "{self._database}"}}'
        return found, [f'db.grantRolesToUser("USER", [{role}])']

    def __str__(self) -> str:
        return f"collection {self._rows.name} at {self._shown}"

    def _copy(self) -> Iterator[Batch]:
        """Yield all documents of the collection.

        The state contains a time before the copy. Later the change stream starts at this time.
        """
        assert self._client is not None
        with self._client.start_session(causal_consistency=True) as session:
            self._client.admin.command("ping", session=session)
            if self._follow and "time" not in self._state:
                again = bool(self._state)
                time_ = self._time(session.operation_time)
                self._state = {"mode": COPY, "time": time_, "again": again, **self._fields}
            self._rows.begin_copy(self._known)
            documents = self._collection.find(session=session, batch_size=BATCH)
            while batch := list(islice(documents, BATCH)):
                puts = self._rows.copy(map(self._select, batch))
                yield Batch(puts, {self._rows.type: {**self._state, "mode": COPY}})
            if self._state.pop("again", False):
                yield from self._rows.missing(self._known, lambda: self._ids(session))
            self._rows.end_copy()
        self._state["mode"] = COMPLETE
        yield Batch([], {self._rows.type: self._state})

    def _select(self, document: dict[str, Any]) -> dict[str, Any]:
        is_new = self._state.get("mode", COPY) == COPY and not self._state.get("again")
        is_new &= bool(self._fields)
        published = () if self._fields else document.keys()
        return self._rows.select(document, None if is_new else published)

    def _ids(self, session: ClientSession) -> Iterator[list[Any]]:
        documents = self._collection.find({}, {"_id": 1}, session=session, batch_size=BATCH)
        while batch := list(islice(documents, BATCH)):
            yield batch

    def _time(self, at: Timestamp | None) -> list[int]:
        if at is None:
            rule = "to follow it, the server must be in a replica set; or give follow=False"
            raise WrongPipeline(f"{self}: {rule}")
        return [at.time, at.inc]

    def _stream(self) -> Iterator[Batch]:
        token, said_s = self._state.get("token"), time.monotonic()
        began = None if token else Timestamp(*self._state["time"])
        with self._collection.watch(
            full_document="updateLookup",
            resume_after=token,
            max_await_time_ms=LOOK_MS,
            batch_size=BATCH,
            start_at_operation_time=began,
        ) as stream:
            while True:
                events = list(_receive(stream))
                changes = list(takewhile(lambda event: event["operationType"] not in _ENDS, events))
                operations = [self._operation(each) for each in changes]
                if len(changes) < len(events):
                    yield Batch(operations)
                    return
                is_quiet = time.monotonic() - said_s > SAID_S
                if stream.resume_token is None or not (operations or is_quiet):
                    yield Batch()
                    continue
                said_s = time.monotonic()
                self._state = {"mode": COMPLETE, "token": dict(stream.resume_token), **self._fields}
                yield Batch(operations, {self._rows.type: self._state})

    def _operation(self, event: dict[str, Any]) -> dict[str, Any]:
        """Return the operation for a change.

        The operation inserts or updates the object with the current document, or deletes the object
        if the document no longer exists.
        """
        document = event.get("fullDocument")
        if event["operationType"] in _CHANGES and document:
            made = "insert" if event["operationType"] == "insert" else "update"
            return self._rows.put(document, self._select(document), made)
        if event["operationType"] in ("delete", *_CHANGES):
            return self._rows.deletion(self._rows.id(event["documentKey"]))
        raise WrongPipeline(f"{self}: the change {event['operationType']!r} is unknown")


def _receive(stream: ChangeStream[Any]) -> Iterator[Any]:
    """Yield the events that arrive within `LOOK_MS`, at most `BATCH`."""
    began_s = time.monotonic()
    for _ in range(BATCH):
        event = stream.try_next()
        if event is not None:
            yield event
        if event is None or time.monotonic() - began_s > LOOK_MS / 1000:
            return

"""Read a collection of MongoDB: copy it, then follow its change stream."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice, takewhile
from typing import Any

import pymongo
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.timestamp import Timestamp
from pymongo import MongoClient
from pymongo.change_stream import ChangeStream
from pymongo.client_session import ClientSession
from pymongo.errors import OperationFailure
from pymongo.read_concern import ReadConcern

from tidings.lineage.datasets import Dataset
from tidings.pipelines.errors import WrongPipeline
from tidings.pipelines.ingest_source import BATCH, COMPLETE, COPY, Batch, Known, Standing
from tidings.pipelines.sinks.mongodb import collection_of, connected, database_of
from tidings.pipelines.sources.documents import Keyed

LOOK_MS = 300  # how long to wait for changes: they are in the feed within a second
SAID_S = 600.0  # how often to store the position of an idle collection, before the oplog drops it
CHECK_S = 5.0  # a server that is available responds within 1 s
_CHANGES = ("insert", "update", "replace")
_ENDS = ("drop", "dropDatabase", "rename", "invalidate")
# The oplog no longer contains the position, or the stream cannot be continued there.
_LOST = (136, 260, 280, 286)


class MongoCollection:
    """
    A source of the documents of *collection* of the database in *url*.

    They are objects of *type* (default: the collection's name), with `_id` as id. With *follow*
    later changes are read, too, which requires a replica set. Without it the collection is copied
    once. An interrupted copy starts from the beginning.

    If the collection is dropped or renamed, or the oplog no longer contains the position, it is
    copied again, and objects whose documents no longer exist are deleted. No other producer may
    post objects of this type.

    Raises:
        WrongPipeline: *url* is not a MongoDB address with a database.
    """

    def __init__(self, url: str, collection: str, *, type: str = "", follow: bool = True) -> None:
        self._url, (self._database, self._shown) = url, database_of(url)
        self._rows = Keyed(collection, "_id", type or collection)
        self._follow, self._standing = follow, dict[str, Any]()
        self._client: MongoClient[Any] | None = None

    def open(self, name: str, standing: Standing, known: Known) -> None:
        """
        Connect, and resume at *standing*.

        Raises:
            pymongo.errors.PyMongoError: the server is not available.
        """
        self._standing, self._known = dict(standing.get(self._rows.type, {})), known
        self._client = connected(self._url)
        self._client.admin.command("ping")  # detect a wrong address now
        self._collection = self._client[self._database].get_collection(
            self._rows.name,
            codec_options=CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_AUTO),
            read_concern=ReadConcern("majority"),
        )

    def read(self) -> Iterator[Batch]:
        """
        Yield batches of operations, and an empty one if nothing is new.

        Raises:
            WrongPipeline: the server is not in a replica set.
            pymongo.errors.PyMongoError: the server is not available or rejects the request.
        """
        while True:
            is_known = not self._follow or self._standing.keys() & {"time", "token"}
            if self._standing.get("mode") != COMPLETE or not is_known:
                yield from self._copied()
            if not self._follow:
                return
            yield from self._changes()
            self._standing = {"again": True}

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def datasets(self) -> list[Dataset]:
        """Return the datasets of this source, for lineage."""
        return [collection_of(self._url, self._rows.name)]

    def check(self, name: str) -> tuple[list[str], list[str]]:
        """
        Return the problems that prevent the reader *name* from reading, and the grants it needs.

        Raises:
            pymongo.errors.PyMongoError: the server is not available.
        """
        with pymongo.timeout(CHECK_S), connected(self._url) as client:
            hello = client.admin.command("hello")
            found = list[str]()
            if self._follow and "setName" not in hello and hello.get("msg") != "isdbgrid":
                found.append("to be followed the server must be of a replica set; or follow=False")
            try:
                client[self._database][self._rows.name].find_one({}, {"_id": 1})
            except OperationFailure as error:
                found.append(str(error))
        role = f'{{role: "read", db: "{self._database}"}}'
        return found, [f'db.grantRolesToUser("USER", [{role}])']

    def __str__(self) -> str:
        return f"collection {self._rows.name} at {self._shown}"

    def _copied(self) -> Iterator[Batch]:
        """
        Yield all documents; the change stream later starts at or before the time of this copy.
        """
        assert self._client is not None
        with self._client.start_session(causal_consistency=True) as session:
            self._client.admin.command("ping", session=session)
            if self._follow and "time" not in self._standing:
                again = bool(self._standing)
                time_ = self._time(session.operation_time)
                self._standing = {"mode": COPY, "time": time_, "again": again}
            documents = self._collection.find(session=session, batch_size=BATCH)
            while batch := list(islice(documents, BATCH)):
                puts = [self._rows.put(each, each) for each in batch]
                yield Batch(puts, {self._rows.type: {**self._standing, "mode": COPY}})
            if self._standing.pop("again", False):
                yield from self._rows.missing(self._known, lambda: self._ids(session))
        self._standing["mode"] = COMPLETE
        yield Batch([], {self._rows.type: self._standing})

    def _ids(self, session: ClientSession) -> Iterator[list[Any]]:
        documents = self._collection.find({}, {"_id": 1}, session=session, batch_size=BATCH)
        while batch := list(islice(documents, BATCH)):
            yield batch

    def _time(self, at: Timestamp | None) -> list[int]:
        if at is None:
            rule = "to be followed the server must be of a replica set; or give follow=False"
            raise WrongPipeline(f"{self}: {rule}")
        return [at.time, at.inc]

    def _changes(self) -> Iterator[Batch]:
        """
        Yield the changes of the stream; the position is the last event of a batch.

        End when the collection must be copied again.
        """
        try:
            yield from self._streamed()
        except OperationFailure as error:
            if error.code not in _LOST:
                raise

    def _streamed(self) -> Iterator[Batch]:
        token, said_s = self._standing.get("token"), time.monotonic()
        began = None if token else Timestamp(*self._standing["time"])
        with self._collection.watch(
            full_document="updateLookup",
            resume_after=token,
            max_await_time_ms=LOOK_MS,
            batch_size=BATCH,
            start_at_operation_time=began,
        ) as stream:
            while True:
                events = list(_received(stream))
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
                self._standing = {"mode": COMPLETE, "token": dict(stream.resume_token)}
                yield Batch(operations, {self._rows.type: self._standing})

    def _operation(self, event: dict[str, Any]) -> dict[str, Any]:
        """Return the current document of a change, or a delete if it no longer exists."""
        document = event.get("fullDocument")
        if event["operationType"] in _CHANGES and document is not None:
            whole = {**event["documentKey"], **document}  # a replacement may lack the key
            return self._rows.put(whole, whole)
        if event["operationType"] in ("delete", *_CHANGES):
            return self._rows.gone(self._rows.id(event["documentKey"]))
        raise WrongPipeline(f"{self}: {event['operationType']} of the collection is unknown")


def _received(stream: ChangeStream[Any]) -> Iterator[Any]:
    """Yield the events that are available now."""
    began_s = time.monotonic()
    for _ in range(BATCH):
        event = stream.try_next()
        if event is not None:
            yield event
        if event is None or time.monotonic() - began_s > LOOK_MS / 1000:
            return

"""Write to a collection of MongoDB, one document for each object."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import bson
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient, ReplaceOne
from pymongo.errors import BulkWriteError, DuplicateKeyError, WriteError
from pymongo.write_concern import WriteConcern

from tidings.client.errors import Unwritten
from tidings.lineage import datasets
from tidings.lineage.datasets import Dataset
from tidings.pipelines.bodies import blamed, object_of, until_refused, version_of
from tidings.pipelines.errors import Busy, Overtaken, WrongPipeline
from tidings.pipelines.message import Message
from tidings.pipelines.names import checked_table

PORT = 27017
ANSWER_MS = 60_000  # a batch that takes the server longer than this fails
GONE_S = 86_400  # how long the marker of a deleted object is kept
DOCUMENT_BYTES = 16 * 1024 * 1024
FIND_MS = 5_000  # time limit for finding a server
_DUPLICATE_KEY, _INVALID = 11000, 121
_OF_A_MESSAGE = (_DUPLICATE_KEY, _INVALID)  # rejected by an index or a validation rule of the owner
_WRITERS = "tidings_writers"


def database_of(url: str) -> tuple[str, str]:
    """
    Return the name of the database in *url*, and the address to show to people.

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


def connected(url: str) -> MongoClient[Any]:
    return MongoClient(
        url, serverSelectionTimeoutMS=FIND_MS, socketTimeoutMS=ANSWER_MS, appname="tidings"
    )


class MongoDB:
    """
    A sink that keeps *collection* of the database in *url* equal to the objects of the feed.

    A document has `namespace`, `id`, `ts`, `data`, `event_id` and `version`, its position in the
    log. A repeated or late message therefore changes nothing, whichever worker sends it. A deleted
    object leaves a document with `_id`, `version` and `gone` for a day. A batch is one bulk write,
    acknowledged by the majority. A reset empties the collection.

    Raises:
        WrongPipeline: *url* is not a MongoDB address with a database, or *collection* is not a
            simple name.
    """

    def __init__(self, url: str, collection: str = "objects") -> None:
        self._url, (self._database, self._shown) = url, database_of(url)
        self._name = checked_table(collection, "collection")
        self._client: MongoClient[Any] | None = None
        self._writer = ""

    def open(self, consumer: str) -> None:
        self._writer = f"{consumer}:{self._name}"
        self.close()
        self._client = connected(self._url)
        self._collection().create_index("gone", expireAfterSeconds=GONE_S)

    def write(self, messages: list[Message], fence: int) -> None:
        """
        Write the messages as documents.

        Raises:
            Unwritten: the message at this index cannot be a document; those before it are written.
            Overtaken: a later worker has written.
            Busy: the server did not accept all of the batch.
        """
        documents, refusal = until_refused(messages, _document)
        if documents:
            self._check(fence)
            with blamed(messages, WriteError):
                self._put(documents)
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

    def _collection(self, name: str = "") -> Any:
        assert self._client is not None
        kept = WriteConcern("majority", wtimeout=ANSWER_MS)
        return self._client[self._database].get_collection(name or self._name, write_concern=kept)

    def _check(self, fence: int) -> None:
        """
        Raise `Overtaken` if a later worker has written.

        A bulk write of an earlier worker that is still running is harmless because of the versions,
        except for a reset.
        """
        mine, earlier = {"_id": self._writer}, {"fence": {"$lte": fence}}
        try:
            self._collection(_WRITERS).update_one(
                {**mine, **earlier}, {"$set": {"fence": fence}}, upsert=True
            )
        except DuplicateKeyError:
            raise Overtaken(f"a later worker than {fence} writes {self._name}") from None

    def _put(self, documents: Sequence[_Document | None]) -> None:
        """Write the documents in order; None empties the collection."""
        latest: dict[str, _Document] = {}
        for document in documents:
            if document is None:
                self._collection().delete_many({})
                latest.clear()
            else:
                # Each object occurs once, so the server may process them in any order.
                latest[document.id] = document
        self._bulk(list(latest.values()))

    def _bulk(self, documents: list[_Document], *, upsert: bool = True) -> None:
        """Replace all documents that do not exist with a later version."""
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
                if not _is_there(each):
                    raise _failure(each) from None
            if unconfirmed:
                raise Busy(unconfirmed[0]["errmsg"]) from None
            # The existing document is newer, or another worker has just inserted it.
            self._bulk([documents[each["index"]] for each in failures], upsert=False)


class _Document(NamedTuple):
    """A document to write. *content* is encoded first, so that errors occur before sending."""

    id: str
    version: int
    content: RawBSONDocument

    @property
    def or_earlier(self) -> dict[str, Any]:
        """Return the query for the document that this one replaces."""
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


def _is_there(failure: dict[str, Any]) -> bool:
    return failure["code"] == _DUPLICATE_KEY and "index: _id_ " in failure["errmsg"]


def _failure(failure: dict[str, Any]) -> Exception:
    """Return an error without the document, which the client's own error would show."""
    reason = failure["errmsg"]
    return WriteError(reason) if failure["code"] in _OF_A_MESSAGE else Busy(reason)

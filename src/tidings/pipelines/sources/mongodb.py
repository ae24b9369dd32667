"""Read a collection of MongoDB: copy it, then follow its change stream."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

from bson.timestamp import Timestamp
from pymongo import MongoClient
from pymongo.change_stream import ChangeStream
from pymongo.read_concern import ReadConcern

from tidings.lineage.datasets import Dataset
from tidings.pipelines.errors import WrongPipeline
from tidings.pipelines.ingest_source import BATCH, COMPLETE, COPY, Batch, Known, Standing
from tidings.pipelines.sinks.mongodb import collection_of, connected, database_of
from tidings.pipelines.sources.documents import Keyed

LOOK_MS = 300  # how long to wait for changes: they are in the feed within a second
SAID_S = 600.0  # how often to store the position of an idle collection, before the oplog drops it
_CHANGES = ("insert", "update", "replace")


class MongoCollection:
    """
    A source of the documents of *collection* of the database in *url*.

    They are objects of *type* (default: the collection's name), with `_id` as id. With *follow*
    later changes are read, too, which requires a replica set. Without it the collection is copied
    once. An interrupted copy starts from the beginning.

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
        self._standing = dict(standing.get(self._rows.type, {}))
        self._client = connected(self._url)
        self._client.admin.command("ping")  # detect a wrong address now
        self._collection = self._client[self._database].get_collection(
            self._rows.name, read_concern=ReadConcern("majority")
        )

    def read(self) -> Iterator[Batch]:
        """
        Yield batches of operations, and an empty one if nothing is new.

        Raises:
            WrongPipeline: the server is not in a replica set, or the collection was dropped or
                renamed.
            pymongo.errors.PyMongoError: the server is not available or rejects the request, for
                example because its oplog no longer contains the position.
        """
        is_known = not self._follow or self._standing.keys() & {"time", "token"}
        if self._standing.get("mode") != COMPLETE or not is_known:
            yield from self._copied()
        if self._follow:
            yield from self._changes()

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def datasets(self) -> list[Dataset]:
        """Return the datasets of this source, for lineage."""
        return [collection_of(self._url, self._rows.name)]

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
                self._standing = {"mode": COPY, "time": self._time(session.operation_time)}
            documents = self._collection.find(session=session, batch_size=BATCH)
            while batch := list(islice(documents, BATCH)):
                puts = [self._rows.put(each, each) for each in batch]
                yield Batch(puts, {self._rows.type: {**self._standing, "mode": COPY}})
        self._standing["mode"] = COMPLETE
        yield Batch([], {self._rows.type: self._standing})

    def _time(self, at: Timestamp | None) -> list[int]:
        if at is None:
            rule = "to be followed the server must be of a replica set; or give follow=False"
            raise WrongPipeline(f"{self}: {rule}")
        return [at.time, at.inc]

    def _changes(self) -> Iterator[Batch]:
        """Yield the changes of the stream; the position is the last event of a batch."""
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
                operations = [self._operation(each) for each in _received(stream)]
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
            return self._rows.put(document, document)
        if event["operationType"] in ("delete", *_CHANGES):
            return self._rows.gone(self._rows.id(event["documentKey"]))
        rule = f"{event['operationType']} of the collection: give a new one a reader of a new name"
        raise WrongPipeline(f"{self}: {rule}")


def _received(stream: ChangeStream[Any]) -> Iterator[Any]:
    """Yield the events that are available now."""
    began_s = time.monotonic()
    for _ in range(BATCH):
        event = stream.try_next()
        if event is not None:
            yield event
        if event is None or time.monotonic() - began_s > LOOK_MS / 1000:
            return

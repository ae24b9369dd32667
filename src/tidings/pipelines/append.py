"""Read from one source and append its operations to the feed, which the stores follow."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

from tidings.client.errors import Lost
from tidings.client.feed_api import NamedConsumers, Objects
from tidings.client.poster import Poster
from tidings.pipelines.ingest_source import append
from tidings.pipelines.names import READER
from tidings.pipelines.pipeline import Pipeline
from tidings.pipelines.retry_loop import Opening, Progress

LOOK_S = 0.5  # how often to check the positions of the stores and of the state
READS = "< "  # prefix of a reader's name in the list of stores and readers
PROJECTED_S = 60.0  # normally the state is 1 s late; after this long something is wrong


class ReadingFrom:
    """
    The work of one reader. Implements `Work`.

    *settled* returns True if the stores have everything that the feed held before. Nothing new is
    read until then.
    """

    def __init__(self, pipeline: Pipeline, name: str, settled: Callable[[], bool]) -> None:
        self._source, self._reader = pipeline.source, pipeline.readers[name]
        self._name, self._settled = pipeline.reader(name), settled
        self.progress = Progress(f"{READS}{name}")
        self._opening = Opening()

    def once(self, stopping: threading.Event) -> None:
        while not self._settled():
            self.progress.state = "standing by"
            if stopping.wait(LOOK_S):
                return
        self.progress.state = "running"
        with self._opening.tried():
            self._reader.open(self._name, self._standing(), self._known)
        try:
            if self._appended(stopping):
                self.progress.state = "done"
        finally:
            self._reader.close()

    def park(self) -> str:
        """Return "": a source has no message to park."""
        return ""

    def close(self) -> None:
        return

    def _appended(self, stopping: threading.Event) -> bool:
        """Return True if the source was read to its end."""
        with self._source.opened(Poster) as poster:
            for batch in self._reader.read():  # for a queue, this acknowledges the batch before
                if stopping.is_set():
                    return False
                if batch.operations or batch.standing:
                    append(poster, self._name, batch)
                    self.progress.count(len(batch.operations))
        return True

    def _standing(self) -> dict[str, Any]:
        with self._source.opened(Objects) as objects:
            reader = objects.one(READER, self._name)
        return dict(reader["data"]) if reader else {}

    def _known(self, kind: str) -> Iterator[str]:
        """
        Yield the ids of all objects of the type *kind*, once the state includes all appended pages.
        """
        self._await_state()
        with self._source.opened(Objects) as objects:
            yield from (str(each["id"]) for each in objects.all(kind))

    def _await_state(self) -> None:
        waited = threading.Event()
        with self._source.opened(NamedConsumers) as api:
            for _ in range(int(PROJECTED_S / LOOK_S)):
                followers = {each["name"]: each for each in api.ask("GET", "status")["followers"]}
                if followers["state"]["lag_pages"] == 0:
                    return
                waited.wait(LOOK_S)
        raise Lost("the state of the feed does not follow its log")

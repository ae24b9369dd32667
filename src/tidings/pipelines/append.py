"""Reading from one source: what it gives is appended to the feed, which the stores follow."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

from tidings.client.consume.named_consumers import NamedConsumers
from tidings.client.errors import Lost
from tidings.client.listen.bootstrap import Objects
from tidings.client.produce.post import Poster
from tidings.pipelines.ingest_source import append
from tidings.pipelines.names import READER
from tidings.pipelines.pipeline import Pipeline
from tidings.pipelines.retry_loop import Opening, Progress

LOOK_S = 0.5  # how often the stores and the state are asked how far they are
READS = "< "  # before the name of a reader, where stores are shown beside it
PROJECTED_S = 60.0  # the state is a second behind; so far behind, something is wrong with it


class ReadingFrom:
    """
    Implements `Work`. *settled* says whether the stores have what the feed held before: nothing
    new is read until they have.
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
        """A source has nothing that could be put aside."""
        return ""

    def close(self) -> None:
        return

    def _appended(self, stopping: threading.Event) -> bool:
        """Whether everything there is was read."""
        with self._source.opened(Poster) as poster:
            for batch in self._reader.read():  # which acknowledges the one before, to a queue
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
        """The ids of the objects of the type *kind*, when the state shows all that was appended."""
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

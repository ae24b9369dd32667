"""
Running a pipeline: a worker for each store, in a thread of its own.

A store that fails is tried again a few times, one message at a time; then it stands still and
the others go on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tidings.client.backoff import Backoff
from tidings.client.errors import FellOff, Refused
from tidings.client.named_consumers import NamedConsumers
from tidings.client.worker import Message as Delivered
from tidings.client.worker import Worker

from .message import message_of
from .pipeline import Branch, Pipeline

ATTEMPTS = 3  # at one message: what cures itself has by then
LOOK_S = 0.2  # how often a terminal shows how far it is
METRICS_S = 5.0  # how often a running pipeline says how far it is
_UNKNOWN = "unknown_consumer"

Tell = Callable[[dict[str, Any]], None]


@dataclass(slots=True)
class Progress:
    """Of one store. *state*: starting, running, standing by, failing, failed, stopped."""

    name: str
    state: str = "starting"
    records: int = 0
    batches: int = 0
    failures: int = 0
    error: str = ""


class Runner:
    """*tell* is given every event: `boot`, `metrics`, `error` and `exit`."""

    def __init__(
        self, pipeline: Pipeline, tell: Tell, *, attempts: int = ATTEMPTS, worker: str = ""
    ) -> None:
        self._pipeline, self._tell = pipeline, tell
        self._stopping = threading.Event()
        self._lines = [
            _Line(pipeline, branch, self._stopping, self._say, attempts, worker)
            for branch in pipeline.branches
        ]

    @property
    def progress(self) -> list[Progress]:
        return [line.progress for line in self._lines]

    def run(self, look: Callable[[], None] = lambda: None) -> bool:
        """Until all stores have stopped; whether none has failed. *look* is called now and then."""
        self._say("boot", stores=[line.progress.name for line in self._lines])
        threads = [threading.Thread(target=line.run, daemon=True) for line in self._lines]
        for thread in threads:
            thread.start()
        told = time.monotonic()
        while alive := [thread for thread in threads if thread.is_alive()]:
            alive[0].join(LOOK_S)
            look()
            if time.monotonic() - told >= METRICS_S:
                told = time.monotonic()
                self._metrics()
        self._metrics()
        well = all(line.progress.state != "failed" for line in self._lines)
        self._say("exit", ok=well)
        return well

    def stop(self) -> None:
        """Have every store end behind the batch in hand; a signal's handler may call it."""
        self._stopping.set()
        for line in self._lines:
            line.stop()

    def _metrics(self) -> None:
        for each in self.progress:
            counts = {"records": each.records, "batches": each.batches, "failures": each.failures}
            self._say("metrics", path=each.name, state=each.state, **counts)

    def _say(self, kind: str, **fields: Any) -> None:
        at_ms = time.time_ns() // 1_000_000
        self._tell({"ts": at_ms, "kind": kind, "name": self._pipeline.name, **fields})


class _Line:
    """One store and its worker."""

    def __init__(
        self,
        pipeline: Pipeline,
        branch: Branch,
        stopping: threading.Event,
        say: Callable[..., None],
        attempts: int,
        worker: str,
    ) -> None:
        self._source, self._branch = pipeline.source, branch
        self._consumer, self._worker_name = pipeline.consumer(branch), worker
        self._stopping, self._say, self._attempts = stopping, say, attempts
        self.progress = Progress(branch.name)
        self._worker: Worker | None = None
        self._tried = 0

    def stop(self) -> None:
        if self._worker is not None:
            self._worker.stop()

    def run(self) -> None:
        backoff = Backoff()
        try:
            while not self._stopping.is_set():
                before = self.progress.records
                self._once()
                if self._stopping.is_set() or self.progress.state == "failed":
                    break
                self._tried = 1 if self.progress.records > before else self._tried + 1
                if self._tried >= self._attempts:
                    self.progress.state = "failed"
                    break
                self._stopping.wait(backoff.next_s())
        finally:
            self._branch.sink.close()
            if self.progress.state != "failed":
                self.progress.state = "stopped"

    def _once(self) -> None:
        """Until the worker ends; what ended it is told."""
        try:
            self._register()
            self._branch.sink.open(self._consumer)
            with self._made() as worker:
                self._worker = worker
                if self._stopping.is_set():
                    return
                self.progress.state = "running"
                worker.run(self._write)
        except (FellOff, Refused) as error:
            self._failed(error)
            self.progress.state = "failed"  # it would be answered the same again
        except Exception as error:  # noqa: BLE001 whatever the store raises
            self._failed(error)

    def _made(self) -> Worker:
        return Worker(
            self._source.url,
            self._consumer,
            feed=self._source.feed,
            password=self._source.password,
            transport="ws" if self._source.ws_url else "sse",
            ws_url=self._source.ws_url,
            bulk=self._branch.bulk,
            worker=f"{self._worker_name}.{self._branch.name}" if self._worker_name else "",
            on_held=self._held,
        )

    def _register(self) -> None:
        """Only what is not there: one that is stays where it is, and needs no right to change."""
        with NamedConsumers(
            self._source.url, self._source.feed, password=self._source.password
        ) as api:
            try:
                api.show(self._consumer)
            except Refused as refused:
                if refused.code != _UNKNOWN:
                    raise
                filters = {"types": self._source.types, "parents": self._source.parents}
                wanted = {name: list(values) for name, values in filters.items() if values}
                api.register(self._consumer, {"from": self._source.start, **wanted})

    def _write(self, batch: Sequence[Delivered]) -> None:
        assert self._worker is not None
        self.progress.state = "running"
        self._branch.write([message_of(each) for each in batch], self._worker.fence)
        self.progress.records += len(batch)
        self.progress.batches += 1
        self.progress.error = ""

    def _held(self, reason: str) -> None:
        self.progress.state, self.progress.error = "standing by", reason

    def _failed(self, error: Exception) -> None:
        self.progress.failures += 1
        self.progress.state = "failing"
        self.progress.error = str(error) or type(error).__name__
        self._say("error", path=self.progress.name, error=self.progress.error)

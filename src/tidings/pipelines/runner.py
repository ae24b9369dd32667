"""
Run a pipeline: each store and each reader in its own thread.

After a failure a thread retries a few times, a store with one message at a time. It then stops, and
the others continue. A store or source that is not available is retried without limit.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from tidings.client.errors import Lost, Refused
from tidings.client.feed_api import NamedConsumers
from tidings.pipelines import retry_loop
from tidings.pipelines.append import ReadingFrom
from tidings.pipelines.pipeline import Pipeline
from tidings.pipelines.retry_loop import ATTEMPTS, Progress, Tell, Work
from tidings.pipelines.sink_loop import UNKNOWN, Saving

LOOK_S = 0.2  # how often a terminal shows the progress
COUNTS = ("records", "written", "batches", "failures")
METRICS_S = 5.0  # how often a running pipeline reports its progress


class Runner:
    """
    One run of a pipeline. The function *tell* receives all events: `boot`, `metrics`, `error`,
    `parked` and `exit`.
    """

    def __init__(
        self, pipeline: Pipeline, tell: Tell, *, attempts: int = ATTEMPTS, worker: str = ""
    ) -> None:
        self._pipeline, self._tell, self._attempts = pipeline, tell, attempts
        self._stopping = threading.Event()
        self._was_settled = False
        self._stores = [Saving(pipeline, branch, worker) for branch in pipeline.branches]
        self._readers = [ReadingFrom(pipeline, name, self._has_begun) for name in pipeline.readers]
        self._works: list[Work] = [*self._readers, *self._stores]

    @property
    def progress(self) -> list[Progress]:
        return [work.progress for work in self._works]

    def run(self, look: Callable[[], None] = lambda: None) -> bool:
        """
        Run until all threads have stopped; return True if none has failed.

        *look* is called every `LOOK_S` seconds. If the pipeline has readers and all have read
        everything, the run ends when the stores have reached the end of the feed.
        """
        self._say("boot", stores=[each.progress.name for each in self._stores])
        threads = self._started()
        told_s = time.monotonic()
        while alive := [thread for thread in threads if thread.is_alive()]:
            alive[0].join(LOOK_S)
            look()
            if time.monotonic() - told_s >= METRICS_S:
                told_s = time.monotonic()
                self._metrics()
                self._end_when_done()
        self._metrics()
        well = all(progress.state != "failed" for progress in self.progress)
        self._say("exit", ok=well)
        return well

    def stop(self) -> None:
        """Stop every store after its current batch. A signal handler may call this."""
        self._stopping.set()
        for store in self._stores:
            store.stop()

    def _started(self) -> list[threading.Thread]:
        rest = (self._stopping, self._say, self._attempts)
        threads = [
            threading.Thread(target=retry_loop.run, args=(work, *rest), daemon=True)
            for work in self._works
        ]
        for thread in threads:
            thread.start()
        return threads

    def _end_when_done(self) -> None:
        done = [each for each in self._readers if each.progress.state in ("done", "failed")]
        if self._readers and done == self._readers and self._settled():
            self.stop()

    def _has_begun(self) -> bool:
        """
        Return True if the stores have received everything that the feed held at the start.

        Once True, it stays True: operations that one reader appends must not delay another reader.
        """
        self._was_settled = self._was_settled or self._settled()
        return self._was_settled

    def _settled(self) -> bool:
        """Return True if every store that has not failed is at the end of the feed."""
        with self._pipeline.source.opened(NamedConsumers) as api:
            return all(
                store.progress.state == "failed" or _at_end(api, store.consumer)
                for store in self._stores
            )

    def _metrics(self) -> None:
        for each in self.progress:
            counts = {name: getattr(each, name) for name in COUNTS}
            self._say("metrics", path=each.name, state=each.state, **counts)

    def _say(self, kind: str, **fields: Any) -> None:
        at_ms = time.time_ns() // 1_000_000
        self._tell({"ts": at_ms, "kind": kind, "name": self._pipeline.name, **fields})


def _at_end(api: NamedConsumers, consumer: str) -> bool:
    try:
        position = api.show(consumer)
    except Lost:
        return False
    except Refused as refused:
        if refused.code != UNKNOWN:
            raise
        return False
    return position["lag_pages"] == 0 and not position["copying"]

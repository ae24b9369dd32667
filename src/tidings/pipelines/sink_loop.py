"""Write to one store: a worker for the consumer that keeps the store's position."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from tidings.client.errors import Lost, Refused, Unwritten
from tidings.client.feed_api import NamedConsumers
from tidings.client.worker import Message as Delivered
from tidings.client.worker import Worker, is_entry
from tidings.pipelines.message import message_of
from tidings.pipelines.pipeline import Branch, Pipeline
from tidings.pipelines.retry_loop import Opening, Progress

UNKNOWN = "unknown_consumer"


class Saving:
    """The work of one store. Implements `Work`."""

    def __init__(self, pipeline: Pipeline, branch: Branch, worker: str) -> None:
        self._source, self._branch = pipeline.source, branch
        self.consumer = pipeline.consumer(branch)
        self._worker_name = f"{worker}.{branch.name}" if worker else ""
        self.progress = Progress(branch.name)
        self._worker: Worker | None = None
        self._opening = Opening()
        self._refused = ""  # id of the log entry that caused the last failure

    def stop(self) -> None:
        if self._worker is not None:
            self._worker.stop()

    def once(self, stopping: threading.Event) -> None:
        """Run the worker until it ends."""
        with self._opening.tried():
            self._register()
            self._branch.sink.open(self.consumer)
        with self._made() as worker:
            self._worker = worker
            if stopping.is_set():
                return
            self.progress.state = "running"
            worker.run(self._write)

    def park(self) -> str:
        """Implements `Work`. Nothing is parked if the store itself failed."""
        if not self._branch.park or not self._refused:
            return ""
        why = {"why": f"refused by {self._branch.name}", "by": "tidings pipeline"}
        with self._source.opened(NamedConsumers) as api:
            failure = api.show(self.consumer)["failure"]
            if not failure or failure["id"] != self._refused:
                raise Lost("another worker has gone on, or the feed was not told")
            try:
                api.act(self.consumer, "park", why)
            except Refused as refused:
                self.progress.error += f"; not parked: {refused}"
                return ""
        return self._refused

    def close(self) -> None:
        self._branch.sink.close()

    def _made(self) -> Worker:
        return Worker(
            self._source.url,
            self.consumer,
            feed=self._source.feed,
            password=self._source.password,
            transport="ws" if self._source.ws_url else "sse",
            ws_url=self._source.ws_url,
            bulk=self._branch.bulk,
            worker=self._worker_name,
            on_held=self._held,
        )

    def _register(self) -> None:
        """
        Register the consumer if it is missing.

        An existing consumer keeps its position, and using it needs no right to change consumers.
        """
        source = self._source
        with source.opened(NamedConsumers) as api:
            try:
                api.show(self.consumer)
            except Refused as refused:
                if refused.code != UNKNOWN:
                    raise
                filters = {"types": source.types, "parents": source.parents}
                wanted = {name: list(values) for name, values in filters.items() if values}
                api.register(self.consumer, {"from": source.start, **wanted})

    def _write(self, batch: Sequence[Delivered]) -> None:
        assert self._worker is not None
        self.progress.state = "running"
        self._refused = ""
        messages = [message_of(each) for each in batch]
        try:
            written = self._branch.write(messages, self._worker.fence)
        except Unwritten as error:
            refused = batch[error.index].id
            self._refused = refused if is_entry(refused) else ""
            raise
        # A `reset` is not progress: a copy may start again at each attempt.
        self.progress.count(sum(not each.is_command for each in messages), written)

    def _held(self, reason: str) -> None:
        self.progress.state, self.progress.error = "standing by", reason

"""Run the readers and stores of a pipeline until it is stopped, and record their progress."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tidings.client.errors import FellOff, Lost, Refused, Unwritten
from tidings.client.feed_api import NamedConsumers, Objects
from tidings.client.poster import Poster
from tidings.client.retries import Backoff
from tidings.client.worker import Message as Delivered
from tidings.client.worker import Worker, is_entry
from tidings.pipelines.copies import CopyCount, CopyDiffers
from tidings.pipelines.documents import digest
from tidings.pipelines.feed import objects_of
from tidings.pipelines.ingest_source import Batch, Digests, append, owned, owner_tag
from tidings.pipelines.messages import READER, Away, WrongPipeline, message_of
from tidings.pipelines.ownership import NotOurs, OwnedStore
from tidings.pipelines.pipeline import UNKNOWN, Branch, Pipeline

ATTEMPTS = 3  # attempts to write a message; most temporary failures end before the last attempt

Say = Callable[..., None]
EventSink = Callable[[dict[str, Any]], None]


@dataclass(slots=True)
class Progress:
    """
    The state and the counters of a reader or a store.

    *state* is starting, running, standing by, failing, failed, done or stopped. *records* is the
    number of operations that were read, and *written* the number that were written, which is lower
    if functions filter out operations.
    """

    name: str
    state: str = "starting"
    records: int = 0
    written: int = 0
    batches: int = 0
    failures: int = 0
    error: str = ""

    def count(self, records: int, written: int | None = None) -> None:
        """
        Count a batch of *records* operations, of which *written* were written; None means all.
        """
        self.state, self.error = "running", ""
        self.records += records
        self.written += records if written is None else written
        self.batches += 1


@dataclass(slots=True)
class Reconnect:
    """The connection to a store or a source. Each attempt opens it again."""

    was_open: bool = False

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """
        Observe an attempt to open the connection, which is made within this context.

        Raises:
            Away: the connection cannot be opened, but was open before. If it was never open, the
                original error is raised, so that a wrong address or password counts as a failure.
        """
        try:
            yield
        except (FellOff, Refused, WrongPipeline):
            raise
        except Exception as error:
            if not self.was_open:
                raise
            raise Away(_text(error)) from error
        self.was_open = True


CHECK_S = 0.5  # the time between two checks of the positions of the stores
READS = "< "  # the prefix of the name of a reader in the list of stores and readers


class SourceWorker:
    """
    The work of one reader.

    *at_end* returns True as soon as the stores have everything that the feed had at the start. The
    source is read only then.
    """

    def __init__(self, pipeline: Pipeline, name: str, at_end: Callable[[], bool]) -> None:
        self._source, self._reader = pipeline.source, pipeline.readers[name]
        self._name, self._is_at_end = pipeline.reader(name), at_end
        self.progress = Progress(f"{READS}{name}")
        self._reconnect = Reconnect()

    def once(self, stopping: threading.Event) -> None:
        """
        Read the source until *stopping* is set, or until the source ends.

        Raises:
            Away: the source is not available, but was before. Such an attempt does not count as one
                of the attempts of `run`.
        """
        while not self._is_at_end():
            self.progress.state = "standing by"
            if stopping.wait(CHECK_S):
                return
        self.progress.state = "running"
        with self._reconnect.attempt():
            self._reader.open(self._name, self._state(), self._known)
        try:
            if self._append(stopping):
                self.progress.state = "done"
        finally:
            self._reader.close()

    def park(self) -> str:
        """Return "", because a source has no message to park."""
        return ""

    def close(self) -> None:
        return

    def _append(self, stopping: threading.Event) -> bool:
        """Append the batches of the source; return True if the source was read to its end."""
        with self._source.opened(Poster) as poster:
            # With each iteration, the reader of a queue acknowledges the previous batch.
            for batch in self._reader.read():
                if stopping.is_set():
                    return False
                if batch.operations or batch.state:
                    append(poster, self._name, self._with_owner(batch))
                    self.progress.count(len(batch.operations))
        return True

    def _with_owner(self, batch: Batch) -> Batch:
        if not getattr(self._reader, "is_copy", False):
            return batch
        tag = owner_tag(self._name)
        return Batch([owned(each, tag) for each in batch.operations], batch.state)

    def _state(self) -> dict[str, Any]:
        with self._source.opened(Objects) as objects:
            reader = objects.one(READER, self._name)
        return dict(reader["data"]) if reader else {}

    def _known(self, kind: str) -> Digests:
        """Return the objects of the type *kind* in the feed, with a digest if they are ours."""
        tag = owner_tag(self._name)
        return {
            str(each["id"]): digest(each.get("data")) if tag in each.get("tags", ()) else None
            for each in objects_of(self._source, kind)
        }


class SinkWorker:
    """
    The work of one store, with the same methods as `SourceWorker`.

    *adopt* is the number of rows that a target of another owner must have to be taken over.
    """

    def __init__(
        self, pipeline: Pipeline, branch: Branch, worker: str, adopt: int | None = None
    ) -> None:
        self._pipeline, self._source, self._branch = pipeline, pipeline.source, branch
        self._adopt = adopt
        self.consumer = pipeline.consumer(branch)
        self._worker_name = f"{worker}.{branch.name}" if worker else ""
        self.progress = Progress(branch.name)
        self._worker: Worker | None = None
        self._reconnect = Reconnect()
        self._refused = ""  # event id of the rejected message; "" if it is from a copy
        self._copy = CopyCount()

    def stop(self) -> None:
        if self._worker is not None:
            self._worker.stop()

    def once(self, stopping: threading.Event) -> None:
        """Run the worker until it ends."""
        with self._reconnect.attempt():
            sink = self._branch.sink
            if isinstance(sink, OwnedStore):
                sink.assign(self._pipeline.owner(self._branch, self._adopt))
            # A consumer is registered only after its store has accepted the target, because it
            # would be the evidence that an earlier release has filled the target.
            sink.open(self.consumer)
            self._adopt = None
            self._register()
        with self._make_worker() as worker:
            self._worker = worker
            if stopping.is_set():
                return
            self.progress.state = "running"
            worker.run(self._write)

    def park(self) -> str:
        """
        Park the message that failed, and return its id.

        Return "" if parking is not enabled, the store itself failed, or the feed rejects the
        request.

        Raises:
            Lost: the feed is not available, or did not record this failure. Retry the message.
        """
        if not self._branch.park or not self._refused:
            return ""
        why = {"why": f"refused by {self._branch.name}", "by": "tidings pipeline"}
        with self._source.opened(NamedConsumers) as api:
            failure = api.show(self.consumer)["failure"]
            if not failure or failure["id"] != self._refused:
                raise Lost("another worker took over, or the feed did not receive the failure")
            try:
                api.act(self.consumer, "park", why)
            except Refused as refused:
                self.progress.error += f"; not parked: {refused}"
                return ""
        return self._refused

    def close(self) -> None:
        self._branch.sink.close()

    def _make_worker(self) -> Worker:
        return Worker(
            self._source.url,
            self.consumer,
            feed=self._source.feed,
            password=self._source.password,
            transport="ws" if self._source.ws_url else "sse",
            ws_url=self._source.ws_url,
            bulk=self._branch.bulk,
            worker=self._worker_name,
            on_held=self._on_held,
            on_log=self._check_copy,
        )

    def _register(self) -> None:
        """
        Register the consumer if it is missing.

        An existing consumer keeps its position. Only a registration requires the permission to
        change consumers.
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
        self._copy.hold(self._worker.fence)
        try:
            written = self._branch.write(messages, self._worker.fence, self._copy.add)
        except Unwritten as error:
            refused = batch[error.index].id
            self._refused = refused if is_entry(refused) else ""
            raise
        # A `reset` does not count as progress, because each attempt may start a copy again.
        self.progress.count(sum(not each.is_command for each in messages), written)

    def _check_copy(self) -> None:
        assert self._worker is not None
        self._copy.hold(self._worker.fence)
        sink = self._branch.sink
        if isinstance(sink, OwnedStore):
            self._copy.check(str(sink), self.consumer, sink.count)

    def _on_held(self, reason: str) -> None:
        self.progress.state, self.progress.error = "standing by", reason


Work = SourceWorker | SinkWorker


def run(work: Work, stopping: threading.Event, say: Say, attempts: int) -> None:
    """Repeat *work* until it is stopped or done, or fails *attempts* times without progress."""
    progress, backoff, tried = work.progress, Backoff(), 0
    try:
        while not stopping.is_set():
            before = progress.records
            is_away = _once(work, stopping, say)
            if stopping.is_set() or progress.state in ("failed", "done"):
                break
            if progress.records > before:
                tried, backoff = 0, Backoff()
            tried += not is_away
            if tried >= attempts:
                if not _is_past(work, say):
                    progress.state = "failed"
                    break
                tried = 0
            stopping.wait(backoff.next_s())
    finally:
        work.close()
        if progress.state not in ("failed", "done"):
            progress.state = "stopped"


def _is_past(work: Work, say: Say) -> bool:
    """
    Return True if *work* should continue although its last attempt failed.

    It should continue if the message was parked, or if the message could not be parked because the
    feed was not available.
    """
    try:
        parked = work.park()
    except Lost:
        return True
    if parked:
        say("parked", path=work.progress.name, id=parked, error=work.progress.error)
    return bool(parked)


def _once(work: Work, stopping: threading.Event, say: Say) -> bool:
    """Run *work* once, and report an error. Return True if a store or source is away (`Away`)."""
    try:
        work.once(stopping)
    except Exception as error:  # noqa: BLE001 a store or a source may raise anything
        progress = work.progress
        progress.failures += 1
        # After these errors, the feed or the store would reject the same request again.
        is_final = isinstance(error, (FellOff, Refused, NotOurs, CopyDiffers))
        progress.state = "failed" if is_final else "failing"
        progress.error = _text(error)
        say("error", path=progress.name, error=progress.error)
        return isinstance(error, Away)
    return False


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__


LOOK_S = 0.2  # the time between two updates of the progress in a terminal
COUNTS = ("records", "written", "batches", "failures")
METRICS_S = 5.0  # the time between two events `metrics`


class Runner:
    """
    One run of a pipeline.

    *send* is called with each event: `boot`, `metrics`, `error`, `parked` and `exit`. *adopt* has,
    by store, the number of rows that a target of another owner must have to be taken over.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        send: EventSink,
        *,
        attempts: int = ATTEMPTS,
        worker: str = "",
        adopt: Mapping[str, int] | None = None,
    ) -> None:
        self._pipeline, self._send, self._attempts = pipeline, send, attempts
        self._stopping = threading.Event()
        self._was_at_end = False
        rows = adopt or {}
        self._stores = [
            SinkWorker(pipeline, branch, worker, rows.get(branch.name))
            for branch in pipeline.branches
        ]
        self._readers = [SourceWorker(pipeline, name, self._has_begun) for name in pipeline.readers]
        self._works: list[Work] = [*self._readers, *self._stores]

    @property
    def progress(self) -> list[Progress]:
        return [work.progress for work in self._works]

    def run(self, look: Callable[[], None] = lambda: None) -> bool:
        """
        Run until all readers and stores have stopped; return True if none of them has failed.

        *look* is called every `LOOK_S` seconds. If the pipeline has readers, and all readers have
        finished, the run ends when the stores reach the end of the feed.
        """
        self._say("boot", stores=[each.progress.name for each in self._stores])
        threads = self._start()
        reported_s = time.monotonic()
        while alive := [thread for thread in threads if thread.is_alive()]:
            alive[0].join(LOOK_S)
            look()
            if time.monotonic() - reported_s >= METRICS_S:
                reported_s = time.monotonic()
                self._metrics()
                self._end_when_done()
        self._metrics()
        well = all(progress.state != "failed" for progress in self.progress)
        self._say("exit", ok=well)
        return well

    def stop(self) -> None:
        """
        Stop every reader and store after its current batch. A signal handler may call this method.
        """
        self._stopping.set()
        for store in self._stores:
            store.stop()

    def _start(self) -> list[threading.Thread]:
        rest = (self._stopping, self._say, self._attempts)
        threads = [
            threading.Thread(target=run, args=(work, *rest), daemon=True) for work in self._works
        ]
        for thread in threads:
            thread.start()
        return threads

    def _end_when_done(self) -> None:
        done = [each for each in self._readers if each.progress.state in ("done", "failed")]
        if self._readers and done == self._readers and self._is_at_end():
            self.stop()

    def _has_begun(self) -> bool:
        """
        Return True if the stores have received everything that the feed had at the start.

        After the first True, the result stays True. Otherwise, operations of one reader would delay
        the start of another reader.
        """
        self._was_at_end = self._was_at_end or self._is_at_end()
        return self._was_at_end

    def _is_at_end(self) -> bool:
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
        self._send({"ts": at_ms, "kind": kind, "name": self._pipeline.name, **fields})


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

"""Run the readers and stores of a pipeline until it is stopped, and record their progress."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tidings.client.errors import ClientError, FellOff, Lost, Refused, Unwritten
from tidings.client.feed_api import NamedConsumers, Objects
from tidings.client.poster import Poster
from tidings.client.retries import Backoff
from tidings.client.worker import Message as Delivered
from tidings.client.worker import Worker, is_entry
from tidings.core.limits import RETAINED_ALARM_BYTES, WAITING_ALARM_S
from tidings.pipelines.bodies import PatientStore, object_of
from tidings.pipelines.copies import CopyCount, CopyDiffers
from tidings.pipelines.documents import digest
from tidings.pipelines.feed import objects_of
from tidings.pipelines.ingest_source import Batch, Digests, append, owned, owner_tag
from tidings.pipelines.messages import READER, Away, Message, Verdict, WrongPipeline, message_of
from tidings.pipelines.ownership import NotOurs, OwnedStore
from tidings.pipelines.pipeline import UNKNOWN, Branch, Pipeline
from tidings.pipelines.refusals import verdict

ATTEMPTS = 3  # attempts to write a message; a failure with an unknown code may be temporary, too

WAITING = "waiting"  # the state while an error passes, or the store or source is away

Say = Callable[..., None]
EventSink = Callable[[dict[str, Any]], None]


@dataclass(slots=True)
class Progress:
    """The state and the counters of a reader or a store.

    *state* is starting, running, standing by, waiting, failing, failed, done or stopped. *records*
    is the number of operations that were read, and *written* the number that were written, which is
    lower if functions filter out operations. A waiting one waits for the reason *error*, since the
    time *since*. *retained_bytes* is the log that a source's server keeps for the reader, if known.
    """

    name: str
    state: str = "starting"
    records: int = 0
    written: int = 0
    batches: int = 0
    failures: int = 0
    error: str = ""
    since: str = ""
    since_s: float = 0
    retained_bytes: int | None = None
    alarms: set[str] = field(default_factory=set)

    @property
    def waiting_s(self) -> int:
        return int(time.monotonic() - self.since_s) if self.state == WAITING else 0

    @property
    def shown(self) -> str:
        """Return *error*, with the time since when it is waited."""
        return f"{self.error}, since {self.since}" if self.state == WAITING else self.error

    def wait(self, error: str, say: Say) -> None:
        """Begin to wait, or continue, for the reason *error*."""
        if self.state != WAITING:
            self.since, self.since_s = time.strftime("%Y-%m-%d %H:%M:%S%z"), time.monotonic()
        if (self.state, self.error) != (WAITING, error):
            say("waiting", path=self.name, error=error)
        self.state, self.error = WAITING, error

    def resume(self) -> None:
        self.state, self.error = "running", ""

    def count(self, records: int, written: int | None = None) -> None:
        """Count a batch of *records* operations, *written* were written; None means all."""
        self.resume()
        self.records += records
        self.written += records if written is None else written
        self.batches += 1


@dataclass(slots=True)
class Reconnect:
    """The connection to a store or a source. Each attempt opens it again."""

    was_open: bool = False

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Observe an attempt to open the connection, which is made within this context.

        Raises:
            Away: the connection cannot be opened, but was open before. If it was never open, or the
                error is final, the original error is raised, so that a wrong address or password
                counts as a failure.
        """
        try:
            yield
        except (FellOff, Refused, WrongPipeline):
            raise
        except Exception as error:
            if not self.was_open or verdict(error) is Verdict.ALL:
                raise
            raise Away(_text(error)) from error
        self.was_open = True


CHECK_S = 0.5  # the time between two checks of the positions of the stores
READS = "< "  # the prefix of the name of a reader in the list of stores and readers


class SourceWorker:
    """The work of one reader.

    *at_end* returns True as soon as the stores have everything that the feed had at the start. The
    source is read only then.
    """

    refused = ""

    def __init__(self, pipeline: Pipeline, name: str, at_end: Callable[[], bool], say: Say) -> None:
        self._source, self._reader, self._say = pipeline.source, pipeline.readers[name], say
        self._name, self._is_at_end = pipeline.reader(name), at_end
        self.progress = Progress(f"{READS}{name}")
        self._reconnect = Reconnect()
        self._is_appending = False

    @property
    def is_writing(self) -> bool:
        """Return True if the feed is receiving a batch; False while it does not answer."""
        return self._is_appending and self.progress.state != WAITING

    def interrupt(self) -> None:
        """End a query of the source that waits, for example for a lock."""
        interrupt: Callable[[], None] | None = getattr(self._reader, "interrupt", None)
        if interrupt is not None and not self._is_appending:
            interrupt()

    @property
    def measure(self) -> Callable[[], int | None] | None:
        """A function that returns the size of the log that the server keeps for this reader.

        None if the source has no such log.
        """
        retained = getattr(self._reader, "retained_bytes", None)
        return retained and partial(retained, self._name)

    def once(self, stopping: threading.Event) -> None:
        """Read the source until *stopping* is set, or until the source ends.

        Raises:
            Away: the source is not available, but was before. Such an attempt does not count as one
                of the attempts of `run`.
        """
        while not self._is_at_end():
            self.progress.state = "standing by"
            if stopping.wait(CHECK_S):
                return
        if self.progress.state != WAITING:
            self.progress.resume()
        with self._reconnect.attempt():
            with self._source.opened(Objects) as objects:
                reader = objects.one(READER, self._name)
            self._reader.open(self._name, dict(reader["data"]) if reader else {}, self._known)
        try:
            if self._append(stopping):
                self.progress.state = "done"
        except Lost as lost:
            raise Away(str(lost)) from lost
        finally:
            self._reader.close()

    def park(self) -> str:
        """Return "", because a source has no message to park."""
        return ""

    def close(self) -> None:
        return

    def _append(self, stopping: threading.Event) -> bool:
        """Append the batches of the source; return True if the source was read to its end."""
        poster_of = partial(Poster, wait=stopping.wait, on_retry=self._on_retry)
        with self._source.opened(poster_of) as poster:
            # With each iteration, the reader of a queue acknowledges the previous batch.
            for batch in self._reader.read():
                if self.progress.state == WAITING:
                    self.progress.resume()
                if stopping.is_set():
                    return False
                if batch.operations or batch.state:
                    self._append_batch(poster, batch)
        return True

    def _append_batch(self, poster: Poster, batch: Batch) -> None:
        self._is_appending = True
        try:
            refit = getattr(self._reader, "refit", None)
            append(poster, self._name, self._with_owner(batch), refit)
        finally:
            self._is_appending = False
        self.progress.count(len(batch.operations))

    def _on_retry(self, lost: Lost, delay_s: float) -> None:
        self.progress.wait(str(lost), self._say)

    def _with_owner(self, batch: Batch) -> Batch:
        if not getattr(self._reader, "is_copy", False):
            return batch
        tag = owner_tag(self._name)
        return Batch([owned(each, tag) for each in batch.operations], batch.state)

    def _known(self, kind: str) -> Digests:
        """Return the objects of the type *kind* in the feed, with a digest if they are ours."""
        tag = owner_tag(self._name)
        return {
            str(each["id"]): digest(each.get("data")) if tag in each.get("tags", ()) else None
            for each in objects_of(self._source, kind)
        }


class SinkWorker:
    """The work of one store, with the same methods as `SourceWorker`.

    *adopt* is the number of rows that a target of another owner must have to be taken over.
    """

    def __init__(
        self, pipeline: Pipeline, branch: Branch, worker: str, say: Say, adopt: int | None = None
    ) -> None:
        self._pipeline, self._source, self._branch = pipeline, pipeline.source, branch
        self._say, self._adopt = say, adopt
        self.consumer = pipeline.consumer(branch)
        self._worker_name = f"{worker}.{branch.name}" if worker else ""
        self.progress = Progress(branch.name)
        self._worker: Worker | None = None
        self._reconnect = Reconnect()
        self._refused = ""  # event id of the rejected message; "" if it is from a copy
        self._copy = CopyCount()
        self.refused = ""  # the rejected object, as TYPE/ID
        self._awaits_end = True  # until the store is at the end of the feed for the first time

    @property
    def is_writing(self) -> bool:
        """Return True if the worker has the lease and does not wait; it ends after its batch."""
        return self._worker is not None and self.progress.state == "running"

    def stop(self) -> None:
        self._awaits_end = False
        worker = self._worker
        if worker is not None:
            worker.stop()

    def once(self, stopping: threading.Event) -> None:
        """Run the worker until it ends."""
        self._open()
        try:
            with self._make_worker() as worker:
                self._worker = worker
                if not stopping.is_set():
                    self.progress.resume()
                    worker.run(self._write)
        finally:
            self._worker = None

    def _open(self) -> None:
        with self._reconnect.attempt():
            sink = self._branch.sink
            if isinstance(sink, OwnedStore):
                sink.assign(self._pipeline.owner(self._branch, self._adopt))
            if isinstance(sink, PatientStore):
                sink.wait = self._pause  # type: ignore[method-assign]
            # A consumer is registered only after its store has accepted the target, because it
            # would be the evidence that an earlier release has filled the target.
            sink.open(self.consumer)
            self._adopt = None
            self._register()

    def park(self) -> str:
        """Park the message that failed, and return its id.

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
            on_idle=self._count,
        )

    def _register(self) -> None:
        """Register the consumer if it is missing.

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
        self.progress.resume()
        self._refused = self.refused = ""
        messages = [message_of(each) for each in batch]
        named = [object_of(each) for each in messages]  # functions may change the messages
        assert self._worker is not None
        fence = self._worker.fence
        self._copy.hold(fence)
        try:
            written = self._branch.write(messages, fence, self._copy.add, self._put)
        except Unwritten as error:
            refused, self.refused = batch[error.index].id, named[error.index]
            self._refused = refused if is_entry(refused) else ""
            raise
        finally:
            self._report_count()
        # A `reset` does not count as progress, because each attempt may start a copy again.
        self.progress.count(sum(not each.is_command for each in messages), written)

    def _report_count(self) -> None:
        sink, worker = self._branch.sink, self._worker
        if isinstance(sink, OwnedStore) and worker is not None:
            worker.written = max(worker.written, sink.written)

    def _count(self) -> None:
        if isinstance(self._branch.sink, OwnedStore):
            self._branch.sink.count_batches()
        self._report_count()
        if self._awaits_end and self.progress.state == "running":
            with suppress(ClientError), self._source.opened(NamedConsumers) as api:
                if _is_at_end(_position(api, self.consumer)):
                    self._awaits_end, progress = False, self.progress
                    self._say("caught_up", path=progress.name, records=progress.records)

    def _check_copy(self) -> None:
        assert self._worker is not None
        self._copy.hold(self._worker.fence)
        sink = self._branch.sink
        if isinstance(sink, OwnedStore):
            self._copy.check(str(sink), self.consumer, sink.count)

    def _put(self, messages: list[Message], fence: int) -> None:
        """Write *messages*; while the store refuses them for a reason that passes, repeat this.

        The lease is kept in the meantime. The store is opened again before each attempt, because
        another server may have its address now, and if another worker has written since `open`.
        """
        sink, backoff, worker = self._branch.sink, Backoff(), self._worker
        assert worker is not None
        is_open = not isinstance(sink, OwnedStore) or sink.written >= worker.written
        while True:
            try:
                if not is_open:
                    self._open()
                sink.write(messages, fence)
                return
            except Exception as error:
                if verdict(error) is not Verdict.PASSES:
                    raise
                self.progress.wait(_text(error), self._say)
            with suppress(Exception):
                sink.close()
            is_open = False
            self._pause(backoff.next_s())

    def _pause(self, delay_s: float, reason: str = "") -> None:
        assert self._worker is not None
        if reason:
            self.progress.wait(reason, self._say)
        self._worker.pause(delay_s)

    def _on_held(self, reason: str) -> None:
        self.progress.state, self.progress.error = "standing by", reason


Work = SourceWorker | SinkWorker


def run(work: Work, stopping: threading.Event, say: Say, attempts: int) -> None:
    """Repeat *work* until it is stopped or done, or fails *attempts* times without progress."""
    progress, backoff, tried = work.progress, Backoff(), 0
    try:
        while not stopping.is_set():
            before = progress.records
            passes = _once(work, stopping, say)
            if stopping.is_set() or progress.state in ("failed", "done"):
                break
            if progress.records > before:
                tried, backoff = 0, Backoff()
            tried += not passes
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
    """Return True if *work* should continue although its last attempt failed.

    It should continue if the message was parked, or if the message could not be parked because the
    feed was not available.
    """
    try:
        parked = work.park()
    except Lost:
        return True
    if parked:
        named = {"object": work.refused, "error": work.progress.error}
        say("parked", path=work.progress.name, id=parked, **named)
    return bool(parked)


def _once(work: Work, stopping: threading.Event, say: Say) -> bool:
    """Run *work* once, and report an error. Return True if the error passes (`refusals`)."""
    progress = work.progress
    try:
        work.once(stopping)
    except Exception as error:  # noqa: BLE001 a store or a source may raise anything
        means = verdict(error)
        if means is Verdict.PASSES:
            if not stopping.is_set():
                progress.wait(_text(error), say)
            with suppress(Exception):
                work.close()
            return True
        progress.failures += 1
        # After these errors, the feed or the store would reject the same request again.
        is_final = isinstance(error, (FellOff, Refused, NotOurs, CopyDiffers))
        progress.state = "failed" if is_final or means is Verdict.ALL else "failing"
        progress.error = _text(error)
        named = {"object": work.refused} if work.refused else {}
        say("error", path=progress.name, error=progress.error, **named)
    return False


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__


LOOK_S = 0.2  # the time between two updates of the progress in a terminal
COUNTS = ("records", "written", "batches", "failures", "waiting_s")
METRICS_S = 5.0  # the time between two events `metrics`
# After `stop`, parts that do not write end within this time, so that Ctrl-C has an effect at once.
GRACE_S = 0.9
MEASURE_S = 30.0  # the time between two requests for the retained log, each with a connection
_STUCK = (WAITING, "failing")


class Runner:
    """One run of a pipeline.

    *send* is called with each event: `boot`, `caught_up`, `metrics`, `waiting`, `alarm`, `error`,
    `parked` and `exit`. *adopt* has the rows, by store, that a target of another owner must have to
    be taken over. If *fail_fast*, the run ends as soon as a reader or a store has failed.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        send: EventSink,
        *,
        attempts: int = ATTEMPTS,
        worker: str = "",
        adopt: Mapping[str, int] | None = None,
        fail_fast: bool = False,
    ) -> None:
        self._pipeline, self._send, self._attempts = pipeline, send, attempts
        self._is_fail_fast, self._stopping = fail_fast, threading.Event()
        self._was_at_end = False
        rows = adopt or {}
        self._stores = [
            SinkWorker(pipeline, branch, worker, self._say, rows.get(branch.name))
            for branch in pipeline.branches
        ]
        self._readers = [
            SourceWorker(pipeline, name, self._has_begun, self._say) for name in pipeline.readers
        ]
        self._works: list[Work] = [*self._readers, *self._stores]

    @property
    def progress(self) -> list[Progress]:
        return [work.progress for work in self._works]

    def run(self, look: Callable[[], None] = lambda: None) -> bool:
        """Run until all readers and stores have stopped; return True if none of them has failed.

        *look* is called every `LOOK_S` seconds. If the pipeline has readers, and all readers have
        finished, the run ends when the stores reach the end of the feed. After `stop`, the run
        waits for parts that write, and for other parts until `GRACE_S` is over.
        """
        self._say("boot", stores=[each.progress.name for each in self._stores])
        threads = self._start()
        reported_s, end_s = time.monotonic(), 0.0
        while alive := [each for each in threads if each[1].is_alive()]:
            alive[0][1].join(LOOK_S)
            look()
            if self._is_fail_fast and any(each.state == "failed" for each in self.progress):
                self.stop()
            if self._stopping.is_set():
                end_s = end_s or time.monotonic() + GRACE_S
                for reader in self._readers:
                    with suppress(Exception):
                        reader.interrupt()
                if time.monotonic() > end_s and not any(work.is_writing for work, _ in alive):
                    break
            elif time.monotonic() - reported_s >= METRICS_S:
                reported_s = time.monotonic()
                self._metrics()
                done = [each for each in self._readers if each.progress.state in ("done", "failed")]
                if self._readers and done == self._readers and self._is_at_end():
                    self.stop()
        for each in self.progress:
            each.state = each.state if each.state in ("failed", "done") else "stopped"
        self._metrics()
        well = all(progress.state != "failed" for progress in self.progress)
        self._say("exit", ok=well)
        return well

    def stop(self) -> None:
        """Stop every reader and store after its current batch. A signal handler may call it."""
        self._stopping.set()
        for store in self._stores:
            store.stop()

    def _start(self) -> list[tuple[Work, threading.Thread]]:
        rest = (self._stopping, self._say, self._attempts)
        threads = [
            (work, threading.Thread(target=run, args=(work, *rest), daemon=True))
            for work in self._works
        ]
        for _, thread in threads:
            thread.start()
        for reader in self._readers:
            if measure := reader.measure:
                given = reader.progress, measure
                threading.Thread(target=self._measure, args=given, daemon=True).start()
        return threads

    def _measure(self, progress: Progress, measure: Callable[[], int | None]) -> None:
        while not self._stopping.is_set():
            with suppress(Exception):  # the reader itself reports that its source is away
                progress.retained_bytes = measure()
            self._stopping.wait(MEASURE_S)

    def _has_begun(self) -> bool:
        """Return True if the stores have received everything that the feed had at the start.

        After the first True, the result stays True. Otherwise, operations of one reader would delay
        the start of another reader.
        """
        self._was_at_end = self._was_at_end or self._is_at_end()
        return self._was_at_end

    def _is_at_end(self) -> bool:
        """Return True if every store that has not failed is at the end of the feed."""
        with self._pipeline.source.opened(NamedConsumers) as api:
            return all(self._is_at_end_or_waits(api, store) for store in self._stores)

    def _is_at_end_or_waits(self, api: NamedConsumers, store: SinkWorker) -> bool:
        """Return True if *store* is at the end of the feed, or if readers need not wait for it.

        Readers do not wait for a store that has failed or waits, unless it starts at the end of
        the feed and has no position yet: it would miss their messages.
        """
        if store.progress.state == "failed":
            return True
        position = _position(api, store.consumer)
        if store.progress.state in _STUCK and not self._was_at_end:
            return position is not None or self._pipeline.source.start != "now"
        return _is_at_end(position)

    def _metrics(self) -> None:
        for each in self.progress:
            counts = {name: getattr(each, name) for name in COUNTS}
            if each.retained_bytes is not None:
                counts["retained_bytes"] = each.retained_bytes
            reason = {"error": each.error, "since": each.since} if each.state == WAITING else {}
            self._say("metrics", path=each.name, state=each.state, **counts, **reason)
            self._check_alarms(each)

    def _check_alarms(self, progress: Progress) -> None:
        """Send an event `alarm` when a limit is exceeded, once until it is no longer exceeded."""
        retained_bytes = progress.retained_bytes or 0
        log = f"the server of the source retains {retained_bytes:,} bytes of its log for the slot"
        for name, is_due, text in (
            ("waiting", progress.waiting_s >= WAITING_ALARM_S, progress.shown),
            ("retained_bytes", retained_bytes >= RETAINED_ALARM_BYTES, log),
        ):
            if is_due and name not in progress.alarms:
                self._say("alarm", path=progress.name, alarm=name, error=text)
            (progress.alarms.add if is_due else progress.alarms.discard)(name)

    def _say(self, kind: str, **fields: Any) -> None:
        at_ms = time.time_ns() // 1_000_000
        self._send({"ts": at_ms, "kind": kind, "name": self._pipeline.name, **fields})


def _position(api: NamedConsumers, consumer: str) -> dict[str, Any] | None:
    """Return the position of *consumer*; None if it is not registered, or the feed is away."""
    try:
        return api.show(consumer)
    except Lost:
        return None
    except Refused as refused:
        if refused.code != UNKNOWN:
            raise
        return None


def _is_at_end(position: dict[str, Any] | None) -> bool:
    return position is not None and position["lag_pages"] == 0 and not position["copying"]

"""Report the runs of a job as OpenLineage events.

A separate thread sends the events, so that a failing receiver does not stop the work. OpenLineage's
own client creates and sends them. The thread imports this client, because the import takes some
tenths of a second.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.util import find_spec
from queue import SimpleQueue
from typing import TYPE_CHECKING
from uuid import UUID

import click

from tidings.core.model import timestamps
from tidings.core.version import VERSION, how_to_install
from tidings.lineage.datasets import Dataset

if TYPE_CHECKING:
    from openlineage.client.event_v2 import InputDataset, OutputDataset, RunEvent
    from openlineage.client.event_v2 import Job as LineageJob
    from openlineage.client.facet_v2 import (
        DatasetFacet,
        InputDatasetFacet,
        OutputDatasetFacet,
        RunFacet,
    )


class State(StrEnum):
    """The states of a run in OpenLineage."""

    START = "START"
    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    ABORT = "ABORT"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class Job:
    """A job, which runs repeatedly. *kind* is SYNC, TABLES or PIPELINE.

    If *streams*, a run has no planned end.
    """

    name: str
    kind: str
    streams: bool = False


@dataclass(frozen=True, slots=True)
class Counted:
    """A dataset with its number of *rows*, which is None if they were not counted."""

    dataset: Dataset
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the run with the UUID *run*."""

    state: State
    at_ms: int
    run: str
    job: Job
    inputs: tuple[Counted, ...]
    outputs: tuple[Counted, ...]
    error: str = ""


# The time between two events RUNNING. It can be long, because catalogs show states, not progress.
RUNNING_S = 60
ERROR_CHARS_MAX = 2_000  # limit of an error's text, which may contain a whole query plan of Spark


@dataclass
class Run:
    """One run. Its methods return at once. *secrets* are removed from the texts of errors."""

    job: Job
    send: Send
    reads: Sequence[Dataset] = ()
    writes: Sequence[Dataset] = ()
    secrets: Sequence[str] = field(default=(), repr=False)
    ended: bool = False

    def __post_init__(self) -> None:
        self._id = str(UUID(bytes=os.urandom(16), version=4))
        self._inputs = {_key(each): Counted(each) for each in self.reads}
        self._outputs = {_key(each): Counted(each) for each in self.writes}
        self._sent_s = 0.0

    def start(self) -> None:
        self._report(State.START)

    def read(self, dataset: Dataset, rows: int) -> None:
        """Set the number of *rows* read from *dataset* since the start of the run."""
        self._inputs[_key(dataset)] = Counted(dataset, rows)

    def wrote(self, dataset: Dataset, rows: int) -> None:
        """Set the number of *rows* written to *dataset* since the start of the run."""
        self._outputs[_key(dataset)] = Counted(dataset, rows)

    @property
    def is_due(self) -> bool:
        """Return True if `running` would send an event now."""
        return time.monotonic() - self._sent_s >= RUNNING_S

    def running(self) -> None:
        """Report that the run continues, unless an event was sent in the last `RUNNING_S`."""
        if self.is_due:
            self._report(State.RUNNING)

    def end(self, state: State, error: str = "") -> None:
        """Report the end of the run; later calls do nothing."""
        if not self.ended:
            self.ended = True
            self._report(state, error)

    def _report(self, state: State, error: str = "") -> None:
        self._sent_s = time.monotonic()
        event = Event(
            state=state,
            at_ms=time.time_ns() // 1_000_000,
            run=self._id,
            job=self.job,
            inputs=tuple(self._inputs.values()),
            outputs=tuple(self._outputs.values()),
            error=self._public(error),
        )
        self.send(event)

    def _public(self, error: str) -> str:
        for secret in filter(None, self.secrets):
            error = error.replace(secret, HIDDEN)
        return without_secrets(error)[:ERROR_CHARS_MAX]


@contextmanager
def report_run(
    job: Job,
    reads: Sequence[Dataset] = (),
    writes: Sequence[Dataset] = (),
    secrets: Sequence[str] = (),
) -> Iterator[Run]:
    """Report a run of *job*, from the start to the end of this context.

    An exception ends the run as failed, and Ctrl-C ends it as aborted.
    """
    with sending() as send:
        run = Run(job, send, reads, writes, secrets)
        run.start()
        try:
            yield run
        except KeyboardInterrupt:
            run.end(State.ABORT)
            raise
        except BaseException as error:
            run.end(State.FAIL, str(error) or type(error).__name__)
            raise
        run.end(State.COMPLETE)


def _key(dataset: Dataset) -> tuple[str, str]:
    return dataset.namespace, dataset.name


# The longest wait at the end for queued events. A receiver normally takes milliseconds per event.
END_S = 5.0
REASON_CHARS_MAX = 300  # limit of a logged reason; some libraries quote a page of HTML in it
_RETRIES = "urllib3.connectionpool"  # the logger that warns of each failed attempt of the client
HIDDEN = "***"
_USER = re.compile(r"(?<=://)[^/@\s]+@")
_SECRET = re.compile(
    r"(?i)\b((?:password|passwd|pwd|secret|token|api[-_]?key)[\"']?\s*[=:]\s*|(?:basic|bearer)\s+)"
    r"[^\s,;&]+"
)
_log = logging.getLogger("tidings.lineage")

Send = Callable[[Event], None]


@contextmanager
def sending() -> Iterator[Send]:
    """Yield a function that queues an event for sending and returns at once.

    At the end of the context, wait up to `END_S` until all events are sent.
    """
    sender = _Sender()
    sender.start()
    try:
        yield sender.send
    finally:
        sender.close()


class _Sender(threading.Thread):
    def __init__(self) -> None:
        super().__init__(name="lineage", daemon=True)  # a hanging thread must not block the exit
        self._events: SimpleQueue[Event | None] = SimpleQueue()
        self._failed = False

    def send(self, event: Event) -> None:
        """Queue *event*. Drop it if its state is RUNNING and other events are still queued."""
        if event.state is not State.RUNNING or self._events.empty():
            self._events.put(event)

    def close(self) -> None:
        self._events.put(None)
        self.join(END_S)
        if self.is_alive():
            self._fail(f"not all events were sent within {END_S:.0f} s")

    def run(self) -> None:
        retries = logging.getLogger(_RETRIES)
        retries.addFilter(self._is_of_others)
        try:
            self._emit_all()
        finally:
            retries.removeFilter(self._is_of_others)

    def _emit_all(self) -> None:
        emitter: Emitter | None = None
        while (event := self._events.get()) is not None:
            try:
                emitter = emitter or Emitter()
                emitter.emit(event)
            except Exception as error:  # noqa: BLE001 the client raises any class
                self._fail(f"{type(error).__name__}: {error}")
        if emitter is not None:
            emitter.close(END_S)

    def _is_of_others(self, record: logging.LogRecord) -> bool:
        return record.thread != self.ident

    def _fail(self, reason: str) -> None:
        """Log only the first failure, because later events usually fail for the same reason."""
        if not self._failed:
            self._failed = True
            said = without_secrets(" ".join(reason.split()))[:REASON_CHARS_MAX]
            _log.warning("lineage events were not sent, the work continues: %s", said)


def without_secrets(text: str) -> str:
    """Return *text* without user names in URLs, and without anything like a password."""
    return _SECRET.sub(rf"\1{HIDDEN}", _USER.sub("", text))


PRODUCER = f"urn:tidings:{VERSION}"
NAMESPACE = "OPENLINEAGE_NAMESPACE"  # names the namespace of jobs; OpenLineage's own variable
DEFAULT_NAMESPACE = "default"


class Emitter:
    """OpenLineage's client, configured by its own environment variables and files.

    Raises:
        Exception: any error of the client, if its configuration is wrong.
    """

    def __init__(self) -> None:
        from openlineage.client import OpenLineageClient, set_producer

        set_producer(PRODUCER)
        where = os.environ.get(NAMESPACE, "")  # noqa: TID251 a variable of OpenLineage
        self._namespace = where or DEFAULT_NAMESPACE
        self._client = OpenLineageClient()

    def emit(self, event: Event) -> None:
        """Send *event*.

        Raises:
            Exception: any error of the transport.
        """
        self._client.emit(to_run_event(event, self._namespace))

    def close(self, timeout_s: float) -> None:
        self._client.close(timeout_s)


def to_run_event(event: Event, namespace: str) -> RunEvent:
    """Return *event* of a job in *namespace* as an OpenLineage event."""
    from openlineage.client.event_v2 import Run as LineageRun
    from openlineage.client.event_v2 import RunEvent, RunState
    from openlineage.client.facet_v2 import error_message_run

    facets: dict[str, RunFacet] = {}
    if event.error:
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(event.error, "Python")
    return RunEvent(
        eventType=RunState(event.state),
        eventTime=timestamps.from_ms(event.at_ms),
        run=LineageRun(event.run, facets),
        job=_job(event.job, namespace),
        inputs=[_input(each) for each in event.inputs],
        outputs=[_output(each) for each in event.outputs],
    )


def _job(job: Job, namespace: str) -> LineageJob:
    from openlineage.client.event_v2 import Job as LineageJob
    from openlineage.client.facet_v2 import job_type_job

    processing = "STREAMING" if job.streams else "BATCH"
    kind = job_type_job.JobTypeJobFacet(processing, "TIDINGS", job.kind)
    return LineageJob(namespace, job.name, {"jobType": kind})


def _input(counted: Counted) -> InputDataset:
    from openlineage.client.event_v2 import InputDataset
    from openlineage.client.facet_v2 import input_statistics_input_dataset

    dataset, rows = counted.dataset, counted.rows
    counts: dict[str, InputDatasetFacet] = {}
    if rows is not None:
        statistics = input_statistics_input_dataset.InputStatisticsInputDatasetFacet
        counts["inputStatistics"] = statistics(rowCount=rows)
    return InputDataset(
        dataset.namespace, dataset.name, inputFacets=counts, facets=_facets(dataset)
    )


def _output(counted: Counted) -> OutputDataset:
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import output_statistics_output_dataset

    dataset, rows = counted.dataset, counted.rows
    counts: dict[str, OutputDatasetFacet] = {}
    if rows is not None:
        statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet
        counts["outputStatistics"] = statistics(rowCount=rows)
    return OutputDataset(
        dataset.namespace, dataset.name, outputFacets=counts, facets=_facets(dataset)
    )


def _facets(dataset: Dataset) -> dict[str, DatasetFacet]:
    from openlineage.client.facet_v2 import schema_dataset, symlinks_dataset

    facets: dict[str, DatasetFacet] = {}
    if dataset.columns:
        fields = [
            schema_dataset.SchemaDatasetFacetFields(name, kind) for name, kind in dataset.columns
        ]
        facets["schema"] = schema_dataset.SchemaDatasetFacet(fields)
    if dataset.table:
        known = symlinks_dataset.Identifier(*dataset.table, "TABLE")
        facets["symlinks"] = symlinks_dataset.SymlinksDatasetFacet([known])
    return facets


def _check(ctx: click.Context, param: click.Parameter, wanted: bool) -> bool:
    if wanted and find_spec("openlineage") is None:
        raise click.UsageError(f"--lineage: {how_to_install('lineage')}")
    return wanted


lineage_option = click.option(
    "--lineage",
    is_flag=True,
    callback=_check,
    help="Send OpenLineage events about the read and written data to OPENLINEAGE_URL.",
)

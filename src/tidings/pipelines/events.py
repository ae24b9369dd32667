"""Report the work of a pipeline as text, JSON, metrics, events and lineage."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import click

from tidings.lineage import datasets
from tidings.lineage.datasets import Dataset
from tidings.lineage.runs import Job, Run, Send, State, sending
from tidings.pipelines.pipeline import Pipeline
from tidings.pipelines.running import READS, EventSink

ANSWER_S = 5.0  # time limit of a post; short, because an unavailable receiver delays the pipeline
NAMESPACE = "Tidings/Pipelines"  # the namespace of the metrics in CloudWatch
_ACCEPTED = (200, 201)
# The metrics, with their units. Only readers of PostgreSQL have `retained_bytes`.
_UNITS = {"records": "Count", "batches": "Count", "failures": "Count"}
_UNITS |= {"waiting_s": "Seconds", "retained_bytes": "Bytes"}

_log = logging.getLogger("tidings.pipelines")


@contextmanager
def emitter(
    *, as_json: bool, url: str | None, bus: str | None, emf: bool, lineage: Pipeline | None = None
) -> Iterator[EventSink]:
    """Yield a function that emits events.

    The function prints events as lines of JSON if *as_json* or *emf*, and logs them otherwise. If
    *emf*, metrics are printed in CloudWatch's embedded metric format. If *url* or *bus* is given,
    events are also posted to this address or put on this event bus. If *lineage* is given, events
    are also reported as lineage of this pipeline.
    """
    with ExitStack() as stack:
        senders: list[EventSink] = [_print if as_json or emf else _log_event]
        if url is not None:
            senders.append(stack.enter_context(_posting(url)))
        if bus is not None:
            from tidings.pipelines.aws import EventBus

            senders.append(EventBus(bus).send)
        if lineage is not None:
            senders.append(stack.enter_context(report_lineage(lineage)))

        def send(event: dict[str, Any]) -> None:
            for each in senders:
                each(to_embedded_metrics(event) if emf and each is _print else event)

        yield send


def to_embedded_metrics(event: dict[str, Any]) -> dict[str, Any]:
    """Add CloudWatch's embedded metric format to an event `metrics`; leave others unchanged."""
    if event["kind"] != "metrics":
        return event
    made = {
        "Namespace": NAMESPACE,
        "Dimensions": [["name", "path"]],
        "Metrics": [{"Name": name, "Unit": _UNITS[name]} for name in _UNITS if name in event],
    }
    return {**event, "_aws": {"Timestamp": event["ts"], "CloudWatchMetrics": [made]}}


@contextmanager
def _posting(url: str) -> Iterator[EventSink]:
    import httpx

    with httpx.Client(timeout=ANSWER_S) as client:

        def send(event: dict[str, Any]) -> None:
            try:
                answer = client.post(url, json=event)
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                _log.warning("an event was not accepted: %s", error)
                return
            if answer.status_code not in _ACCEPTED:
                _log.warning("an event was not accepted: HTTP status %d", answer.status_code)

        yield send


def _print(event: dict[str, Any]) -> None:
    click.echo(json.dumps(event, separators=(",", ":")))


def _log_event(event: dict[str, Any]) -> None:
    if event["kind"] == "caught_up":
        # Rich replaces sys.stdout to print above a table; click would write past it.
        click.echo(f"{event['path']}: up to date", file=sys.stdout)
    level = logging.ERROR if event["kind"] in ("alarm", "error", "parked") else logging.INFO
    _log.log(level, "%s", json.dumps(event, separators=(",", ":")))


_KIND = "PIPELINE"
_ENDS = {"failed": State.FAIL, "done": State.COMPLETE, "stopped": State.COMPLETE}


@contextmanager
def report_lineage(pipeline: Pipeline) -> Iterator[EventSink]:
    """Yield a function that reports the events of a `Runner` as lineage."""
    with sending() as send:
        report = _LineageReport(pipeline, send)
        try:
            yield report.send
        finally:
            for run in report.runs.values():
                run.end(State.ABORT)


class _LineageReport:
    def __init__(self, pipeline: Pipeline, send: Send) -> None:
        self._errors: dict[str, str] = {}
        source = pipeline.source
        feed = [datasets.of_feed(source.url, source.feed)]

        def run(name: str, reads: Sequence[Dataset], writes: Sequence[Dataset]) -> Run:
            job = Job(f"tidings.pipeline.{name}", _KIND, streams=True)
            return Run(job, send, reads, writes, [source.password])

        self.runs = {
            f"{READS}{name}": run(pipeline.reader(name), _datasets_of(reader), feed)
            for name, reader in pipeline.readers.items()
        } | {
            branch.name: run(pipeline.consumer(branch), feed, _datasets_of(branch.sink))
            for branch in pipeline.branches
        }

    def send(self, event: dict[str, Any]) -> None:
        if event["kind"] == "boot":
            for run in self.runs.values():
                run.start()
        elif event["kind"] == "error":
            self._errors[event["path"]] = event["error"]
        elif event["kind"] == "metrics":
            self._went_on(event["path"], event["state"], event["written"])

    def _went_on(self, path: str, state: str, written: int) -> None:
        run = self.runs[path]
        if run.ended:
            return
        if len(run.writes) == 1:
            run.wrote(run.writes[0], written)
        if state in _ENDS:
            error = self._errors.get(path, "") if _ENDS[state] is State.FAIL else ""
            run.end(_ENDS[state], error)
        else:
            run.running()


def _datasets_of(end: object) -> Sequence[Dataset]:
    """Return the datasets of a store or reader, or () if it does not define any."""
    datasets: Callable[[], Sequence[Dataset]] | None = getattr(end, "datasets", None)
    if datasets is None:
        return ()
    try:
        return datasets()
    except Exception:  # noqa: BLE001 if the address is invalid, the store itself reports it
        return ()

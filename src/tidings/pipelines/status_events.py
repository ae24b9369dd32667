"""Send the events of a running pipeline to their destinations."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import click

from tidings.pipelines.retry_loop import Tell

if TYPE_CHECKING:
    from tidings.pipelines.pipeline import Pipeline

ANSWER_S = 5.0  # limit per event: a receiver that is away must not delay the pipeline
NAMESPACE = "Tidings/Pipelines"  # of the CloudWatch metrics
_TAKEN = (200, 201)
_COUNTS = ("records", "batches", "failures")

_log = logging.getLogger("tidings.pipelines")


@contextmanager
def emitter(
    *,
    as_json: bool,
    url: str | None,
    bus: str | None,
    emf: bool,
    lineage: Pipeline | None = None,
) -> Iterator[Tell]:
    """
    Yield a function that emits events.

    It prints them as lines of JSON or logs them, and also posts them to *url* and puts them on
    *bus* if given. With *lineage* they are also reported as lineage of that pipeline. With *emf* a
    line of metrics contains CloudWatch's embedded metric format.
    """
    with ExitStack() as stack:
        tellers: list[Tell] = [_printed if as_json or emf else _logged]
        if url is not None:
            tellers.append(stack.enter_context(_posting(url)))
        if bus is not None:
            from tidings.pipelines.sinks.aws import EventBus

            tellers.append(EventBus(bus).tell)
        if lineage is not None:
            from tidings.pipelines.lineage import telling

            tellers.append(stack.enter_context(telling(lineage)))

        def tell(event: dict[str, Any]) -> None:
            for each in tellers:
                each(embedded(event) if emf and each is _printed else event)

        yield tell


def embedded(event: dict[str, Any]) -> dict[str, Any]:
    """Add CloudWatch's embedded metric format to an event of metrics; return others unchanged."""
    if event["kind"] != "metrics":
        return event
    made = {
        "Namespace": NAMESPACE,
        "Dimensions": [["name", "path"]],
        "Metrics": [{"Name": name, "Unit": "Count"} for name in _COUNTS],
    }
    return {**event, "_aws": {"Timestamp": event["ts"], "CloudWatchMetrics": [made]}}


@contextmanager
def _posting(url: str) -> Iterator[Tell]:
    import httpx

    with httpx.Client(timeout=ANSWER_S) as client:

        def tell(event: dict[str, Any]) -> None:
            try:
                answer = client.post(url, json=event)
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                _log.warning("an event was not taken: %s", error)
                return
            if answer.status_code not in _TAKEN:
                _log.warning("an event was answered with %d", answer.status_code)

        yield tell


def _printed(event: dict[str, Any]) -> None:
    click.echo(json.dumps(event, separators=(",", ":")))


def _logged(event: dict[str, Any]) -> None:
    level = logging.ERROR if event["kind"] in ("error", "parked") else logging.INFO
    _log.log(level, "%s", json.dumps(event, separators=(",", ":")))

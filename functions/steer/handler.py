"""Run the steps of a sync's state machine that decide how the sync continues.

The event is `{"step": "check", "id": ..., "bucket": ..., ...}`. `id` is the id of the sync, and
`bucket` is the stage's bucket for syncs. `infra/parts/sync_states.py` defines the other fields of
each step, and how the state machine uses the answer to the step.
"""

from __future__ import annotations

from typing import Any

from tidings.aws import clients, s3
from tidings.aws.stage import stage
from tidings.aws.telemetry import edge
from tidings.core.sync import workflow

Event = dict[str, Any]
Answer = dict[str, Any]


@edge
def handle(event: Event, context: object) -> Answer:
    return _STEPS[event["step"]](event)


def _check(event: Event) -> Answer:
    """Check the request, and return the arguments of the job that plans the corrections."""
    settings = stage().settings
    tables = workflow.Tables(
        settings.log_table, settings.state_table, settings.control_table, event["region"]
    )
    request = workflow.read_request(event["request"], event["bucket"], stage().directory)
    if request is not None:
        stage().writable.check(request.feed)  # so that a read-only feed fails before the planning
    return workflow.validate_request(request, event["id"], event["bucket"], tables)


def _base(event: Event) -> Answer:
    """Return the checkpoint of the state. A later export has all pages up to the checkpoint."""
    return {"through": stage().checkpoint(event["feed"])}


def _add_export(event: Event) -> Answer:
    """Return the arguments of the job, completed with the location of the export."""
    return workflow.add_export(
        event["sync"], event["id"], event["bucket"], event["export"], event["through"]
    )


def _decide(event: Event) -> Answer:
    """Evaluate the plan's summary and decide the next step."""
    prefix = workflow.prefix(event["id"])
    summary = _document(event, prefix + workflow.SUMMARY)
    decision = workflow.decide_next_step(prefix, summary, dry_run=event["sync"]["dry_run"])
    if decision["next"] == workflow.ASK:
        decision["question"] = workflow.question(_who(event), event["sync"], decision)
    return decision


def _total(event: Event) -> Answer:
    """Return the decision without its first group, and with the results of this group added."""
    return workflow.total(event["judged"], event["results"])


def _report(event: Event) -> Answer:
    """Return the report of the sync, which is its notification and the execution's output."""
    key = workflow.prefix(event["id"]) + workflow.FAILURE
    failure = _document(event, key) if "error" in event["state"] else None
    return workflow.report(_who(event), event["state"], failure["failed"] if failure else None)


def _document(event: Event, key: str) -> Answer | None:
    return s3.read_document(clients.objects(), event["bucket"], key)


def _who(event: Event) -> workflow.Who:
    return workflow.Who(stage().settings.stage, event["id"])


_STEPS = {
    "check": _check,
    "base": _base,
    "exported": _add_export,
    "judge": _decide,
    "total": _total,
    "report": _report,
}

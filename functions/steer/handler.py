"""
The steps of a sync that decide: `{"step": "check", "id": ..., "bucket": ..., ...}`.

`id` is the sync's, `bucket` the stage's for syncs. `infra/parts/sync_states.py` says what each step
is told and what becomes of its answer.
"""

from __future__ import annotations

from typing import Any

from tidings.aws import app, relay_app
from tidings.aws.telemetry import edge
from tidings.core import sync_reports, syncing

Event = dict[str, Any]
Answer = dict[str, Any]


@edge
def handle(event: Event, context: object) -> Answer:
    return _STEPS[event["step"]](event)


def _check(event: Event) -> Answer:
    """The request becomes the job's arguments."""
    settings = app.settings()
    tables = syncing.Tables(
        settings.log_table, settings.state_table, settings.control_table, event["region"]
    )
    request = syncing.read_request(event["request"], event["bucket"], settings.feeds)
    if request is not None:
        relay_app.masters().check(request.feed)  # before anything is planned
    return syncing.checked(request, event["id"], event["bucket"], tables)


def _base(event: Event) -> Answer:
    """Before the state is exported: a page up to which the export will say everything."""
    return {"through": app.checkpoint(event["feed"])}


def _exported(event: Event) -> Answer:
    """The job is to read the export."""
    told = event["id"], event["bucket"], event["export"], event["through"]
    return syncing.exported(event["sync"], *told)


def _judge(event: Event) -> Answer:
    """What the plan says, and what follows."""
    prefix = syncing.prefix(event["id"])
    summary = app.documents().read(event["bucket"], prefix + syncing.SUMMARY)
    judged = syncing.judged(prefix, summary, dry_run=event["sync"]["dry_run"])
    if judged["next"] == syncing.ASK:
        judged["question"] = sync_reports.question(_who(event), event["sync"], judged)
    return judged


def _total(event: Event) -> Answer:
    """After a group of parts."""
    return syncing.total(event["judged"], event["results"])


def _report(event: Event) -> Answer:
    """What the notification says and the execution ends with."""
    key = syncing.prefix(event["id"]) + syncing.FAILURE
    said = app.documents().read(event["bucket"], key) if "error" in event["state"] else None
    return sync_reports.report(_who(event), event["state"], said["failed"] if said else None)


def _who(event: Event) -> sync_reports.Who:
    return sync_reports.Who(app.settings().stage, event["id"])


_STEPS = {
    "check": _check,
    "base": _base,
    "exported": _exported,
    "judge": _judge,
    "total": _total,
    "report": _report,
}

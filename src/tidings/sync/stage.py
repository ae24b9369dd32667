"""Run a sync on a stage: upload the dump, start its state machine, and follow its progress."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from tidings.aws.config import stages
from tidings.aws.config.stages import Syncs
from tidings.aws.effects import now_ms, sleep_ms
from tidings.core.model.timestamps import from_ms
from tidings.core.sync import workflow
from tidings.core.sync.dumps import Objection
from tidings.core.sync.workflow import REJECTED
from tidings.sync import files
from tidings.sync.apply import Applied
from tidings.sync.plan import SUMMARY, Stopped, Summary

WAITING = "Wait for an answer"  # the machine's state while a plan waits for approval
# The labels of the states that take time.
PHASES = {
    "Check": "checking the request",
    "Export": "exporting the state",
    "Plan": "comparing",
    WAITING: "waiting for an answer",
    "Apply": "applying",
    "Report": "reporting",
}
POLL_MS = 1_000  # a job takes minutes; ten requests are far below the limit of Step Functions
_EVENTS = 50  # of the history: more than a machine writes between two of these states
_RUNNING = "RUNNING"


class SyncFailed(Exception):
    """The sync on the stage failed; the message says why."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The state machine of *stage*; *states* is a client of Step Functions."""

    stage: str
    syncs: Syncs
    states: Any

    def folder(self, id: str) -> str:
        """Return the folder for the dump of the sync *id*."""
        return f"{files.S3}{self.syncs.bucket}/{workflow.UPLOADS}{id}/"

    def reads(self, dump: str) -> bool:
        """Return True if the stage's job may read *dump* at its address."""
        ours = f"{files.S3}{self.syncs.bucket}/"
        return dump.startswith((ours + workflow.DUMPS, ours + workflow.UPLOADS))

    def run(
        self, id: str, request: Mapping[str, Any], begin: Callable[[str], None]
    ) -> tuple[Summary, Applied | None]:
        """
        Start the sync *id* and follow it until it ends, or waits for approval.

        The sync does not depend on this process. *begin* is called with the name of each phase.

        Raises:
            Stopped: a guard objects.
            SyncFailed: the sync failed.
        """
        arn = self.states.start_execution(
            stateMachineArn=self.syncs.machine, name=id, input=json.dumps(request)
        )["executionArn"]
        shown = ""
        while True:
            execution = self.states.describe_execution(executionArn=arn)
            state = self._state(arn)
            if state != shown and state in PHASES:
                begin(PHASES[state])
                shown = state
            if execution["status"] != _RUNNING:
                return self._ended(id, execution)
            if state == WAITING:
                raise self._stopped(id, waits=True)
            sleep_ms(POLL_MS)

    def _state(self, arn: str) -> str:
        """Return the state in `PHASES` that was entered last."""
        history = self.states.get_execution_history(
            executionArn=arn, reverseOrder=True, maxResults=_EVENTS
        )
        newest_first = sorted(history["events"], key=lambda event: -event["id"])
        entered = (each.get("stateEnteredEventDetails", {}).get("name") for each in newest_first)
        return next((name for name in entered if name in PHASES), "")

    def _ended(self, id: str, execution: Mapping[str, Any]) -> tuple[Summary, Applied | None]:
        if execution["status"] != "SUCCEEDED":
            why = (
                execution.get("cause")
                or execution.get("error")
                or execution["status"].lower().replace("_", " ")
            )
            raise SyncFailed(f"the sync {id}: {why}")
        report = json.loads(execution["output"])
        if report["outcome"] in (workflow.STOPPED, REJECTED):
            raise self._stopped(id)
        counts = [report[each.name] for each in fields(Applied)]
        planned = report["outcome"] == workflow.PLANNED
        return _summary(self._stored_summary(id)), None if planned else Applied(*counts)

    def _stopped(self, id: str, *, waits: bool = False) -> Stopped:
        summary = self._stored_summary(id)
        sentence = summary["stopped"]
        if waits:
            sentence += f"; the plan waits: tidings sync approve {id} --stage {self.stage}"
        return Stopped(Objection(summary["stopped_by"], sentence, waits), _summary(summary))

    def _stored_summary(self, id: str) -> dict[str, Any]:
        """Return the summary that the job wrote."""
        text = files.read(f"{files.S3}{self.syncs.bucket}/{workflow.prefix(id)}{SUMMARY}")
        summary: dict[str, Any] = json.loads(text)
        return summary


def on_stage(stage: str) -> Machine:
    """
    Return the state machine of *stage*.

    Raises:
        NoStage: the stage does not exist, or is older than this command.
    """
    syncs = stages.syncs_of(stage, client("cloudformation"))
    return Machine(stage, syncs, client("stepfunctions"))


def client(service: Literal["cloudformation", "s3", "stepfunctions"]) -> Any:
    import boto3  # noqa: TID251 an operator's own credentials and profile, not a function's

    return boto3.client(service)


def new_id() -> str:
    """Return a unique id of a sync, which sorts by its time."""
    moment = from_ms(now_ms())[:19].replace("-", "").replace(":", "")
    return f"{moment}-{os.urandom(4).hex()}"


def _summary(content: Mapping[str, Any]) -> Summary:
    return Summary(**{each.name: content[each.name] for each in fields(Summary)})

"""Start a sync on a stage and follow its progress; run the comparison of such a sync as a job.

The stage's state machine runs the comparison as a job on EMR Serverless. The job reads a dump
and the state, and writes a plan:

    python -m tidings.sync.stage --feed main --dump s3://bucket/dumps/main/ --state scan \\
        --log-table L --state-table S --control-table C --plan s3://bucket/plans/ID/

With `--state s3://bucket/.../AWSDynamoDB/<export-id>/ --through N`, the job reads the state from an
export of the state's table. N is the checkpoint of the follower `state`, which must be read with
strong consistency before the time of the export (see the module `state`).

The job writes the parts of the plan (see the module `job`) to the folder --plan, and then
`summary.json`, with the counts of `job.Summary` and these fields:

    feed, dump        the values of --feed and --dump
    stopped           null, or the message of the guard that objects
    stopped_by        null, or the code of this guard: empty_dump, truncated_dump, too_many_deletes
    allowable         true if a guard objects, but the plan was written and may be approved
    parts             [{"name": "1-insert/part-...", "event": "insert", "bytes": 123}, ...]: the
                      parts in the folder --plan, in the order in which they must be applied, so
                      that all parts of an event precede those of the next event

The exit code is 0, even if a guard objects. It is 1 after a failure, and 2 for wrong arguments.
After a failure, its reason is in the last line of the output, and in `failure.json`, which is
written in place of the summary. A repeated run starts from the beginning. The job does not change
the feed.

The job needs permission to list and read the dump and the export, to list, read, write and delete
objects below --plan, and to `Query` the three tables.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from botocore.exceptions import BotoCoreError, ClientError  # noqa: TID251 caught at the edge
from pyspark.sql import SparkSession

from tidings.aws.config import stages
from tidings.aws.config.stages import Syncs
from tidings.aws.effects import now_ms, sleep_ms
from tidings.core.errors import InvalidFeed, TidingsError
from tidings.core.model.operations import EVENTS
from tidings.core.model.timestamps import from_ms
from tidings.core.sync import workflow
from tidings.core.sync.dumps import DELETE_SHARE_MAX, Objection
from tidings.core.sync.workflow import REJECTED
from tidings.sync import feed as sync_feed
from tidings.sync import files, spark_session
from tidings.sync.dump import BadDump, BadFile
from tidings.sync.feed import Applied
from tidings.sync.job import SUMMARY, Job, Stopped, Summary, SyncOptions, parse_types, subfolder
from tidings.sync.state import BadExport, Exported

WAITING = "Wait for an answer"  # the state of the machine while a plan waits for approval
# The machine's states that take time, with the names of their phases for users.
PHASES = {
    "Check": "checking the request",
    "Export": "exporting the state",
    "Plan": "comparing",
    WAITING: "waiting for an answer",
    "Apply": "applying",
    "Report": "reporting",
}
POLL_MS = 1_000  # short for a job of minutes; Step Functions allows many more requests
# The number of events that are read from the end of the history. The machine writes fewer events
# between two states of `PHASES`.
_EVENTS = 50
_RUNNING = "RUNNING"


class SyncFailed(Exception):
    """The sync on the stage failed. The message has the reason."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The state machine of *stage*; *states* is a client of Step Functions."""

    stage: str
    syncs: Syncs
    states: Any

    def folder(self, id: str) -> str:
        """Return the folder to which the dump of the sync *id* is uploaded."""
        return f"{files.S3}{self.syncs.bucket}/{workflow.UPLOADS}{id}/"

    def reads(self, dump: str) -> bool:
        """Return True if the job of the stage may read *dump*, so that no upload is needed."""
        ours = f"{files.S3}{self.syncs.bucket}/"
        return dump.startswith((ours + workflow.DUMPS, ours + workflow.UPLOADS))

    def run(
        self, id: str, request: Mapping[str, Any], begin: Callable[[str], None]
    ) -> tuple[Summary, Applied | None]:
        """Start the sync *id*, and wait until it ends, or until its plan waits for approval.

        The sync continues if this process ends. *begin* is called with the name of each phase.

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
                return self._result_of(id, execution)
            if state == WAITING:
                raise self._stop_error(id, waits=True)
            sleep_ms(POLL_MS)

    def _state(self, arn: str) -> str:
        """Return the state in `PHASES` that was entered last."""
        history = self.states.get_execution_history(
            executionArn=arn, reverseOrder=True, maxResults=_EVENTS
        )
        newest_first = sorted(history["events"], key=lambda event: -event["id"])
        entered = (each.get("stateEnteredEventDetails", {}).get("name") for each in newest_first)
        return next((name for name in entered if name in PHASES), "")

    def _result_of(self, id: str, execution: Mapping[str, Any]) -> tuple[Summary, Applied | None]:
        if execution["status"] != "SUCCEEDED":
            why = (
                execution.get("cause")
                or execution.get("error")
                or execution["status"].lower().replace("_", " ")
            )
            raise SyncFailed(f"the sync {id}: {why}")
        report = json.loads(execution["output"])
        if report["outcome"] in (workflow.STOPPED, REJECTED):
            raise self._stop_error(id)
        counts = [report[each.name] for each in fields(Applied)]
        planned = report["outcome"] == workflow.PLANNED
        return _summary(self._stored_summary(id)), None if planned else Applied(*counts)

    def _stop_error(self, id: str, *, waits: bool = False) -> Stopped:
        summary = self._stored_summary(id)
        sentence = summary["stopped"]
        if waits:
            sentence += f"; to apply the plan: tidings sync approve {id} --stage {self.stage}"
        return Stopped(Objection(summary["stopped_by"], sentence, waits), _summary(summary))

    def _stored_summary(self, id: str) -> dict[str, Any]:
        """Return the summary that the job of the sync *id* wrote."""
        text = files.read(f"{files.S3}{self.syncs.bucket}/{workflow.prefix(id)}{SUMMARY}")
        summary: dict[str, Any] = json.loads(text)
        return summary


def on_stage(stage: str) -> Machine:
    """Return the state machine of *stage*.

    Raises:
        NoStage: the stage does not exist, or is older than this command.
    """
    syncs = stages.syncs_of(stage, client("cloudformation"))
    return Machine(stage, syncs, client("stepfunctions"))


def client(service: Literal["cloudformation", "s3", "stepfunctions"]) -> Any:
    import boto3  # noqa: TID251 uses the operator's credentials, not a function's role

    return boto3.client(service)


def new_id() -> str:
    """Return a new id of a sync. Ids sort by the time of their creation."""
    moment = from_ms(now_ms())[:19].replace("-", "").replace(":", "")
    return f"{moment}-{os.urandom(4).hex()}"


def _summary(content: Mapping[str, Any]) -> Summary:
    names = (each.name for each in fields(Summary))  # an older stage does not have all of them
    return Summary(**{name: content[name] for name in names if name in content})


SCAN = "scan"  # the value of --state to read the table itself, by buckets
FAILURE = "failure.json"
_WORK = "work"  # the folder for temporary files, which is deleted at the end
_FAILURES = (files.NoDump, BadFile, BadExport, sync_feed.NotFollowing, TidingsError)


@dataclass(frozen=True, slots=True)
class RunArguments:
    """The arguments of a run.

    *state* is `scan` or the folder of an export, and *plan* the folder for the plan.
    """

    target: sync_feed.DynamoDBFeed
    dump: str
    state: str
    through: int
    plan: str
    options: SyncOptions
    as_of: str = ""

    def run(self, spark: SparkSession) -> None:
        """Write the plan and its summary.

        Raises:
            NoDump, BadDump, BadFile, BadExport: the dump or the export is missing or invalid.
            NotFollowing: the follower `state` does not reach the end of the log.
            InvalidSync: *as_of* is not a position or time of the feed.
        """
        # Delete the output of an earlier run, which may have parts with other names.
        for name in (*map(subfolder, EVENTS), _WORK, SUMMARY, FAILURE):
            files.remove(self._below(name))
        paths = files.in_place(self.dump)
        objection = None
        try:
            summary = self._plan(spark, paths)
        except Stopped as stopped:
            summary, objection = stopped.summary, stopped.objection
        files.remove(self._below(_WORK))
        files.write(self._below(SUMMARY), self._summary_json(summary, objection))

    def _plan(self, spark: SparkSession, paths: list[str]) -> Summary:
        plan = self.plan.rstrip("/")
        options = self.options
        if self.as_of:
            options = replace(options, as_of=self.target.watermark(self.as_of))
        job = Job(spark, self._below(_WORK), options, _say, plan)
        if self.state == SCAN:
            target = self.target
            through = sync_feed.wait_for_state(target.feed, target.end(), target.checkpoint)
            return job.make_plan(paths, self.target.source(), through=through)
        return job.make_plan(paths, Exported(self.target.feed, self.state), through=self.through)

    def write_failure(self, sentence: str) -> None:
        # If writing fails, too, the exit code and the output still report the failure.
        with suppress(BotoCoreError, ClientError, OSError):
            files.write(self._below(FAILURE), json.dumps({"failed": sentence}))

    def _summary_json(self, summary: Summary, objection: Objection | None) -> str:
        fields = asdict(summary) | {
            "feed": self.target.feed,
            "dump": self.dump,
            "stopped": objection and objection.sentence,
            "stopped_by": objection and objection.code,
            "allowable": objection is not None and objection.allowable,
            "parts": [part for event in summary.events for part in self._parts(event)],
        }
        return json.dumps(fields)

    def _parts(self, event: str) -> list[dict[str, object]]:
        folder = subfolder(event)
        return [
            {
                "name": f"{folder}/{file.address.rpartition('/')[2]}",
                "event": event,
                "bytes": file.size,
            }
            for file in files.list_files(self._below(folder))
        ]

    def _below(self, name: str) -> str:
        return f"{self.plan.rstrip('/')}/{name}"


def main(arguments: Sequence[str] | None = None) -> int:
    request = parse(arguments)
    try:
        with spark_session.cluster() as spark:
            request.run(spark)
    except BadDump as bad:
        for each in bad.first:
            _say(str(each))
        return _fail(request, f"the dump has {bad}; the first is {bad.first[0]}")
    except (*_FAILURES, BotoCoreError, ClientError) as error:
        return _fail(request, str(error))
    except spark_session.SPARK_ERRORS as error:
        _say(str(error))
        return _fail(request, spark_session.sentence_of(error))
    return 0


def parse(arguments: Sequence[str] | None) -> RunArguments:
    """Parse the arguments. If they are invalid, print a message and exit with 2."""
    parser = argparse.ArgumentParser(prog="tidings.sync.stage")
    for name in ("feed", "dump", "state", "plan"):
        parser.add_argument(f"--{name}", required=True)
    sync_feed.add_tables(parser)
    parser.add_argument("--through", type=int)
    parser.add_argument("--types", default="")
    parser.add_argument("--no-deletes", action="store_true")
    parser.add_argument("--skip-bad", type=int, default=0)
    parser.add_argument("--expect", type=int)
    parser.add_argument("--max-delete-share", type=float, default=DELETE_SHARE_MAX)
    parser.add_argument("--as-of", default="", help="when the dump began, as a cursor or a time")
    named = parser.parse_args(arguments)
    if named.state != SCAN and named.through is None:
        parser.error("--state with an export needs --through")
    try:
        return _request(named)
    except InvalidFeed as error:
        parser.error(str(error))


def _request(named: argparse.Namespace) -> RunArguments:
    where = sync_feed.named_tables(named.feed, named)
    options = SyncOptions(
        types=parse_types(named.types),
        deletes=not named.no_deletes,
        skip_bad=named.skip_bad,
        expected=named.expect,
        delete_share_max=named.max_delete_share,
    )
    through = named.through or 0
    return RunArguments(
        target=where,
        dump=named.dump,
        state=named.state,
        through=through,
        plan=named.plan,
        options=options,
        as_of=named.as_of,
    )


def _fail(request: RunArguments, sentence: str) -> int:
    request.write_failure(sentence)
    _say(f"failed: {sentence}")
    return 1


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())

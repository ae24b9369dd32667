r"""The states of a sync, in Amazon States Language.

```
 tidings sync DUMP --cloud    an upload to dumps/FEED/     a schedule
              \                        |                     /
               v                       v                    v
   Check ---------------------------------------------------------- wrong ---+
     |  the request becomes the job's arguments                              |
   Measure                                                                   |
     |  up to 10 GB of state        above                                    |
     |                                 Base, Export, Look ...   (the state,  |
     v                                   v                       to S3)      |
   Plan <--------------------------------+                                   |
     |  Spark: dump and state become a plan                                  |
   Judge -------- nothing to do, dry run, a stop that cannot be approved --->|
     |        \                                                              |
     |         Ask, Wait for an answer -- rejected, or three days pass ----->|
     v          /  approved                                                  |
   Apply <-----+                                                             |
     |  inserts, then updates, then deletes: two parts at a time             |
     v                                                                       v
   Report, Tell ---------- Done, or Failed with a name and a sentence <------+
```

The steps add their results to the data of the execution. The most important are `request` (the
input), `sync` (the validated request and the arguments of the job), `judged` (the summary of the
plan, and the next step), `answer` (the operator's), `error` and `report`. The function `steer`
makes all decisions; this module only defines the order and the retries.

The states use JSONPath, because the interpreter of the tests does not support JSONata.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidings.core import limits
from tidings.core.sync import workflow

State = dict[str, Any]

EXPORT_WAIT_S = 30  # the time between two checks of an export, which takes at least five minutes
MAP_LABEL = "Parts"  # part of the child executions' ARNs

# Throttling and transient failures, after which a call is retried; the functions are idempotent.
_TRANSIENT = {
    "ErrorEquals": [
        "Unavailable",
        "Lambda.ServiceException",
        "Lambda.AWSLambdaException",
        "Lambda.SdkClientException",
        "Lambda.ResourceConflictException",
        "Lambda.SnapStartNotReadyException",
        "Lambda.TooManyRequestsException",
        "Sandbox.Timedout",
        "DynamoDb.ThrottlingException",
        "DynamoDb.InternalServerErrorException",
        "DynamoDb.LimitExceededException",
        "EMRServerless.ThrottlingException",
        "EMRServerless.InternalServerException",
        "S3.SlowDownException",
        "SNS.InternalErrorException",
        "SNS.ThrottledException",
    ],
    "IntervalSeconds": 2,
    "MaxAttempts": 6,
    "BackoffRate": 2,
    "MaxDelaySeconds": 60,
    "JitterStrategy": "FULL",
}


@dataclass(frozen=True, slots=True)
class Wiring:
    """The ARNs and names used in the states; *job* has the parameters of each job run."""

    partition: str
    region: str
    bucket: str
    topic: str
    state_table_name: str
    state_table_arn: str
    steer: str
    correct: str
    job: dict[str, Any]


def definition(wiring: Wiring) -> dict[str, Any]:
    """Return the state machine."""
    return {
        "Comment": "Makes a feed agree with a dump of the real data.",
        "StartAt": "Begin",
        "States": {
            **_checking(wiring),
            **_exporting(wiring),
            **_planning(wiring),
            **_asking(wiring),
            **_applying(wiring),
            **_ending(wiring),
        },
    }


def _checking(wiring: Wiring) -> dict[str, State]:
    size = {"TableName": wiring.state_table_name}
    return {
        "Begin": {
            "Type": "Pass",
            "Parameters": {"request.$": "$$.Execution.Input"},
            "Next": "Check",
        },
        "Check": _steer(
            wiring,
            "check",
            {"region": wiring.region, "request.$": "$.request"},
            to="$.sync",
            following="Wanted",
        ),
        "Wanted": _choice([(_is("$.sync.wanted", True), "Measure")], "Ignored"),
        "Ignored": {"Type": "Succeed"},
        "Measure": _task(
            _sdk(wiring, "dynamodb:describeTable"),
            size,
            select={"bytes.$": "$.Table.TableSizeBytes"},
            to="$.state",
            following="Large",
        ),
        "Large": _choice([(_above("$.state.bytes", limits.SYNC_EXPORT_BYTES), "Base")], "Plan"),
    }


def _exporting(wiring: Wiring) -> dict[str, State]:
    export = {
        "TableArn": wiring.state_table_arn,
        "S3Bucket": wiring.bucket,
        "S3Prefix.$": f"States.Format('{workflow.EXPORTS}{{}}', $$.Execution.Name)",
        "ExportFormat": "DYNAMODB_JSON",
        "ClientToken.$": "States.Hash($$.Execution.Name, 'SHA-1')",
    }
    described = {
        "arn.$": "$.ExportDescription.ExportArn",
        "status.$": "$.ExportDescription.ExportStatus",
    }
    look = {"ExportArn.$": "$.export.arn"}
    exported = {"export.$": "$.export.arn", "through.$": "$.base.through", "sync.$": "$.sync"}
    return {
        "Base": _steer(wiring, "base", {"feed.$": "$.sync.feed"}, to="$.base", following="Export"),
        "Export": _task(
            _sdk(wiring, "dynamodb:exportTableToPointInTime"),
            export,
            select=described,
            to="$.export",
            following="Wait for the export",
        ),
        "Wait for the export": {"Type": "Wait", "Seconds": EXPORT_WAIT_S, "Next": "Look"},
        "Look": _task(
            _sdk(wiring, "dynamodb:describeExport"),
            look,
            select=described,
            to="$.export",
            following="Exported",
        ),
        "Exported": _choice(
            [
                (_says("$.export.status", "IN_PROGRESS"), "Wait for the export"),
                (_says("$.export.status", "COMPLETED"), "Read the export"),
            ],
            "Export failed",
        ),
        "Export failed": {
            "Type": "Pass",
            "Result": {"Error": "ExportFailed", "Cause": "DynamoDB could not export the state."},
            "ResultPath": "$.error",
            "Next": "Report",
        },
        "Read the export": _steer(wiring, "exported", exported, to="$.sync", following="Plan"),
    }


def _planning(wiring: Wiring) -> dict[str, State]:
    submit = wiring.job["JobDriver"]["SparkSubmit"]
    run = wiring.job | {
        "Name.$": "$$.Execution.Name",
        "JobDriver": {"SparkSubmit": submit | {"EntryPointArguments.$": "$.sync.arguments"}},
    }
    return {
        "Plan": _task(
            _resource(wiring, "emr-serverless:startJobRun.sync"), run, to="$.run", following="Judge"
        ),
        "Judge": _steer(
            wiring, "judge", {"sync.$": "$.sync"}, to="$.judged", following="What follows"
        ),
        "What follows": _choice(
            [
                (_says("$.judged.next", workflow.APPLY), "More"),
                (_says("$.judged.next", workflow.ASK), "Ask"),
            ],
            "Report",
        ),
    }


def _asking(wiring: Wiring) -> dict[str, State]:
    question = {
        "TopicArn": wiring.topic,
        "Subject.$": "$.judged.question.subject",
        "Message.$": "$.judged.question.message",
    }
    # The token is stored in the bucket. In the mail, the token would allow every recipient to
    # approve the plan.
    token = {
        "Bucket": wiring.bucket,
        "Key.$": f"States.Format('{workflow.APPROVALS}{{}}', $$.Execution.Name)",
        "Body.$": "$$.Task.Token",
    }
    waiting = _task(
        _sdk(wiring, "s3:putObject.waitForTaskToken"),
        token,
        select={"approved.$": "$.approved"},
        to="$.answer",
        following="Approved",
    )
    silent = {"ErrorEquals": ["States.Timeout"], "ResultPath": "$.silence", "Next": "No answer"}
    return {
        "Ask": _task(
            _resource(wiring, "sns:publish"), question, to="$.asked", following="Wait for an answer"
        ),
        "Wait for an answer": waiting
        | {"TimeoutSeconds": limits.SYNC_APPROVAL_S, "Catch": [silent, *waiting["Catch"]]},
        "No answer": {
            "Type": "Pass",
            "Result": {"approved": False},
            "ResultPath": "$.answer",
            "Next": "Report",
        },
        "Approved": _choice([(_is("$.answer.approved", True), "More")], "Report"),
    }


def _applying(wiring: Wiring) -> dict[str, State]:
    """Return the states that apply first all inserts, then all updates, then all deletions."""
    part = {
        "feed.$": "$.sync.feed",
        "through.$": "$.judged.through",
        "bucket": wiring.bucket,
        "key.$": "$$.Map.Item.Value.Key",
        "behind": 0,
        "applied": 0,
        "moved": 0,
        "done": 0,
    }
    return {
        "More": _choice([(_there("$.judged.groups[0]"), "Apply")], "Report"),
        "Apply": {
            "Type": "Map",
            "Label": MAP_LABEL,
            "MaxConcurrency": limits.SYNC_APPLIERS_MAX,
            "ItemReader": {
                "Resource": _resource(wiring, "s3:listObjectsV2"),
                "Parameters": {"Bucket": wiring.bucket, "Prefix.$": "$.judged.groups[0]"},
            },
            "ItemSelector": part,
            "ItemProcessor": {
                "ProcessorConfig": {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"},
                "StartAt": "Correct",
                "States": _of_a_part(wiring),
            },
            "ResultPath": "$.results",
            "Catch": [_CAUGHT],
            "Next": "Add up",
        },
        "Add up": _steer(
            wiring,
            "total",
            {"judged.$": "$.judged", "results.$": "$.results"},
            to="$.judged",
            following="More",
        ),
    }


def _of_a_part(wiring: Wiring) -> dict[str, State]:
    """Return the states that repeat `correct` until it has reached the end of the part."""
    given = ("feed", "through", "bucket", "key", "behind")
    counts = ("applied", "moved", "done")
    kept = {f"{name}.$": f"$.{name}" for name in ("feed", "through", "bucket", "key")}
    added = {f"{name}.$": f"States.MathAdd($.{name}, $.outcome.{name})" for name in counts}
    refused = {"key.$": "$.key", "error.$": "$.error.Error"}
    counted = {f"{name}.$": f"$.{name}" for name in counts}
    return {
        "Correct": {
            "Type": "Task",
            "Resource": wiring.correct,
            "Parameters": {f"{name}.$": f"$.{name}" for name in given},
            "ResultPath": "$.outcome",
            "Retry": [_TRANSIENT],
            # Store the error, and let the part succeed. If the part failed, the map state would
            # fail with an error that does not name the error of the part.
            "Catch": [{"ErrorEquals": ["States.ALL"], "ResultPath": "$.error", "Next": "Refused"}],
            "Next": "Count",
        },
        "Count": {
            "Type": "Pass",
            "Parameters": kept
            | added
            | {"behind.$": "$.outcome.behind", "complete.$": "$.outcome.complete"},
            "Next": "Complete",
        },
        "Complete": _choice([(_is("$.complete", True), "Applied")], "Correct"),
        "Applied": {"Type": "Pass", "Parameters": counted, "End": True},
        "Refused": {"Type": "Pass", "Parameters": counted | {"refused": refused}, "End": True},
    }


def _ending(wiring: Wiring) -> dict[str, State]:
    report = _steer(wiring, "report", {"state.$": "$"}, to="$.report", following="Tell")
    message = {
        "TopicArn": wiring.topic,
        "Subject.$": "$.report.subject",
        "Message.$": "$.report.message",
    }
    publish = _task(_resource(wiring, "sns:publish"), message, to="$.told", following="Ended")
    # A failed notification does not change the result of the sync.
    untold = {"ErrorEquals": ["States.ALL"], "ResultPath": "$.untold", "Next": "Ended"}
    return {
        "Report": {name: value for name, value in report.items() if name != "Catch"},
        "Tell": publish | {"Catch": [untold]},
        "Ended": _choice([(_there("$.report.error"), "Failed")], "Done"),
        "Failed": {"Type": "Fail", "ErrorPath": "$.report.error", "CausePath": "$.report.cause"},
        "Done": {"Type": "Succeed", "InputPath": "$.report"},
    }


_CAUGHT = {"ErrorEquals": ["States.ALL"], "ResultPath": "$.error", "Next": "Report"}


def _steer(wiring: Wiring, step: str, event: dict[str, Any], *, to: str, following: str) -> State:
    """Return a task that calls `steer` for *step* and stores the answer at the path *to*."""
    event = {"step": step, "id.$": "$$.Execution.Name", "bucket": wiring.bucket} | event
    return _task(wiring.steer, event, to=to, following=following)


def _task(
    resource: str,
    parameters: dict[str, Any],
    *,
    to: str,
    following: str,
    select: dict[str, Any] | None = None,
) -> State:
    """Return a task that is retried after transient errors and leads to `Report` after others.

    The task's result is stored at the path *to*. The path cannot be null: the CDK drops a
    `ResultPath` of null, and then the result would replace all data of the execution.
    """
    selected = {"ResultSelector": select} if select else {}
    return selected | {
        "Type": "Task",
        "Resource": resource,
        "Parameters": parameters,
        "ResultPath": to,
        "Retry": [_TRANSIENT],
        "Catch": [_CAUGHT],
        "Next": following,
    }


def _choice(rules: list[tuple[State, str]], default: str) -> State:
    choices = [rule | {"Next": following} for rule, following in rules]
    return {"Type": "Choice", "Choices": choices, "Default": default}


def _is(path: str, value: bool) -> State:
    return {"Variable": path, "BooleanEquals": value}


def _says(path: str, text: str) -> State:
    return {"Variable": path, "StringEquals": text}


def _above(path: str, number: int) -> State:
    return {"Variable": path, "NumericGreaterThan": number}


def _there(path: str) -> State:
    return {"Variable": path, "IsPresent": True}


def _resource(wiring: Wiring, integration: str) -> str:
    return f"arn:{wiring.partition}:states:::{integration}"


def _sdk(wiring: Wiring, call: str) -> str:
    return _resource(wiring, f"aws-sdk:{call}")

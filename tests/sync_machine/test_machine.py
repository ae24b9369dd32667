"""The state machine of syncs, run as it is deployed: the order of its steps and what goes wrong."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import boto3
import pytest

from infra.parts import sync_states
from tests.sync_machine.jobs import Jobs, planned
from tests.sync_machine.machine import BUCKET, Machine, wiring
from tidings.aws import stage as host
from tidings.core import limits
from tidings.core.errors import Unavailable
from tidings.core.model.operations import event_of, parse_line
from tidings.sync.command import NotWaiting, answer

DUMP = "s3://syncs/dumps/main/today.json"
REQUEST = {"feed": "main", "dump": DUMP}


def told() -> list[str]:
    """Return the operations of the log in its order."""
    lines = [line for page in host.stage().stores.log.read("main", 0) for line in page.lines]
    return [f"{event_of(line)} {parse_line(line).id}" for line in lines]


def say(approved: bool) -> None:
    answer(
        "one",
        approved=approved,
        bucket=BUCKET,
        objects=boto3.client("s3"),
        machines=boto3.client("stepfunctions"),
    )


def stops(jobs: Jobs) -> None:
    """Let the next plan delete so much that a guard objects."""
    jobs.parts = {"delete": [planned("delete", "a")]}
    jobs.stopped = "too many objects would be deleted"


def test_a_plan_is_applied_and_reported(stage: Machine, jobs: Jobs) -> None:
    """Inserts, then updates, then deletes; the output counts them, and a notification says it."""
    jobs.parts = {
        "insert": [planned("insert", "a"), planned("insert", "b")],
        "update": [planned("update", "c")],
        "delete": [planned("delete", "d")],
    }

    ended = stage.run(REQUEST)

    assert ended.status == "SUCCEEDED"
    assert sorted(told()[:2]) == ["insert a", "insert b"]
    assert told()[2:] == ["update c", "delete d"]
    assert ended.output["outcome"] == "done"
    assert [ended.output[name] for name in ("applied", "moved", "done")] == [4, 0, 0]
    ((subject, message),) = stage.told
    assert subject == "tidings dev: sync of main done"
    assert "2 creates, 1 updates, 1 deletes, 0 untouched." in message
    assert "4 applied, 0 not applied because their objects changed" in message


def test_the_job_is_told_what_was_asked(stage: Machine, jobs: Jobs) -> None:
    """Each option of `tidings sync` arrives, and the state is scanned while it is small."""
    options = {"types": ["video", "user"], "deletes": False, "expect": 7}
    stage.run(REQUEST | options | {"max_delete_share": 0.25, "skip_bad": 2})

    found = jobs.arguments()

    assert found[:4] == ["--feed", "main", "--dump", DUMP]
    assert found[found.index("--plan") + 1] == f"s3://{BUCKET}/plans/one/"
    assert found[found.index("--log-table") :][:6] == [
        *("--log-table", "log"),
        *("--state-table", "state"),
        *("--control-table", "control"),
    ]
    assert found[-10:] == [
        *("--types=video,user", "--no-deletes"),
        *("--expect", "7"),
        *("--skip-bad", "2"),
        *("--max-delete-share", "0.25"),
        *("--state", "scan"),
    ]


def test_nothing_to_do_ends_well(stage: Machine, jobs: Jobs) -> None:
    """A feed that agrees with its dump; no part is asked for."""
    ended = stage.run(REQUEST)

    assert (ended.status, ended.output["outcome"]) == ("SUCCEEDED", "nothing")
    assert stage.corrected() == []


def test_a_dry_run_applies_nothing(stage: Machine, jobs: Jobs) -> None:
    """The plan is made and counted, and stays in its place."""
    jobs.parts = {"insert": [planned("insert", "a")]}

    ended = stage.run(REQUEST | {"dry_run": True})

    assert (ended.output["outcome"], ended.output["creates"]) == ("planned", 1)
    assert told() == [] and stage.keys("plans/one/1-insert/part")


def test_what_is_busy_is_asked_again(stage: Machine, jobs: Jobs) -> None:
    """A batch without an answer; the part is repeated, and nothing is applied twice."""
    jobs.parts = {"insert": [planned("insert", "a")]}
    stage.api.script["correct"] = [Unavailable("try again")]

    ended = stage.run(REQUEST)

    assert (ended.status, ended.output["applied"]) == ("SUCCEEDED", 1)
    assert len(stage.corrected()) == 2
    assert told() == ["insert a"]


def test_a_part_is_gone_on_with_until_it_is_complete(
    stage: Machine, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that yields for want of time returns its progress; the counts are those of all runs."""
    monkeypatch.setattr(limits, "REQUEST_OPERATIONS_MAX", 1)
    moments = iter(range(0, 10**9, limits.CORRECT_RUN_MS // 2))
    corrector = host.stage().corrector
    runtime = replace(corrector.runtime, steady=lambda: next(moments))
    object.__setattr__(corrector, "runtime", runtime)
    jobs.parts = {"insert": [planned("insert", *"abc")]}

    ended = stage.run(REQUEST)

    assert ended.output["applied"] == 3
    assert sorted(told()) == ["insert a", "insert b", "insert c"]
    behinds = [each["behind"] for each in stage.corrected()]
    assert len(behinds) > 1 and behinds == sorted(behinds)


def test_a_stopped_plan_is_applied_once_somebody_says_so(stage: Machine, jobs: Jobs) -> None:
    """The message says what is planned and how to answer; until then nothing is applied."""
    stops(jobs)
    execution = stage.start(REQUEST)

    message = stage.asked()
    assert told() == []
    say(True)
    ended = stage.end_of(execution)

    assert "Too many objects would be deleted." in message
    assert "0 creates, 0 updates, 1 deletes" in message
    assert "tidings sync approve one --stage dev" in message
    assert (ended.status, ended.output["outcome"]) == ("SUCCEEDED", "done")
    assert told() == ["delete a"]


def test_a_stopped_plan_is_given_up_where_somebody_says_so(stage: Machine, jobs: Jobs) -> None:
    """Not a failure but a decision. A second answer finds no waiting execution."""
    stops(jobs)
    execution = stage.start(REQUEST)
    stage.asked()

    say(False)
    ended = stage.end_of(execution)

    assert (ended.status, ended.output["outcome"]) == ("SUCCEEDED", "rejected")
    assert told() == []
    assert stage.told[-1][0] == "tidings dev: sync of main rejected"
    with pytest.raises(NotWaiting, match="the sync one does not wait"):
        say(True)


def test_no_answer_means_no(stage: Machine, jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the time for it; the definition's own, made short."""
    stops(jobs)
    monkeypatch.setattr(limits, "SYNC_APPROVAL_S", 1)
    remade(stage)

    ended = stage.run(REQUEST)

    assert (ended.status, ended.output["outcome"]) == ("SUCCEEDED", "rejected")
    assert told() == []


def test_a_dump_that_is_not_whole_cannot_be_approved(stage: Machine, jobs: Jobs) -> None:
    """No approval is requested, because there is no plan; it counts as stopped, not as failed."""
    jobs.stopped, jobs.allowable = "the dump ends early", False

    ended = stage.run(REQUEST)

    assert (ended.status, ended.output["outcome"]) == ("SUCCEEDED", "stopped")
    assert "The dump ends early." in stage.told[-1][1]
    assert stage.keys("approvals/") == []


def test_the_token_is_in_no_message(stage: Machine, jobs: Jobs) -> None:
    """A reader of the mail cannot answer with it."""
    stops(jobs)
    execution = stage.start(REQUEST)
    message = stage.asked()
    (key,) = stage.keys("approvals/")
    token = boto3.client("s3").get_object(Bucket=BUCKET, Key=key)["Body"].read().decode()

    say(False)
    ended = stage.end_of(execution)

    assert len(token) > 8
    assert token not in message and token not in json.dumps(ended.output)
    assert stage.keys("approvals/") == []


def test_a_plan_that_is_too_old_fails_with_a_report(stage: Machine, jobs: Jobs) -> None:
    """By name, with a remedy; the following steps are not begun."""
    jobs.parts = {"insert": [planned("insert", "a")], "delete": [planned("delete", "b")]}
    jobs.through = 5
    host.stage().stores.log.raise_floor("main", 9)

    ended = stage.run(REQUEST)

    assert (ended.status, ended.error) == ("FAILED", "PlanTooOld")
    assert "Sync again." in ended.cause
    assert "plans/one/1-insert/part-00000.gz" in ended.cause
    assert told() == []
    assert [each["key"] for each in stage.corrected()] == ["plans/one/1-insert/part-00000.gz"]
    subject, message = stage.told[-1]
    assert subject == "tidings dev: sync of main failed"
    assert "The plan is too old" in message


def test_a_part_that_never_succeeds_fails_the_sync(stage: Machine, jobs: Jobs) -> None:
    """The other parts of its group are applied, the next group is not; a repeat is harmless."""
    jobs.parts = {
        "insert": [planned("insert", "a"), planned("insert", "b")],
        "delete": [planned("delete", "c")],
    }
    stage.api.script["correct"] = [KeyError("a mistake of ours")]

    ended = stage.run(REQUEST)

    assert (ended.status, ended.error) == ("FAILED", "KeyError")
    assert "1 part of the plan" in ended.cause and "Sync again" in ended.cause
    assert len(told()) == 1 and told()[0].startswith("insert")
    assert "1 applied" in stage.told[-1][1]


def test_a_job_that_fails_says_why(stage: Machine, jobs: Jobs) -> None:
    """In the words that the job left, not in EMR's."""
    jobs.failed = "the dump has 3 bad lines; the first is x:7: id: is required"

    ended = stage.run(REQUEST)

    assert (ended.status, ended.error) == ("FAILED", "JobFailed")
    assert ended.cause == jobs.failed
    assert jobs.failed[1:] in stage.told[-1][1]


@pytest.mark.parametrize(
    ("request_", "error", "rule"),
    [
        ({"feed": "main"}, "InvalidSync", "dump: must be an address"),
        ({"feed": "none", "dump": DUMP}, "UnknownFeed", "feed: no such feed here"),
        ({"dump": DUMP, "colour": 1}, "InvalidSync", "colour: is not one of"),
        ([], "InvalidSync", "must be a JSON object"),
    ],
)
def test_a_wrong_request_is_refused_by_name(
    stage: Machine, jobs: Jobs, request_: Any, error: str, rule: str
) -> None:
    """No job is started for it."""
    ended = stage.run(request_)

    assert (ended.status, ended.error) == ("FAILED", error)
    assert rule in ended.cause
    assert jobs.started == []


def test_an_upload_starts_its_own_sync(stage: Machine, jobs: Jobs) -> None:
    """The feed is the folder's name; a file of a folder that is not whole yet starts nothing."""
    stage.run({"key": "dumps/main/today.json"})
    ignored = stage.run({"key": "dumps/main/week/part-1.json"}, "two")

    assert jobs.arguments()[:4] == ["--feed", "main", "--dump", DUMP]
    assert ignored.status == "SUCCEEDED"
    assert len(stage.told) == 1


def test_a_large_state_is_exported(
    stage: Machine, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint is read before the export, which is waited for and handed to the job."""
    monkeypatch.setattr(limits, "SYNC_EXPORT_BYTES", -1)
    remade(stage)
    boto3.client("dynamodb").update_continuous_backups(
        TableName="state", PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True}
    )

    ended = stage.run(REQUEST)

    assert ended.output["outcome"] == "nothing"
    *_, state, folder, through, page = jobs.arguments()
    assert (state, through, page) == ("--state", "--through", "0")
    assert re.fullmatch(rf"s3://{BUCKET}/exports/one/AWSDynamoDB/[^/]+/", folder)
    assert stage.keys("exports/one/")


def remade(stage: Machine) -> None:
    """Create the definition again, with the limits as they are now."""
    stage.client.update_state_machine(
        stateMachineArn=stage.arn,
        definition=json.dumps(sync_states.definition(wiring(stage.topic, "state"))),
    )

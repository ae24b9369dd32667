"""`tidings sync --cloud` and its answers, with a machine of the deployed one's states."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import boto3
import pytest
from click.testing import CliRunner, Result

from infra.parts import sync_states
from tests.unit.admin.cloudformation import describing
from tests.unit.sync.buckets import REGION, holding
from tests.unit.sync.lines import line, written
from tidings.aws.effects import sleep_ms
from tidings.client.cli.main import main

WAITING = "Wait for an answer"
REPORT = {"outcome": "done", "applied": 2, "moved": 1, "done": 0}
SENTENCE = "2 of 3 objects (67%) would be deleted"
STOPPED = {"stopped": SENTENCE, "stopped_by": "too_many_deletes"}
POLL_MS = 20


def planned(**more: str) -> dict[str, Any]:
    """Return the summary of a job; this imports PySpark."""
    from tidings.sync.job import Summary

    summary = Summary(creates=3, by_type={"video": {"creates": 3}}, lines=3)
    return asdict(summary) | more


def states(report: dict[str, Any], *, asks: bool = False) -> dict[str, Any]:
    """Return the states of a successful sync, with a token if it *asks*."""
    names = ["Check", "Plan", WAITING if asks else "Apply"]
    found: dict[str, Any] = {
        name: {"Type": "Pass", "Next": after}
        for name, after in zip(names, [*names[1:], "Done"], strict=True)
    }
    if asks:
        token = {"Bucket": "syncs", "Key.$": "States.Format('approvals/{}', $$.Execution.Name)"}
        found[WAITING] = {
            "Type": "Task",
            "Resource": "arn:aws:states:::aws-sdk:s3:putObject.waitForTaskToken",
            "Parameters": token | {"Body.$": "$$.Task.Token"},
            "Next": "Answered",
        }
        found["Answered"] = {"Type": "Pass", "End": True}
    return found | {"Done": {"Type": "Pass", "Result": report, "End": True}}


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Yield a function that starts a machine of these states as that of the stage dev, with a
    summary."""
    arn = f"arn:aws:states:{REGION}:123456789012:stateMachine:sync"
    outputs = {"SyncBucket": "syncs", "SyncMachine": arn}
    with (
        holding(monkeypatch, {}, "syncs") as objects,
        describing("tidings-dev", outputs) as endpoint,
    ):
        monkeypatch.setenv("AWS_ENDPOINT_URL_CLOUDFORMATION", endpoint)
        monkeypatch.setattr("tidings.sync.stage.new_id", lambda: "one")
        monkeypatch.setattr("tidings.sync.stage.POLL_MS", POLL_MS)

        def started(found: dict[str, Any], summary: dict[str, Any]) -> Any:
            objects.put_object(
                Bucket="syncs", Key="plans/one/summary.json", Body=json.dumps(summary)
            )
            client = boto3.client("stepfunctions")
            definition = json.dumps({"StartAt": "Check", "States": found})
            role = "arn:aws:iam::123456789012:role/sync"
            client.create_state_machine(name="sync", definition=definition, roleArn=role)
            return client

        yield started


def only_execution(client: Any) -> Any:
    (machine,) = client.list_state_machines()["stateMachines"]
    (execution,) = client.list_executions(stateMachineArn=machine["stateMachineArn"])["executions"]
    return execution


def sync(dump: str, *options: str) -> Result:
    return CliRunner().invoke(main, ["sync", dump, "--stage", "dev", "--cloud", *options])


def test_a_dump_is_uploaded_and_the_sync_followed(stage: Any, tmp_path: Path) -> None:
    """The machine gets the options; its report is the command's output."""
    client = stage(states(REPORT), planned())
    dump = written(tmp_path / "dump.json", [line("a", 1)])
    done = sync(dump, "--types", "Video, u/r", "--no-deletes", "--expect", "3", "--json")

    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == planned() | {"applied": 2, "moved": 1, "done": 0}
    execution = only_execution(client)
    told = client.describe_execution(executionArn=execution["executionArn"])
    assert json.loads(told["input"]) == {
        "feed": "main",
        "dump": "s3://syncs/uploads/one/000000000-dump.json",
        "types": ["Video", "u/r"],
        "deletes": False,
        "expect": 3,
        "skip_bad": 0,
        "max_delete_share": 0.1,
        "dry_run": False,
    }
    uploaded = boto3.client("s3").get_object(Bucket="syncs", Key="uploads/one/000000000-dump.json")
    assert uploaded["Body"].read() == line("a", 1) + b"\n"


def test_a_dump_that_is_there_stays_where_it_is(stage: Any) -> None:
    """A dump that the job can read is not copied; an outcome of *planned* means that nothing was
    applied.
    """
    stage(states(REPORT | {"outcome": "planned"}), planned())
    done = sync("s3://syncs/dumps/main/d/", "--dry-run", "--json")
    assert (done.exit_code, "applied" in json.loads(done.stdout)) == (0, False)
    listed = boto3.client("s3").list_objects_v2(Bucket="syncs", Prefix="uploads/")
    assert listed["KeyCount"] == 0


def test_a_guard_or_a_failure_in_the_cloud(stage: Any) -> None:
    """The same exit codes as here, and the reason."""
    stage(states(REPORT | {"outcome": "stopped"}), planned(**STOPPED))
    stopped = sync("s3://syncs/dumps/main/d/")
    assert (stopped.exit_code, f"Stopped: {SENTENCE}.\n" in stopped.stderr) == (3, True)
    absent = CliRunner().invoke(main, ["sync", "x", "--stage", "none", "--cloud"])
    assert (absent.exit_code, "does not exist" in absent.stderr) == (1, True)
    for wrong in (["--cloud"], ["--stage", "dev", "--cloud", "--plan", "p"]):
        assert CliRunner().invoke(main, ["sync", "x", *wrong]).exit_code == 2


def test_a_failed_sync_says_why(stage: Any) -> None:
    """The error is the machine's own sentence."""
    failed = {"Type": "Fail", "Error": "BadDump", "Cause": "the dump has 1 bad line"}
    stage({"Check": {"Type": "Pass", "Next": "Failed"}, "Failed": failed}, planned())
    done = sync("s3://syncs/dumps/main/d/")
    assert (done.exit_code, done.stderr) == (1, "Error: the sync one: the dump has 1 bad line\n")


@pytest.mark.parametrize(("word", "approved"), [("approve", True), ("reject", False)])
def test_a_plan_that_waits_is_answered(stage: Any, word: str, approved: bool) -> None:
    """The command ends when the plan waits, and prints the next command; only one answer counts."""
    client = stage(states({}, asks=True), planned(**STOPPED))
    asked = sync("s3://syncs/dumps/main/d/")
    assert asked.exit_code == 3
    assert f"{SENTENCE}; to apply the plan: tidings sync approve one --stage dev" in asked.stderr

    answer = ["sync", word, "one", "--stage", "dev"]
    done = CliRunner().invoke(main, answer)
    assert (done.exit_code, done.stdout) == (0, f"{word.removesuffix('e')}ed: one\n")
    again = CliRunner().invoke(main, answer)
    assert (again.exit_code, "does not wait for an answer" in again.stderr) == (1, True)
    execution = only_execution(client)
    for _ in range(500):
        found = client.describe_execution(executionArn=execution["executionArn"])
        if found["status"] != "RUNNING":
            break
        sleep_ms(POLL_MS)
    assert json.loads(found["output"]) == {"approved": approved}


def test_the_states_that_are_shown_are_the_machines() -> None:
    """The phases have the names of the deployed definition."""
    from tidings.sync import stage as machine

    names = [each.name for each in fields(sync_states.Wiring) if each.name != "job"]
    job: Any = {"JobDriver": {"SparkSubmit": {}}}
    wiring = sync_states.Wiring(**dict.fromkeys(names, ""), job=job)
    assert {WAITING} < set(machine.PHASES) <= set(sync_states.definition(wiring)["States"])

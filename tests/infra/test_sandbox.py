"""Sandboxes are always deleted, and each command finds the resources of its own stage only."""

from __future__ import annotations

import re
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from click.testing import CliRunner

from infra import ROOT, sandbox
from infra.sandbox import FAILED, INTERRUPTED, LEFT, Failed, Sandbox, carry_out
from tidings.aws.config.stages import STAGE_TAG, Account, is_fixed_name

STAGE = "sandbox-ab12cd"
WORK, DATA = f"tidings-{STAGE}", f"tidings-{STAGE}-data"
BUCKET, LOGS = f"{DATA}-syncs", f"/aws/lambda/{WORK}-ingest"


class Stacks:
    """CloudFormation, as far as a run calls it; a stack is its bucket, or nothing."""

    def __init__(self) -> None:
        self.there = {WORK: "CREATE_COMPLETE", DATA: "CREATE_COMPLETE"}
        self.deleted: list[str] = []
        self.resting = 0  # how often it is asked for WORK before an update has ended

    def describe_stacks(self, StackName: str) -> dict[str, Any]:
        if StackName not in self.there:
            error = {"Error": {"Code": "ValidationError", "Message": "no such stack"}}
            raise ClientError(error, "DescribeStacks")  # type: ignore[arg-type]
        self.resting -= StackName == WORK
        if StackName == WORK and self.resting == 0:
            self.there[WORK] = "UPDATE_COMPLETE"
        return {"Stacks": [{"StackStatus": self.there[StackName]}]}

    def delete_stack(self, StackName: str) -> None:
        assert self.there[StackName] != "UPDATE_IN_PROGRESS"
        self.deleted.append(StackName)
        try:
            if StackName == DATA:
                boto3.client("s3").delete_bucket(Bucket=BUCKET)
        except ClientError:
            self.there[StackName] = "DELETE_FAILED"
        else:
            if self.there[StackName] != "DELETE_FAILED":
                del self.there[StackName]

    def describe_stack_events(self, StackName: str) -> dict[str, Any]:
        reason = {"ResourceStatus": "DELETE_FAILED", "ResourceStatusReason": "it is in use"}
        return {"StackEvents": [reason]}

    def get_waiter(self, name: str) -> Stacks:
        return self

    def wait(self, **asked: Any) -> None:
        """Return at once, as `delete_stack` does what it is asked for."""

    def get_paginator(self, operation: str) -> Stacks:
        return self

    def paginate(self, StackName: str) -> list[dict[str, Any]]:
        part = {"ResourceType": "AWS::S3::Bucket", "PhysicalResourceId": BUCKET}
        return [{"StackResourceSummaries": [part]}]


@pytest.fixture
def stacks(account: None, monkeypatch: pytest.MonkeyPatch) -> Stacks:
    """A stage that is deployed: an object in its bucket, the log of a function."""
    made, client = Stacks(), sandbox.client
    monkeypatch.setattr(
        sandbox, "client", lambda service: made if service == "cloudformation" else client(service)
    )
    boto3.client("s3").create_bucket(Bucket=BUCKET)
    boto3.client("s3").put_object(Bucket=BUCKET, Key="a", Body=b"1")
    boto3.client("logs").create_log_group(logGroupName=LOGS)
    return made


def test_a_stage_is_deleted_with_its_objects_and_logs(stacks: Stacks) -> None:
    others = boto3.client("logs")
    others.create_log_group(logGroupName=f"/aws/lambda/{WORK}x-ingest")
    Sandbox(STAGE).destroy()
    assert stacks.deleted == [WORK, DATA]
    (group,) = others.describe_log_groups()["logGroups"]
    assert group["logGroupName"] == f"/aws/lambda/{WORK}x-ingest"
    Sandbox(STAGE).destroy()  # a stage that is already deleted is not an error


def test_an_update_is_waited_for(stacks: Stacks) -> None:
    stacks.there[WORK], stacks.resting = "UPDATE_IN_PROGRESS", 3
    Sandbox(STAGE).destroy()
    assert stacks.there == {}


def test_a_stack_that_is_being_created_is_deleted_at_once(stacks: Stacks) -> None:
    stacks.there[WORK] = "REVIEW_IN_PROGRESS"
    Sandbox(STAGE).destroy()
    assert stacks.there == {}


def test_what_is_left_is_named(stacks: Stacks) -> None:
    boto3.client("s3").create_bucket(Bucket=f"{WORK}-other")
    with pytest.raises(Failed, match=f"buckets: {WORK}-other"):
        Sandbox(STAGE).destroy()


def test_a_stack_that_cannot_be_deleted_says_why(stacks: Stacks) -> None:
    stacks.there[WORK] = "DELETE_FAILED"
    with pytest.raises(Failed, match=f"{WORK} is DELETE_FAILED: it is in use"):
        Sandbox(STAGE).destroy()
    assert stacks.deleted == [WORK] * sandbox.ATTEMPTS


@pytest.mark.usefixtures("stacks")
def test_jobs_and_applications_of_the_stage_end() -> None:
    jobs = boto3.client("emr-serverless")
    made = jobs.create_application(name=f"{WORK}-reach", releaseLabel="emr-6.6.0", type="SPARK")
    asked = {"applicationId": made["applicationId"]}
    jobs.start_application(**asked)
    jobs.start_job_run(
        **asked,
        executionRoleArn="arn:aws:iam::123456789012:role/any",
        jobDriver={"sparkSubmit": {"entryPoint": "s3://bucket/any.py"}},
    )
    Sandbox(STAGE).destroy()
    (application,) = jobs.list_applications()["applications"]
    assert application["state"] == "TERMINATED"


class Run(Sandbox):
    """A run in which the tests end with *ends*; *left* is set if its stage cannot be deleted."""

    ends: int | BaseException = 0
    left = destroyed = False

    def __init__(self) -> None:
        super().__init__(STAGE)

    def deploy(self) -> None: ...

    def test(self, options: tuple[str, ...]) -> int:
        if isinstance(Run.ends, BaseException):
            raise Run.ends
        return Run.ends

    def destroy(self) -> None:
        if Run.left:
            raise Failed("still there: tables: log")
        Run.destroyed = True


@pytest.mark.parametrize(
    ("ends", "code"),
    [(0, 0), (FAILED, FAILED), (KeyboardInterrupt(), INTERRUPTED), (Failed("no"), FAILED)],
)
def test_the_stage_is_deleted_whatever_happens(
    monkeypatch: pytest.MonkeyPatch, ends: int | BaseException, code: int
) -> None:
    monkeypatch.setattr(Run, "ends", ends)
    monkeypatch.setattr(Run, "destroyed", False)
    assert carry_out(Run(), ()) == code
    assert Run.destroyed
    monkeypatch.setattr(Run, "left", True)
    assert carry_out(Run(), ()) == LEFT


def test_a_stage_is_kept_unless_the_run_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Run, "destroyed", False)
    assert carry_out(Run(), (), keep=True) == 0
    assert not Run.destroyed
    monkeypatch.setattr(Run, "ends", KeyboardInterrupt())
    assert carry_out(Run(), (), keep=True) == INTERRUPTED
    assert Run.destroyed


@pytest.mark.usefixtures("stacks")
def test_it_asks_before_it_spends() -> None:
    result = CliRunner().invoke(sandbox.main, [], input="n\n")
    assert result.exit_code == 1
    for said in ("123456789012", "us-east-1", "at most $", "anyone", "bootstrap"):
        assert said in result.output


@pytest.mark.usefixtures("stacks")
def test_a_stage_that_is_no_sandbox_is_not_deleted() -> None:
    assert CliRunner().invoke(sandbox.main, ["--destroy", "prod"]).exit_code == 2


def test_what_only_aws_can_show_is_tested_by_the_commands_that_say_so() -> None:
    """Each `-k` of DEPLOY.md picks a test of one of the suites that a sandbox runs."""
    page = (ROOT / "docs" / "operations" / "DEPLOY.md").read_text()
    words = set(re.findall(r'SANDBOX="-k (\w+)"', page))
    named = [
        f"{path.stem} {name}"
        for suite in ("aws", "conformance")
        for path in (ROOT / "tests" / suite).glob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
    ]
    assert len(words) > 5
    assert [word for word in words if not any(word in each for each in named)] == []


pytestmark = pytest.mark.usefixtures("account")
STAGES = ("ann", "ann-e", "ann-eu", "ann-data-x")

Names = dict[str, list[str]]


def _create(stage: str, *, tagged: bool) -> Names:
    """Create resources with the names that a stage gives; return the names by kind."""
    begin, tags = f"tidings-{stage}", {STAGE_TAG: stage} if tagged else {}
    pairs: Any = {"Tags": [{"Key": STAGE_TAG, "Value": stage}]} if tagged else {}
    groups = [f"/aws/{path}{begin}-{of}" for path, of in (("lambda/", "ingest"),)]
    groups += [f"/aws/vendedlogs/apigateway/{begin}-http", f"/aws/vendedlogs/states/{begin}-sync"]
    if tagged:  # only the settings of the stage have the names of pipelines
        groups.append(f"/aws/emr-serverless/{begin}-pipeline-x")
    for group in groups:
        boto3.client("logs").create_log_group(logGroupName=group, tags=tags)
    table = f"{begin}-data-TablesLog1A2B-X1Y2" if tagged else f"{begin}-log-2"
    boto3.client("dynamodb").create_table(
        TableName=table,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "feed", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "feed", "AttributeType": "S"}],
        **pairs,
    )
    bucket, objects = f"{begin}-data-archive1a2b-x1y2", boto3.client("s3")
    objects.create_bucket(Bucket=bucket)
    if tagged:
        objects.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": pairs["Tags"]})
    jobs = boto3.client("emr-serverless")
    named = {"name": f"{begin}-sync", "releaseLabel": "emr-6.6.0", "type": "SPARK", "tags": tags}
    made = jobs.create_application(**named)["applicationId"]
    jobs.start_application(applicationId=made)
    return {"log_groups": sorted(groups), "tables": [table], "buckets": [bucket]}


def _found(stage: str) -> Names:
    """Return the resources of *stage*, as `tidings doctor` and `make destroy` find them."""
    account = Account(sandbox.client)
    return {
        "log_groups": sorted(account.log_groups(stage)),
        "tables": account.tables(stage),
        "buckets": account.buckets(stage),
    }


@pytest.mark.parametrize("tagged", [True, False])
def test_each_resource_is_of_one_stage(*, tagged: bool) -> None:
    """Destroying a stage that does not exist leaves the resources of the others."""
    created = {stage: _create(stage, tagged=tagged) for stage in STAGES[1:]}
    sandbox.Sandbox("ann").destroy()  # raises `Failed` if it counts a resource as its own
    listed = boto3.client("emr-serverless").list_applications()["applications"]
    assert {each["state"] for each in listed} == {"STARTED"}
    created["ann"] = _create("ann", tagged=tagged)
    assert {stage: _found(stage) for stage in STAGES} == created


@pytest.mark.parametrize(("tags", "owned"), [({STAGE_TAG: "ann-follow"}, False), ({}, True)])
def test_a_tag_decides_before_the_name(tags: dict[str, str], *, owned: bool) -> None:
    """A function of the stage `ann-follow` has the name of a function of the stage `ann`.

    A late call creates a deleted log group again, without tags.
    """
    name = "/aws/lambda/tidings-ann-follow-relay"
    boto3.client("logs").create_log_group(logGroupName=name, tags=tags)
    assert bool(Account(sandbox.client).log_groups("ann")) is owned


@pytest.mark.parametrize("name", ["ingest", "follow-state", "sync", "lake", "http", "reach"])
def test_names_without_tags(name: str) -> None:
    assert [each for each in STAGES if is_fixed_name(each, f"tidings-ann-e-{name}")] == ["ann-e"]

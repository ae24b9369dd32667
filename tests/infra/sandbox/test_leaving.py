"""Taking a stage away: whatever it was about, and looking whether anything is left."""

from __future__ import annotations

import json

import pytest

from infra.sandbox import leaving
from infra.sandbox.ground import Ground
from infra.sandbox.steps import NotSo
from tests.infra.sandbox.account import Account
from tests.infra.sandbox.conftest import DATA, FUNCTION_LOGS, STAGE, WORK, deploy


def test_a_stage_goes_with_its_objects(account: Account, ground: Ground) -> None:
    """Functions before the buckets that they write to; buckets are emptied first."""
    deploy(account)
    figures = leaving.destroy(ground)
    assert (account.stacks, account.deleted) == ({}, [WORK, DATA])
    assert figures["resources taken away"] == 3
    assert account.client("s3").list_buckets()["Buckets"] == []


def test_what_is_gone_is_no_failure(ground: Ground) -> None:
    """A run that never deployed, or that somebody has taken away already."""
    assert leaving.destroy(ground)["left"] == 0


def test_half_a_stage_goes_too(account: Account, ground: Ground) -> None:
    """A first deploy that was interrupted behind the data stack."""
    deploy(account)
    account.stacks.pop(WORK)
    account.client("logs").delete_log_group(logGroupName=FUNCTION_LOGS)
    leaving.destroy(ground)
    assert account.stacks == {}


@pytest.mark.parametrize("status", ["CREATE_IN_PROGRESS", "REVIEW_IN_PROGRESS"])
def test_a_stack_that_is_being_made_goes_at_once(
    account: Account, ground: Ground, status: str
) -> None:
    """It would never come to rest where the CDK was killed before CloudFormation began."""
    deploy(account)
    account.stacks[WORK].status = status
    leaving.destroy(ground)
    assert account.stacks == {}


def test_an_update_is_waited_for(account: Account, ground: Ground) -> None:
    """CloudFormation refuses to delete a stack in the middle of one."""
    deploy(account)
    account.stacks[WORK].status = "UPDATE_IN_PROGRESS"
    account.rests_after = 2
    leaving.destroy(ground)
    assert account.stacks == {}


def test_what_is_left_is_named(ground: Ground) -> None:
    """A table that outlived its stack."""
    account = Account(f"{DATA}-log")
    ground.place = account
    deploy(account)
    with pytest.raises(NotSo, match=f"{DATA}-log"):
        leaving.destroy(ground)


def test_a_stack_that_will_not_go_says_why(account: Account, ground: Ground) -> None:
    """After a second attempt."""
    deploy(account)
    account.stacks[WORK].makes |= {"Other": account.stacks[DATA].makes["Syncs"]}
    with pytest.raises(NotSo, match=f"{WORK} is DELETE_FAILED: Bucket: it is not empty"):
        leaving.destroy(ground)
    assert account.deleted == [WORK] * leaving.ATTEMPTS


def test_logs_that_came_late_and_what_steps_made_go_too(account: Account, ground: Ground) -> None:
    """A log group without a stack, a machine of a step that was killed, an application of EMR."""
    deploy(account)
    account.client("logs").create_log_group(logGroupName=f"/aws/apigateway/{WORK}-http")
    account.client("stepfunctions").create_state_machine(
        name=ground.named("export"),
        definition=json.dumps({"StartAt": "A", "States": {"A": {"Type": "Succeed"}}}),
        roleArn="arn:aws:iam::123456789012:role/any",
    )
    jobs, name = account.client("emr-serverless"), ground.named("reach")
    made = jobs.create_application(name=name, releaseLabel="emr-6.6.0", type="SPARK")
    jobs.start_application(applicationId=made["applicationId"])
    driver = {"sparkSubmit": {"entryPoint": "s3://bucket/any.py"}}
    role = "arn:aws:iam::123456789012:role/any"
    jobs.start_job_run(applicationId=made["applicationId"], executionRoleArn=role, jobDriver=driver)
    leaving.destroy(ground)
    assert account.client("stepfunctions").list_state_machines()["stateMachines"] == []
    (application,) = jobs.list_applications()["applications"]
    assert application["state"] == "TERMINATED"


def test_others_of_the_account_stay(account: Account, ground: Ground) -> None:
    """Also a stage whose name goes on with ours."""
    deploy(account)
    others = account.client("logs")
    others.create_log_group(logGroupName=f"/aws/lambda/tidings-{STAGE}x-ingest")
    account.stack("tidings-prod")
    leaving.destroy(ground)
    assert list(account.stacks) == ["tidings-prod"]
    (group,) = others.describe_log_groups()["logGroups"]
    assert group["logGroupName"] == f"/aws/lambda/tidings-{STAGE}x-ingest"


def test_sandboxes_are_listed_once(account: Account) -> None:
    """With the moment from which on nobody needs them; other stages are not."""
    deploy(account)
    account.stack("tidings-prod")
    for name in (WORK, DATA):
        account.stacks[name].tags["tidings:expires"] = "2026-11-25T12:00:00Z"
    listed = list(leaving.sandboxes(account))
    assert [(each["stage"], each["expires"]) for each in listed] == [
        (STAGE, "2026-11-25T12:00:00Z")
    ]

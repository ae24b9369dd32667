"""Taking a stage away, also one that was left in the middle of something, and looking behind it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from tidings.aws.config.account import Account
from tidings.aws.config.stages import EXPIRES_TAG, data_stack_name, stack_name

from infra import remains, settings
from infra.sandbox.ground import Ground
from infra.sandbox.steps import Figures, NotSo

STEADY_S = 1800  # for what CloudFormation is about: a canary, a rollback
GONE_S = 1800  # for a stack: EMR Serverless and aliases take minutes
ATTEMPTS = 2  # what refused once because something was still in use may be gone then
LINGER_S = 120  # of what AWS deletes in its own time
_LOOK_S = 5
# A stack can be deleted while it is made, and where the CDK was killed before it was.
_DELETABLE = ("CREATE_IN_PROGRESS", "REVIEW_IN_PROGRESS", "DELETE_IN_PROGRESS")
_UNDER_WAY = ("SUBMITTED", "PENDING", "SCHEDULED", "QUEUED", "RUNNING")  # of jobs
_RUNNING = ("STARTING", "STARTED", "STOPPING")
# Beside the stacks: what steps make and take away themselves, and logs that came after their group.
_NAMED = ("functions", "log_groups", "machines", "tables", "buckets")


def destroy(ground: Ground) -> Figures:
    """
    Every stack of the stage, and what steps have made beside them.

    Raises:
        NotSo: something is left; its names are in the message.
    """
    stacks = [stack_name(ground.stage), data_stack_name(ground.stage)]
    there = [each for each in stacks if _status(ground, each)]
    parts = remains.parts(ground.place, *there)
    _end_beside(ground)
    for each in there:
        _settle(ground, each)
    for each in there:
        remains.empty(ground.place, _in_data(ground, each, parts))
        _delete(ground, each)
    _check_left(ground, parts)
    keys = sum(each.kind == "AWS::KMS::Key" for each in parts.values())
    return {
        "resources taken away": len(parts),
        "keys that AWS deletes in 30 days, free of charge until then": keys,
        "left": 0,
    }


def sandboxes(clients: remains.Clients) -> Iterator[dict[str, str]]:
    """Every sandbox in the account and Region: its name, a stack's status, when it expires."""
    seen = set()
    for page in clients.client("cloudformation").get_paginator("describe_stacks").paginate():
        for stack in page["Stacks"]:
            name = stack["StackName"].removeprefix(stack_name("")).removesuffix("-data")
            if name.startswith(settings.SANDBOX) and name not in seen:
                seen.add(name)
                tags = {each["Key"]: each["Value"] for each in stack.get("Tags", ())}
                expires = tags.get(EXPIRES_TAG, "unknown")
                yield {"stage": name, "status": stack["StackStatus"], "expires": expires}


def _status(ground: Ground, stack: str) -> str | None:
    return Account(ground.client).stack_status(stack)


def _settle(ground: Ground, stack: str) -> None:
    """Wait until CloudFormation can be told to delete it."""

    def steady() -> bool:
        status = _status(ground, stack) or ""
        return not status.endswith("_IN_PROGRESS") or status in _DELETABLE

    ground.until(steady, STEADY_S, f"{stack} at rest", _LOOK_S)


def _in_data(ground: Ground, stack: str, parts: remains.Parts) -> remains.Parts:
    """The buckets of the data stack, once nobody writes to them any more."""
    return parts if stack == data_stack_name(ground.stage) else {}


def _delete(ground: Ground, stack: str) -> None:
    stacks = ground.client("cloudformation")
    for attempt in range(1, ATTEMPTS + 1):
        stacks.delete_stack(StackName=stack)

        def ended() -> str | None:
            status = _status(ground, stack) or "gone"
            return None if status.endswith("_IN_PROGRESS") else status

        status = ground.until(ended, GONE_S, f"{stack} deleted", _LOOK_S)
        if status == "gone":
            return
        if attempt == ATTEMPTS:
            raise NotSo(f"{stack} is {status}: {'; '.join(_reasons(stacks, stack))}")


def _reasons(stacks: Any, stack: str) -> list[str]:
    events = stacks.describe_stack_events(StackName=stack)["StackEvents"]
    return [
        f"{each['LogicalResourceId']}: {each.get('ResourceStatusReason', 'no reason')}"
        for each in events
        if each["ResourceStatus"] == "DELETE_FAILED" and each["LogicalResourceId"] != stack
    ]


def _end_beside(ground: Ground) -> None:
    """What steps have started that a stack does not know, or cannot delete while it runs."""
    machines = ground.client("stepfunctions")
    for page in machines.get_paginator("list_state_machines").paginate():
        for each in page["stateMachines"]:
            if each["name"] == ground.named("export"):
                machines.delete_state_machine(stateMachineArn=each["stateMachineArn"])
    if not ground.place.emulated:
        with suppress(ClientError, BotoCoreError):  # else the stack says what is in its way
            end_applications(ground)


def end_applications(ground: Ground) -> None:
    """Stop what runs on EMR Serverless for the stage, and delete what a step has made there."""
    for application in _applications(ground):
        _end_application(ground, application)


def _applications(ground: Ground) -> list[dict[str, Any]]:
    pages = ground.client("emr-serverless").get_paginator("list_applications").paginate()
    return [
        each
        for page in pages
        for each in page["applications"]
        if each["name"].startswith(ground.named("")) and each["state"] != "TERMINATED"
    ]


def _end_application(ground: Ground, application: dict[str, Any]) -> None:
    jobs, asked = ground.client("emr-serverless"), {"applicationId": application["id"]}
    for page in jobs.get_paginator("list_job_runs").paginate(**asked, states=list(_UNDER_WAY)):
        for run in page["jobRuns"]:
            jobs.cancel_job_run(**asked, jobRunId=run["id"])

    def stopped() -> bool:
        state = jobs.get_application(**asked)["application"]["state"]
        if state == "STARTED":
            try:
                jobs.stop_application(**asked)
            except ClientError as error:  # a job is ending yet
                if error.response["Error"]["Code"] != "ValidationException":
                    raise
        return state not in _RUNNING

    ground.until(stopped, GONE_S, f"{application['name']} at rest", _LOOK_S)
    if application["name"] == ground.named("reach"):
        jobs.delete_application(**asked)


def _check_left(ground: Ground, parts: remains.Parts) -> None:
    """
    Looked more than once: a machine is there until its last execution has ended, and a call that
    ended late has written its log anew.
    """
    deadline = time.monotonic() + LINGER_S
    while True:
        for group in Account(ground.client).log_groups(ground.stage):
            ground.client("logs").delete_log_group(logGroupName=group)
        left = sorted(_left(ground, parts))
        if not left:
            return
        if time.monotonic() > deadline:
            raise NotSo(f"still there: {', '.join(left)}")
        ground.sleep(_LOOK_S)


def _left(ground: Ground, parts: remains.Parts) -> Iterator[str]:
    stores = (parts[name] for name in remains.left(ground.place, parts))
    yield from (f"{each.kind} {each.name}" for each in stores)
    account = Account(ground.client)
    for kind in _NAMED:
        yield from (f"{kind}: {name}" for name in getattr(account, kind)(ground.stage))
    if not ground.place.emulated:
        yield from (f"EMR Serverless: {each['name']}" for each in _applications(ground))

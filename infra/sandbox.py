"""Deploy a stage, run pytest on tests/aws and tests/conformance against it, and destroy it.

`make sandbox` runs this program in an AWS account, `make deploy-smoke` on MiniStack.
docs/operations/SANDBOX.md describes a run and its tests.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import click
from botocore.exceptions import BotoCoreError, ClientError, WaiterError

from infra import BUILD, ROOT, cdk_cli, emulator, settings, synth
from tidings.aws.config import stages
from tidings.aws.config.stages import (
    ACCOUNT_STACK,
    EXPIRES_TAG,
    Account,
    data_stack_name,
    is_fixed_name,
    is_of_stage,
    stack_name,
)

FAILED, LEFT, INTERRUPTED = 1, 3, 130
EXPIRES_H = 4  # hours until the time in the stage's expiry tag; twice the duration of a run
# The cost of a run at list prices of us-east-1: 0.96 for EMR Serverless, 0.44 for the backlog, 0.35
# for functions that still serve an event stream after the suite has disconnected, 0.25 for load
# tests, 0.10 for a key and alarms, and 0.07 for 600 MB of outgoing data.
DOLLARS = 2.20
STREAMS_QUOTA = 500  # concurrent functions that the suite needs for three new streams a second
# The timeout of the deletion of a stack, and of the stop of an EMR Serverless application. The
# deletion of EMR Serverless applications and of aliases of functions takes minutes.
GONE_S = 1800
LINGER_S = 120  # how long resources may remain that AWS deletes with a delay
LOOK_S = 5
ATTEMPTS = 2  # a stack's deletion may be refused because of a dependency, and succeed later
NO_TESTS = 5  # pytest's exit code if its options select no test
_TIDINGS = str(Path(sys.executable).parent / "tidings")
# States in which CloudFormation refuses to delete a stack; a stack being created can be deleted.
_BUSY = (
    *("UPDATE", "UPDATE_COMPLETE_CLEANUP", "UPDATE_ROLLBACK"),
    *("UPDATE_ROLLBACK_COMPLETE_CLEANUP", "ROLLBACK"),
)
_STARTED = ("STARTING", "STARTED", "STOPPING")  # states of an EMR Serverless application
_JOBS = ("SUBMITTED", "PENDING", "SCHEDULED", "QUEUED", "RUNNING")
_DESTROY = "`python -m infra.sandbox --destroy {}`"
_ASK = """\
This deploys the stage {} to the account {} in {}, tests it and
deletes it. It takes some two hours.
By list prices of us-east-1 it costs at most ${:.2f}.
Until the stage is deleted, anyone who finds its addresses can read it and post to it.
These resources stay: the CDK's bootstrap stack and its assets, and the stack
tidings-account with the logging role of API Gateway."""
_NAMED = ("functions", "log_groups", "machines", "tables", "buckets")


class Failed(Exception):
    """A command of the run failed, or resources of the stage are left; the message has details."""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A run with the name of its stage; *emulator* is the emulator's URL, or "" on AWS."""

    stage: str
    emulator: str = ""

    @property
    def folder(self) -> Path:
        return BUILD / "sandbox" / self.stage

    def deploy(self) -> None:
        """Run `tidings doctor`, deploy the stage, and check that `cdk diff` finds no difference."""
        assembly, aws = self.folder / "assembly", Account(client)
        expires = datetime.now(UTC) + timedelta(hours=EXPIRES_H)
        synth.synth(assembly, stage=self.stage, expires=f"{expires:%Y-%m-%dT%H:%M:%SZ}")
        if self.emulator:
            emulator.adapt(assembly)
        cdk = cdk_cli.Cdk(assembly, {})
        if aws.bootstrap_version() is None:
            cdk.bootstrap(*_account())
        doctor = [_TIDINGS, "doctor", "--stage", self.stage, "--json"]
        done = subprocess.run(doctor, cwd=ROOT, capture_output=True, text=True, check=False)
        if not done.stdout:
            raise Failed(f"`tidings doctor` ended with {done.returncode}: {done.stderr[-1500:]}")
        findings = [json.loads(line) for line in done.stdout.splitlines()]
        for each in findings:
            say(f"doctor: {each['check']}: {each['verdict']}: {each['says']}")
        if any(each["verdict"] == "fails" for each in findings):
            raise Failed("the deployment would fail; see the findings of `tidings doctor` above")
        deployed = [data_stack_name(self.stage), stack_name(self.stage)]
        # If API Gateway already has a logging role that is not ours, the account's stack is not
        # deployed, because it would replace this role.
        if ("gateway-role", "note") not in {(f["check"], f["verdict"]) for f in findings}:
            deployed.insert(0, ACCOUNT_STACK)
        for each in deployed:
            say(f"cdk deploy {each}")
            cdk.deploy(each, exclusively=True)
        for each in deployed:
            cdk.same(each)

    def test(self, options: tuple[str, ...]) -> int:
        """Run pytest on both suites with additional *options*; return 0 if no test failed."""
        skips = ["23.7=the removal of a feed takes a quarter of an hour"]
        conformance = ["-n", "4", "--dist", "load"]  # cases wait for time limits
        if self.emulator:
            case = "tests/conformance/test_conformance.py::test_law[server-{}]"
            conformance = [f"--deselect={case.format(each)}" for each in emulator.NOT_HERE]
        elif Account(client).concurrency().quota < STREAMS_QUOTA:
            skips.append("7.*=too few functions of the account may run at once")
        conformance.append(f"--skip-rules={','.join(skips)}")
        codes = set()
        with self._addresses() as addresses:
            where = (
                *(f"--stage={self.stage}", f"--base-url={addresses.feed}"),
                *(f"--stream-url={addresses.stream}", f"--ws-url={addresses.sockets}"),
            )
            for suite, own in (("conformance", conformance), ("aws", [])):
                pytest = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"]
                results = f"--junitxml={self.folder / suite}.xml"
                command = [*pytest, f"tests/{suite}", results, *where, *own, *options]
                codes.add(subprocess.run(command, cwd=ROOT, check=False).returncode)
        return 0 if codes <= {0, NO_TESTS} else FAILED

    @contextmanager
    def _addresses(self) -> Iterator[stages.Addresses]:
        if not self.emulator:
            yield stages.addresses(self.stage, client("cloudformation"))
            return
        (described,) = settings.choose_stages(self.stage)
        with emulator.serve_stage(described, self.folder / "assembly", self.emulator) as addresses:
            yield addresses

    def destroy(self) -> None:
        """Delete the stacks, and the other resources that tests have created for the stage.

        Raises:
            Failed: resources of the stage are left.
        """
        say(f"deleting the stage {self.stage}")
        if not self.emulator:
            end_applications(self.stage)
        for stack in (stack_name(self.stage), data_stack_name(self.stage)):
            self._delete(stack)
        deadline = time.monotonic() + LINGER_S
        while left := self._remaining():
            if time.monotonic() > deadline:
                raise Failed(f"these resources still exist: {', '.join(left)}")
            time.sleep(LOOK_S)

    def _delete(self, stack: str) -> None:
        aws, stacks = Account(client), client("cloudformation")
        while (aws.stack_status(stack) or "").removesuffix("_IN_PROGRESS") in _BUSY:
            time.sleep(LOOK_S)
        for _ in range(ATTEMPTS):
            if aws.stack_status(stack) is None:
                return
            if stack == data_stack_name(self.stage):
                _empty_buckets(stack)
            stacks.delete_stack(StackName=stack)
            with suppress(WaiterError):
                stacks.get_waiter("stack_delete_complete").wait(
                    StackName=stack, WaiterConfig={"Delay": LOOK_S, "MaxAttempts": GONE_S // LOOK_S}
                )
        if status := aws.stack_status(stack):
            events = stacks.describe_stack_events(StackName=stack)["StackEvents"]
            failed = (each for each in events if each["ResourceStatus"] == "DELETE_FAILED")
            reasons = [each.get("ResourceStatusReason", "") for each in failed]
            raise Failed(f"{stack} is {status}: {'; '.join(reasons)}")

    def _remaining(self) -> list[str]:
        """Delete logs that late calls have recreated; return the other resources that are left."""
        aws = Account(client)
        for group in aws.log_groups(self.stage):
            client("logs").delete_log_group(logGroupName=group)
        found = [f"{kind}: {name}" for kind in _NAMED for name in getattr(aws, kind)(self.stage)]
        applications = () if self.emulator else _applications(self.stage)
        return found + [f"EMR Serverless: {each['name']}" for each in applications]


def client(service: str) -> Any:
    """Return a boto3 client for *service*."""
    made: Any = boto3.client  # `Any`, because boto3's stubs require a literal service name
    return made(service)


def say(line: str) -> None:
    click.echo(f"{datetime.now():%H:%M:%S}  {line}", err=True)


def end_applications(stage: str) -> None:
    """Stop the EMR Serverless applications of *stage*, and delete the one that a test created."""
    jobs = client("emr-serverless")
    for application in _applications(stage):
        application_id = {"applicationId": application["applicationId"]}
        for page in jobs.get_paginator("list_job_runs").paginate(
            **application_id, states=list(_JOBS)
        ):
            for run in page["jobRuns"]:
                jobs.cancel_job_run(**application_id, jobRunId=run["id"])
        deadline = time.monotonic() + GONE_S
        while jobs.get_application(**application_id)["application"]["state"] in _STARTED:
            if time.monotonic() > deadline:
                raise Failed(f"{application['name']} does not stop")
            with suppress(jobs.exceptions.ValidationException):  # refused until all jobs have ended
                jobs.stop_application(**application_id)
            time.sleep(LOOK_S)
        if application["name"] == f"{stack_name(stage)}-reach":
            jobs.delete_application(**application_id)


def _applications(stage: str) -> list[dict[str, Any]]:
    jobs = client("emr-serverless")
    listed = (
        each
        for page in jobs.get_paginator("list_applications").paginate()
        for each in page["applications"]
    )
    applications = [
        jobs.get_application(applicationId=each["id"])["application"]
        for each in listed
        if each["state"] != "TERMINATED"
    ]
    return [
        each
        for each in applications
        if is_of_stage(stage, each.get("tags", {}), untagged=is_fixed_name(stage, each["name"]))
    ]


def _empty_buckets(stack: str) -> None:
    """Delete the objects in the buckets of *stack*; CloudFormation only deletes empty buckets."""
    pages = client("cloudformation").get_paginator("list_stack_resources")
    parts = (e for page in pages.paginate(StackName=stack) for e in page["StackResourceSummaries"])
    objects = client("s3")
    for each in parts:
        if each["ResourceType"] == "AWS::S3::Bucket" and each.get("PhysicalResourceId"):
            bucket = each["PhysicalResourceId"]
            for page in objects.get_paginator("list_objects_v2").paginate(Bucket=bucket):
                if keys := [{"Key": entry["Key"]} for entry in page.get("Contents", ())]:
                    objects.delete_objects(Bucket=bucket, Delete={"Objects": keys})


def _account() -> tuple[str, str]:
    """Return account and Region of the credentials; set the Region for both boto3 and the CDK."""
    region = os.environ.get("AWS_REGION") or boto3.Session().region_name or ""
    os.environ.update({"AWS_REGION": region, "AWS_DEFAULT_REGION": region})
    return str(client("sts").get_caller_identity()["Account"]), region


def _sandboxes() -> Iterator[str]:
    """Yield a line for each sandbox of the account and Region."""
    for page in client("cloudformation").get_paginator("describe_stacks").paginate():
        for stack in page["Stacks"]:
            if stack["StackName"].startswith(stack_name(settings.SANDBOX)):
                tags = {each["Key"]: each["Value"] for each in stack.get("Tags", ())}
                expires = tags.get(EXPIRES_TAG, "unknown")
                yield f"{stack['StackName']}  {stack['StackStatus']}  expires {expires}"


def carry_out(run: Sandbox, options: tuple[str, ...], *, keep: bool = False) -> int:
    """Deploy, test and report; then destroy the stage, unless *keep*. Return the exit code."""
    code = FAILED
    try:
        run.deploy()
        code = run.test(options)
    except KeyboardInterrupt:
        say("interrupted: the stage is deleted now, unless you interrupt again")
        keep, code = False, INTERRUPTED
    except (Failed, synth.SynthFailed, cdk_cli.CdkFailed, emulator.EmulatorFailed) as problem:
        say(str(problem))
    finally:
        if keep:
            test = f"`pytest tests/aws --stage {run.stage}`"
            say(f"kept: test the stage with {test}; delete it with {_DESTROY.format(run.stage)}")
        elif not _destroy(run):
            code = LEFT
    return code


def _destroy(run: Sandbox) -> bool:
    try:
        run.destroy()
    except (Failed, KeyboardInterrupt, BotoCoreError, ClientError) as problem:
        say(f"the stage still exists: {problem}; delete it with {_DESTROY.format(run.stage)}")
        return False
    say("the stage is deleted completely")
    return True


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--emulator", "emulated", is_flag=True, help="Start MiniStack and run there.")
@click.option("--yes", is_flag=True, help="Spend money without a confirmation.")
@click.option("--keep", is_flag=True, help="Keep the stage; --destroy deletes it.")
@click.option(
    "--destroy",
    metavar="STAGE",
    help="Delete the stage of a run or of a developer, and do nothing else.",
)
@click.option(
    "--list", "list_", is_flag=True, help="List the sandboxes of the account, and do nothing else."
)
@click.argument("pytest_options", nargs=-1, type=click.UNPROCESSED)
def main(
    emulated: bool,
    yes: bool,
    keep: bool,
    destroy: str | None,
    list_: bool,
    pytest_options: tuple[str, ...],
) -> None:
    """Deploy a stage to your account, run the tests against it, and delete it.

    Both suites get PYTEST_OPTIONS, for example `-k smoke` or `--subnet ID`. The exit code is 0 if
    no test failed and the stage is deleted, 1 if a test or a step failed, 3 if a part of the stage
    is left, 130 after Ctrl-C.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    run = Sandbox(f"{settings.SANDBOX}{secrets.token_hex(3)}")
    if emulated:
        with emulator.running(BUILD / "sandbox" / "emulator") as variables:
            os.environ.update(variables)
            run = Sandbox(run.stage, variables["AWS_ENDPOINT_URL"])
            sys.exit(carry_out(run, pytest_options))
    try:
        account, region = _account()
    except (BotoCoreError, ClientError) as error:
        raise click.ClickException(f"AWS: {error}") from None
    if list_:
        click.echo("\n".join(_sandboxes()) or "No sandbox exists in this account and Region.")
    elif destroy:
        if destroy in {stage.name for stage in settings.STAGES}:
            raise click.UsageError(f"{destroy} is a shared stage; delete it with `cdk destroy`")
        sys.exit(0 if _destroy(Sandbox(destroy)) else LEFT)
    else:
        if not yes:
            click.echo(_ASK.format(run.stage, account, region, DOLLARS), err=True)
            click.confirm("Continue?", abort=True, err=True)
        sys.exit(carry_out(run, pytest_options, keep=keep))


if __name__ == "__main__":
    main()

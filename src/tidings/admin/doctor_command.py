"""`tidings doctor`: check whether the deploy of a stage would succeed in this account.

Each function `check_...` decides one check from the answers of AWS and sends no requests itself.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from typing import Any

import click

from tidings.admin.target import boto3, one_sentence_errors
from tidings.aws.config.stages import (
    LOG_DAYS,
    REGIONS,
    Account,
    Concurrency,
    data_stack_name,
    name_problem,
    stack_name,
)
from tidings.client.cli.main import CHECK_CODES, FOUND

LEFT_MIN = 100  # concurrent executions that Lambda keeps for functions without a reservation
# The concurrent executions that suffice in production. Each reader of a stream, follower, replay
# and request uses one execution. A new account has 10 executions.
QUOTA_ENOUGH = 1000
BOOTSTRAP_MIN = 6  # the oldest version of the CDK's bootstrap that the CDK's templates accept
SHOWN_MAX = 5  # a sentence lists this many names, and counts the others
STEADY = ("CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE", "IMPORT_COMPLETE")
# States of a stack that was never completed; the CDK deletes such a stack and creates it again.
AGAIN = ("ROLLBACK_COMPLETE", "REVIEW_IN_PROGRESS")


class Verdict(StrEnum):
    OK = "ok"
    NOTE = "note"  # a deploy would succeed, but the operator should consider the remedy
    FAILS = "fails"  # a deploy would be rolled back or refused
    UNKNOWN = "unknown"  # the query was denied or failed


OK, NOTE, FAILS, UNKNOWN = Verdict


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of a check: *says* is the fact; *do* is the remedy, empty if none is needed."""

    verdict: Verdict
    says: str
    do: str = ""


def check_name(stage: str) -> CheckResult:
    problem = name_problem(stage)
    if problem is None:
        return CheckResult(OK, stage)
    return CheckResult(FAILS, f"{stage!r} must be {problem}", "choose another name")


def check_region(current: str | None) -> CheckResult:
    """Judge the Region of the credentials."""
    if current is None:
        return CheckResult(FAILS, "no Region is configured", "set AWS_REGION")
    if current not in REGIONS:
        return CheckResult(
            FAILS,
            f"{current} has no function URLs, or lacks another service of a stage",
            f"deploy to one of {', '.join(REGIONS)}",
        )
    return CheckResult(OK, current)


def check_log_days(days: int) -> CheckResult:
    if days not in LOG_DAYS:
        accepted = ", ".join(map(str, LOG_DAYS))
        return CheckResult(
            FAILS,
            f"CloudWatch Logs cannot keep logs for {days} days",
            f"set log_days in infra/settings.py to one of {accepted}",
        )
    return CheckResult(OK, f"{days}")


def check_concurrency(current: Concurrency, wanted: int, *, deployed: bool) -> CheckResult:
    """Decide whether *wanted* executions can be reserved.

    A *deployed* stage may have reserved them already.
    """
    remaining = current.quota - current.reserved - wanted
    says = f"{current.quota} concurrent executions, {current.reserved} of them reserved"
    if wanted and remaining < LEFT_MIN and not deployed:
        return CheckResult(
            FAILS,
            f"{says}; {wanted} more would leave {remaining}, and Lambda keeps {LEFT_MIN}",
            "ask AWS for more concurrent executions, or remove streams_max from infra/settings.py",
        )
    if current.quota < QUOTA_ENOUGH:
        return CheckResult(
            NOTE,
            f"{says}; each reader of a stream uses one of them",
            f"ask AWS for {QUOTA_ENOUGH} concurrent executions before production use",
        )
    if not wanted:
        return CheckResult(
            NOTE,
            f"{says}; readers of streams are not limited and may use all of them",
            f"set streams_max in infra/settings.py, at most {remaining - LEFT_MIN}, so that the"
            " rest is left for posts, lists and relays; if it is set, pass its value as"
            " --streams-max",
        )
    return CheckResult(OK, says)


def check_bootstrap(version: int | None) -> CheckResult:
    if version is None or version < BOOTSTRAP_MIN:
        needed = f"version {BOOTSTRAP_MIN} of the CDK's bootstrap is required"
        says = f"{needed}; the account has {'none' if version is None else f'version {version}'}"
        return CheckResult(FAILS, says, "run cdk bootstrap with these credentials")
    return CheckResult(OK, f"version {version}")


def is_deployed(status: str | None) -> bool:
    return status is not None and status not in AGAIN


def check_stack(status: str | None) -> CheckResult:
    if status is None or not is_deployed(status):
        return CheckResult(OK, "a first deploy creates it")
    if status in STEADY:
        return CheckResult(OK, f"{status}: a deploy updates it")
    if status.endswith("_IN_PROGRESS"):
        return CheckResult(FAILS, status, "wait until CloudFormation is done")
    return CheckResult(
        FAILS,
        status,
        "look at the stack's events in CloudFormation; continue the rollback, or delete the stack",
    )


def check_data(status: str | None, *, stage: str, deployed: bool) -> CheckResult:
    """Judge the stack of tables and buckets, which must exist if the stage is *deployed*."""
    if deployed and status is None:
        return CheckResult(
            FAILS,
            f"tidings-{stage} is deployed and tidings-{stage}-data is missing",
            "restore its tables (docs/operations/RUNBOOKS.md), or delete the stack of the stage:"
            " a deploy would create empty tables",
        )
    return check_stack(status)


def check_names(existing: Sequence[str], *, deployed: bool) -> CheckResult:
    """Judge existing resources with fixed names; they belong to the stage if it is *deployed*."""
    if deployed:
        return CheckResult(OK, f"{len(existing)}, of the stage itself")
    if existing:
        return CheckResult(
            FAILS,
            f"already existing: {_some(existing)}; a first deploy would create them",
            "delete them if their content is not needed, or give the stage another name",
        )
    return CheckResult(OK, "no name is taken")


def check_remains(remaining: Sequence[str], *, deployed: bool) -> CheckResult:
    """Judge resources with generated names, which do not conflict but may contain data."""
    if deployed or not remaining:
        return check_names(remaining, deployed=deployed)
    return CheckResult(
        NOTE,
        f"left by an earlier stack: {_some(remaining)}; they do not conflict with a deploy",
        "restore from them (docs/operations/RUNBOOKS.md), or delete them",
    )


def check_gateway_role(arn: str | None, *, deployed: bool) -> CheckResult:
    if arn is None or deployed:
        says = "a first deploy sets it" if arn is None else f"set: {arn}"
        return CheckResult(OK, says)
    return CheckResult(
        NOTE,
        f"API Gateway writes the account's logs as {arn}; tidings-account would set its own role",
        "accept this, or leave that stack out with cdk deploy --exclusively"
        " (docs/operations/DEPLOY.md)",
    )


def unknown_result(why: object) -> CheckResult:
    return CheckResult(UNKNOWN, f"not checked: {why}", "check this in the console")


def _some(listed: Sequence[str]) -> str:
    more = f" and {len(listed) - SHOWN_MAX} more" if len(listed) > SHOWN_MAX else ""
    return f"{', '.join(listed[:SHOWN_MAX])}{more}"


_KINDS = {
    "functions": (Account.functions, check_names),
    "log-groups": (Account.log_groups, check_names),
    "state-machines": (Account.machines, check_names),
    "tables": (Account.tables, check_remains),
    "buckets": (Account.buckets, check_remains),
}


@click.command(epilog=CHECK_CODES)
@click.option("--stage", required=True, metavar="NAME", help="The stage: dev, staging, prod.")
@click.option(
    "--streams-max",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    metavar="N",
    help="Value of streams_max in infra/settings.py: the concurrency to reserve.",
)
@click.option(
    "--log-days",
    type=int,
    metavar="N",
    help="Value of log_days in infra/settings.py.  [default: not checked]",
)
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each check.")
def doctor(stage: str, streams_max: int, log_days: int | None, as_json: bool) -> None:
    """Check whether the deploy of the stage NAME would succeed in this account.

    The checks cover the name, the Region, the Lambda concurrency, the CDK's bootstrap, the stacks,
    names already in use and the logging role of API Gateway. Nothing is changed. The exit code is 3
    if a deploy would fail, and 1 if a check is unknown because the credentials do not permit it.

    \b
    Examples:
      tidings doctor --stage dev
      tidings doctor --stage prod --streams-max 400 --json
    """
    with one_sentence_errors():
        results = {"name": check_name(stage), "region": check_region(boto3().Session().region_name)}
        if log_days is not None:
            results["log-days"] = check_log_days(log_days)
        if all(each.verdict is not FAILS for each in results.values()):
            results |= _results(Account(boto3().client), stage, streams_max)
    for check, each in results.items():
        as_line = f"{each.verdict:<8} {check}: {each.says}"
        do = f"\n{'':<9}do: {each.do}" if each.do else ""
        click.echo(json.dumps({"check": check, **asdict(each)}) if as_json else as_line + do)
    verdicts = {each.verdict for each in results.values()}
    sys.exit(FOUND if FAILS in verdicts else UNKNOWN in verdicts)


def _results(account: Account, stage: str, streams_max: int) -> Iterator[tuple[str, CheckResult]]:
    from botocore.exceptions import ClientError  # noqa: TID251 (of the operator's requests)

    def result(ask: Callable[[], Any], decide: Callable[[Any], CheckResult]) -> CheckResult:
        try:
            return decide(ask())
        except ClientError as error:
            return unknown_result(error)

    deployed = False
    try:
        status = account.stack_status(stack_name(stage))
        data = account.stack_status(data_stack_name(stage))
    except ClientError as error:  # it is then unknown whether existing names belong to the stage
        yield from ((check, unknown_result(error)) for check in ("stack", "data", *_KINDS))
    else:
        deployed = is_deployed(status)
        yield "stack", check_stack(status)
        yield "data", check_data(data, stage=stage, deployed=deployed)
        for check, (ask, decide) in _KINDS.items():
            yield check, result(partial(ask, account, stage), partial(decide, deployed=deployed))
    room = partial(check_concurrency, wanted=streams_max, deployed=deployed)
    yield "concurrency", result(account.concurrency, room)
    yield "bootstrap", result(account.bootstrap_version, check_bootstrap)
    role = partial(check_gateway_role, deployed=deployed)
    yield "gateway-role", result(account.gateway_role, role)

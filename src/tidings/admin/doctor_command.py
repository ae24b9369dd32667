"""`tidings doctor`: check whether the deploy of a stage would succeed in this account."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

import boto3  # noqa: TID251 an operator's own credentials and profile, not a function's
import click
from botocore.exceptions import ClientError  # noqa: TID251 see above

from tidings.admin import diagnosis
from tidings.admin.diagnosis import Finding, Verdict
from tidings.admin.target import one_sentence_errors
from tidings.aws.config.stages import Account, data_stack_name, stack_name
from tidings.client.cli.main import EXIT_CODES

_KINDS = {
    "functions": (Account.functions, diagnosis.names),
    "log-groups": (Account.log_groups, diagnosis.names),
    "state-machines": (Account.machines, diagnosis.names),
    "tables": (Account.tables, diagnosis.remains),
    "buckets": (Account.buckets, diagnosis.remains),
}


@click.command(epilog=EXIT_CODES)
@click.option("--stage", required=True, metavar="NAME", help="The stage: dev, staging, prod.")
@click.option(
    "--streams-max",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    metavar="N",
    help="Its streams_max of infra/settings.py: what it would set aside.",
)
@click.option("--json", "as_json", is_flag=True, help="A line of JSON a check.")
def doctor(stage: str, streams_max: int, as_json: bool) -> None:
    """
    Ask the account whether a deploy of the stage NAME would go through.

    It looks at the Lambda concurrency, the CDK's bootstrap, the stacks, names that are taken and
    the logging role of API Gateway, and changes nothing. Ends with 1 where a deploy would fail.
    What the credentials may not ask is told as unknown.

    \b
    Examples:
      tidings doctor --stage dev
      tidings doctor --stage prod --streams-max 400 --json
    """
    with one_sentence_errors():
        findings = list(_findings(Account(_client), stage, streams_max))
    for each in findings:
        click.echo(json.dumps(asdict(each)) if as_json else _line(each))
    sys.exit(any(each.verdict is Verdict.FAILS for each in findings))


def _client(service: str) -> Any:
    made: Any = boto3.client  # its stubs require the service name as a literal
    return made(service)


def _findings(account: Account, stage: str, streams_max: int) -> Iterator[Finding]:
    deployed = False
    try:
        status = account.stack_status(stack_name(stage))
        data = account.stack_status(data_stack_name(stage))
    except ClientError as error:  # then the owner of the names is unknown
        yield from (diagnosis.not_asked(check, str(error)) for check in ("stack", "data", *_KINDS))
    else:
        deployed = diagnosis.is_deployed(status)
        yield diagnosis.stack("stack", status)
        yield diagnosis.data(data, stage=stage, deployed=deployed)
        for check, (ask, judge) in _KINDS.items():
            judged = partial(judge, check, deployed=deployed)
            yield _finding(check, partial(ask, account, stage), judged)
    room = partial(diagnosis.concurrency, wanted=streams_max, deployed=deployed)
    yield _finding("concurrency", account.concurrency, room)
    yield _finding("bootstrap", account.bootstrap_version, diagnosis.bootstrap)
    role = partial(diagnosis.gateway_role, deployed=deployed)
    yield _finding("gateway-role", account.gateway_role, role)


def _finding(check: str, ask: Callable[[], Any], judge: Callable[[Any], Finding]) -> Finding:
    """Return the finding of *judge* on the answer, or that these credentials may not query it."""
    try:
        return judge(ask())
    except ClientError as error:
        return diagnosis.not_asked(check, str(error))


def _line(finding: Finding) -> str:
    do = f"\n{'':<9}do: {finding.do}" if finding.do else ""
    return f"{finding.verdict:<8} {finding.check}: {finding.says}{do}"

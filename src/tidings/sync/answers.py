"""`tidings sync approve` and `tidings sync reject`: answer a plan that waits for approval."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click

from tidings.client.cli.main import EXIT_CODES
from tidings.core.sync import workflow

_MISSING = ("NoSuchKey", "AccessDenied")  # returned by S3 without the permission to list the bucket
_OVER = ("TaskDoesNotExist", "TaskTimedOut", "InvalidToken")


class NotWaiting(Exception):
    """No sync waits for this answer: it does not exist, does not ask, or was already answered."""


def _answering(name: str, *, approved: bool, help: str) -> click.Command:
    @click.command(name, help=help, epilog=EXIT_CODES)
    @click.argument("id")
    @click.option("--stage", required=True, help="Its stage on AWS: dev, staging, prod.")
    def command(id: str, stage: str) -> None:
        _answer(id, stage, approved)
        click.echo(f"{'approved' if approved else 'rejected'}: {id}")

    return command


def _answer(id: str, stage: str, approved: bool) -> None:
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: TID251 as at any edge

    from tidings.aws.config import stages
    from tidings.sync.stage import client

    try:
        answer(
            id,
            approved=approved,
            bucket=stages.syncs_of(stage, client("cloudformation")).bucket,
            objects=client("s3"),
            machines=client("stepfunctions"),
        )
    except (stages.NoStage, NotWaiting, BotoCoreError, ClientError) as error:
        raise click.ClickException(str(error)) from None


def answer(id: str, *, approved: bool, bucket: str, objects: Any, machines: Any) -> None:
    """
    Approve or reject the plan of the sync *id*.

    *objects* and *machines* are clients of S3 and of Step Functions.

    Raises:
        NotWaiting: no sync waits for this answer.
    """
    from botocore.exceptions import ClientError  # noqa: TID251 as at any edge

    key = workflow.approval(id)
    try:
        stored: bytes = objects.get_object(Bucket=bucket, Key=key)["Body"].read()
        # Step Functions may have encoded the string as JSON.
        token = stored.decode().strip().strip('"')
        machines.send_task_success(taskToken=token, output=json.dumps({"approved": approved}))
    except ClientError as error:
        if error.response["Error"]["Code"] in (*_MISSING, *_OVER):
            raise NotWaiting(f"the sync {id} does not wait for an answer") from None
        raise
    objects.delete_object(Bucket=bucket, Key=key)


ANSWERS = {
    "approve": _answering("approve", approved=True, help="Let the plan of the sync ID be applied."),
    "reject": _answering("reject", approved=False, help="Give up the plan of the sync ID."),
}


class WithAnswers(click.Command):
    """A command with a first argument that may be one of `ANSWERS`, or `table`."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: object,
    ) -> click.Context:
        answer = _named(args[0]) if args else None
        make: Callable[..., click.Context] = super().make_context
        if answer is not None:
            make, info_name, args = answer.make_context, f"{info_name} {args[0]}", args[1:]
        return make(info_name, args, parent, **extra)


def _named(name: str) -> click.Command | None:
    if name != "table":
        return ANSWERS.get(name)
    from tidings.sync.table.command import table

    return table

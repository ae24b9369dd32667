"""
Tables in the twin's store that belong to other applications and produce operations, as in `infra`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError  # noqa: TID251 see engine.py

from tidings.aws.config import deployment
from tidings.core.errors import Rejected
from tidings.core.ingest.table_capture import parse
from tidings.server.problems import Problem
from tidings.twin.options import Options
from tidings.twin.store import engine

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

LOOK_S = 0.5  # the table may be created at any time


@dataclass(frozen=True, slots=True)
class TableProducer:
    """
    A producing table of the store.

    *table* is its name. Its stream invokes *function*, which appends to *feed*.
    """

    table: str
    feed: str
    function: deployment.Function

    @property
    def source(self) -> deployment.StreamSource:
        return replace(deployment.CAPTURE_SOURCE, table=self.table, function=self.function.name)


def wanted(options: Options) -> Sequence[TableProducer]:
    """
    Return the table producers configured by *options*.

    Raises:
        Problem: a capture is invalid.
    """
    return [_producer(text) for text in options.captures]


async def stream_of(url: str, table: str) -> str:
    """Wait until *table* has a stream; return its ARN."""
    client = engine.tables_client(url)
    while (arn := await asyncio.to_thread(_stream, client, table)) is None:
        await asyncio.sleep(LOOK_S)
    return arn


def _stream(client: DynamoDBClient, table: str) -> str | None:
    try:
        return client.describe_table(TableName=table)["Table"].get("LatestStreamArn")
    except (BotoCoreError, ClientError):
        return None


def _producer(text: str) -> TableProducer:
    table, separator, capture = text.partition("=")
    if not separator or not table:
        raise Problem(f"--capture {text}: must be TABLE=JSON")
    try:
        feed = parse(capture).feed
    except Rejected as error:
        raise Problem(f"--capture {table}: {error}") from None
    name = f"{deployment.CAPTURE.name}-{table}"
    variables = {"TIDINGS_CAPTURE": capture}
    return TableProducer(table, feed, replace(deployment.CAPTURE, name=name, environment=variables))

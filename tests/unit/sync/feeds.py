"""The twin of tests that sync, its feeds, and their contents."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager

from tests.twin import Twin, store
from tidings.aws.dynamodb.log import DynamoDBLog
from tidings.core.model.operations import Operation, event_of, parse_line
from tidings.core.model.pages import Page

FEEDS = [f"f{number}" for number in range(40)]
UNUSED = iter(FEEDS)


def twin() -> AbstractContextManager[Twin]:
    return Twin("--feeds", ",".join(FEEDS))


def pages(twin: Twin, feed: str) -> Sequence[Page]:
    """Return the pages of the log."""
    client = store.tables_client(twin.dynamodb_url)
    return DynamoDBLog(client, store.table_name("log"), store.table_name("control")).read(feed, 0)


def log_operations(twin: Twin, feed: str) -> list[tuple[str, Operation]]:
    """Return every operation of the log with its event."""
    lines = [line for page in pages(twin, feed) for line in page.lines]
    return [(event_of(line), parse_line(line)) for line in lines]


def moments(twin: Twin, feed: str) -> dict[str, str]:
    """Return the timestamp of each object's latest operation in the log."""
    operations = [json.loads(line) for page in pages(twin, feed) for line in page.lines]
    return {each["id"]: each["timestamp"] for each in operations}


def at(second: float) -> str:
    """Return the timestamp of a dump's line."""
    return f"2026-01-01T00:00:{second:06.3f}Z"

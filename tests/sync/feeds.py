"""The twin and the session of tests that sync, its feeds, and what is done with one."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from pathlib import Path

from pyspark.sql import SparkSession
from tidings.core.model.operations import Operation, event_of, parse_line
from tidings.local.running import Twin
from tidings.sync.target import on_twin

from tests import spark_session

FEEDS = [f"f{number}" for number in range(40)]
UNUSED = iter(FEEDS)


def twin() -> AbstractContextManager[Twin]:
    return Twin("--feeds", ",".join(FEEDS))


def spark(folder: Path) -> AbstractContextManager[SparkSession]:
    """Parts as many as on two cores, on the one that is left."""
    return spark_session.session(folder, parts=2, settings={})


def told(twin: Twin, feed: str) -> list[tuple[str, Operation]]:
    """Every operation of the log with its event."""
    pages = on_twin(feed, twin.dynamodb_url).log().read(feed, 0)
    return [(event_of(each), parse_line(each)) for page in pages for each in page.lines]


def moments(twin: Twin, feed: str) -> dict[str, str]:
    """The timestamp of each object's latest operation in the log."""
    pages = on_twin(feed, twin.dynamodb_url).log().read(feed, 0)
    found = [json.loads(each) for page in pages for each in page.lines]
    return {each["id"]: each["timestamp"] for each in found}


def at(second: float) -> str:
    """The moment of a dump's line."""
    return f"2026-01-01T00:00:{second:06.3f}Z"

"""The feeds of the tests' twin, and what is done with one."""

from __future__ import annotations

import json

from tidings.core.operations import Operation, event_of, parse_line
from tidings.local.running import Twin
from tidings.pipeline.place import on_twin

FEEDS = [f"f{number}" for number in range(40)]
UNUSED = iter(FEEDS)


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

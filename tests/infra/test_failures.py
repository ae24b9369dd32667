"""Which lines of a log count as failures: the filters, on lines as AWS writes them."""

from __future__ import annotations

import json
import re
from fnmatch import fnmatchcase
from typing import Any

import pytest

from infra.parts import logs
from infra.parts.logs import HTTP_FIELDS, SOCKET_FIELDS

pytestmark = pytest.mark.node
_TERM = re.compile(r'^\$\.([\w.]+) (=|!=) "([^"]*)"$')


def finds(pattern: str, line: dict[str, Any]) -> bool:
    """Match like CloudWatch's JSON patterns with these operators: absent fields match nothing."""
    inner = pattern.removeprefix("{ ").removesuffix(" }")
    return any(
        all(_holds(term, line) for term in either.split(" && ")) for either in inner.split(" || ")
    )


def _holds(term: str, line: dict[str, Any]) -> bool:
    match = _TERM.fullmatch(term)
    assert match is not None, term
    value: Any = line
    for name in match[1].split("."):
        value = value.get(name) if isinstance(value, dict) else None
    if value is None:
        return False
    return fnmatchcase(value, match[3]) == (match[2] == "=")


def report(status: str) -> dict[str, Any]:
    metrics = {"durationMs": 101.51, "billedDurationMs": 102, "memorySizeMB": 512}
    record = {"requestId": "6f7f0961", "metrics": metrics, "status": status}
    return {"time": "2026-02-20T12:31:32.123Z", "type": "platform.report", "record": record}


@pytest.mark.parametrize("status", ["error", "failure", "timeout"])
def test_a_call_that_failed_is_counted_once(status: str) -> None:
    """By its report alone, although its start, its end and our own line are there, too."""
    done = {"type": "platform.runtimeDone", "record": {"status": status}}
    ours = {"level": "ERROR", "message": "the function failed", "service": "tidings-dev"}
    start: dict[str, Any] = {"type": "platform.start", "record": {}}
    lines = [start, ours, done, report(status)]
    assert [finds(logs.FUNCTION, each) for each in lines] == [False, False, False, True]


def test_a_call_that_ended_well_is_none() -> None:
    """Nor a warning of ours, nor a line of metrics."""
    warning = {"level": "WARNING", "message": "follower stopped", "reason": "not now"}
    metrics: dict[str, Any] = {"_aws": {"Timestamp": 1}, "FramesSent": [2]}
    for line in (report("success"), warning, metrics):
        assert not finds(logs.FUNCTION, line)


@pytest.mark.parametrize("fields", [HTTP_FIELDS, SOCKET_FIELDS], ids=["http", "sockets"])
@pytest.mark.parametrize(("status", "counts"), [("200", 0), ("404", 0), ("500", 1), ("503", 1)])
def test_an_answer_of_5xx_is_one(fields: tuple[str, ...], status: str, counts: int) -> None:
    """By the line that an API writes of each request."""
    line = json.loads(json.dumps(dict.fromkeys(fields, "-") | {"status": status}))
    assert finds(logs.API, line) == bool(counts)


def test_an_execution_that_failed_or_did_not_end_is_one() -> None:
    """Not one that was stopped, nor a step that failed and was caught."""
    found = {"ExecutionFailed", "ExecutionTimedOut"}
    others = {"ExecutionStarted", "ExecutionSucceeded", "ExecutionAborted", "TaskFailed"}
    for kind in found | others:
        assert finds(logs.MACHINE, {"type": kind, "id": "1"}) == (kind in found)

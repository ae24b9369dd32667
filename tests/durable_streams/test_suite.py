"""How what the suite says is counted; `make durable-streams` runs it."""

from __future__ import annotations

import re
from typing import Any

from tests.durable_streams import suite
from tests.durable_streams.suite import Case


def said(category: str, title: str, status: str) -> dict[str, Any]:
    return {"ancestorTitles": [category, "inner"], "title": title, "status": status}


REPORT = {
    "testResults": [
        {
            "assertionResults": [
                said("Append Operations", "should append", "passed"),
                said("Append Operations", "should append again", "failed"),
                said("HEAD", "should return TTL metadata", "failed"),
                said("HEAD", "should return metadata", "passed"),
                said("Fork - Reading", "should read", "failed"),
                said("Fork - Reading", "should read on", "passed"),
                said("Reserved", "should subscribe", "skipped"),
            ]
        }
    ]
}


def test_only_what_is_left_out_may_fail() -> None:
    """By the name of the category or of the case."""
    assert suite.unexplained(suite.cases(REPORT)) == [
        Case("Append Operations", "should append again", "failed")
    ]


def test_the_table_has_a_row_for_each_category() -> None:
    """With what fails and why, and the sum."""
    assert suite.table(suite.cases(REPORT)).splitlines()[2:] == [
        "| Append Operations | 2 | 1 |  |",
        "| HEAD | 2 | 1 | time to live: 1 |",
        "| Fork - Reading | 2 | 1 | forks: 1 |",
        "| Reserved | 1 | 0 | not asked by the suite: 1 |",
        "| all | 7 | 3 | time to live: 1, forks: 1, not asked by the suite: 1 |",
    ]


def test_the_protocol_has_a_table_that_adds_up() -> None:
    """Each case passes, or is told with its reason."""
    text = suite.PROTOCOL.read_text()
    header = suite.table([]).partition("\n")[0]
    lines = text[text.index(header) :].partition("\n\n")[0].splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    counts = [
        (int(cases), int(passed), sum(map(int, re.findall(r": (\d+)", why))))
        for _, cases, passed, why in rows
    ]

    assert len(rows) > 30
    assert all(cases == passed + left_out for cases, passed, left_out in counts)
    assert counts[-1] == tuple(map(sum, zip(*counts[:-1], strict=True)))

"""Durable Streams: the suite that the protocol has for servers, and its client (npm)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.compat.oplog.wire import until
from tests.world import installing, suite
from tests.world.messages import Client
from tests.world.nginx import Nginx
from tests.world.suite import Case
from tidings.server.running import Server


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
    """Each case passes, or is listed with its reason."""
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


@pytest.mark.npm
def test_the_suite_passes_as_the_protocol_says(server: Server, tmp_path: Path) -> None:
    """Every case that is not left out passes, and PROTOCOL has these figures."""
    found = suite.run(f"{server.url}feeds/main", tmp_path / "report.json")

    assert suite.unexplained(found) == []
    assert suite.table(found) in suite.PROTOCOL.read_text()


def _client(role: str, url: str, *words: str) -> Client:
    script = str(installing.node_folder() / "durable.mjs")
    return Client(["node", "--no-warnings", script, role, url, *words])


def _numbers(client: Client) -> list[int]:
    return [each["n"] for each in client.messages if "n" in each]


@pytest.mark.npm
@pytest.mark.nginx
@pytest.mark.parametrize("way", ["direct", "plain", "gzip", "path"])
def test_its_client_appends_and_reads(server: Server, nginx: Nginx, way: str) -> None:
    """Append, then read from the beginning, from an offset, by long polls and by an event stream.

    Each message comes once and in order, and the end is reported.
    """
    url = (server.url if way == "direct" else nginx.url(way)) + f"feeds/main/v1/stream/{way}"
    with (
        _client("write", url, "5") as writer,
        _client("read", url, "-1", "sse") as events,
        _client("read", url, "-1", "long-poll") as polls,
    ):
        until(lambda: _numbers(events) == _numbers(polls) == list(range(10)))
        offset = events.messages[0]["offset"]
        with _client("read", url, offset, "sse") as later:
            until(lambda: writer.messages)
            assert writer.messages == [{"wrote": 10, "problems": []}]
            writer.end_input()
            readers = (events, polls, later)
            until(lambda: all({"over": True} in each.messages for each in readers))
            rest = list(range(len(_up_to(events, offset)), 10))
            until(lambda: _numbers(later) == rest)  # the client says that it is over before that
        until(lambda: len(writer.messages) == 2)
        assert writer.messages[-1] == {"closed": True, "problems": []}
        assert _numbers(events) == _numbers(polls) == list(range(10))


def _up_to(client: Client, offset: str) -> list[int]:
    """Return what *client* received up to the batch of *offset*."""
    return [each["n"] for each in client.messages if "n" in each and each["offset"] <= offset]

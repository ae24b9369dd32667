"""`tidings status` as a process: its output and its exit code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.contract.answering import Answer, Answering, answering
from tests.unit.client.command import tidings

REPORT: dict[str, Any] = {
    "status": "OK",
    "events_received": 1234567,
    "events_sent": 5,
    "clients": 2,
    "feed": "main",
    "frontier": {"cursor": "69153ec000000000070007ffff", "page": 7, "exact": True},
    "followers": [
        {"name": "push", "checkpoint": 7, "lag_pages": 0, "lag_ms": 0, "leased": False},
        {"name": "state", "checkpoint": 3, "lag_pages": 4, "lag_ms": 1500, "leased": True},
    ],
}


@contextmanager
def saying(code: int, **fields: Any) -> Iterator[Answering]:
    with answering(Answer(code, {**REPORT, **fields})) as server:
        yield server


def test_a_feed_that_is_ok() -> None:
    """Its fields and its followers, numbers readable; exit code 0."""
    with saying(200) as server:
        shown = tidings("status", "--url", server.url)

    assert shown.returncode == 0
    lines = shown.stdout.splitlines()
    assert lines[0].split() == ["status", "OK"]
    assert lines[1].split() == ["events_received", "1,234,567"]
    assert any("state" in line and "1,500" in line and "yes" in line for line in lines)
    assert [asked.path for asked in server.asked] == ["/status"]


@pytest.mark.parametrize(("code", "said"), [(200, "LAGGING"), (503, "UNAVAILABLE")])
def test_a_feed_that_is_not(code: int, said: str) -> None:
    """It is shown all the same; exit code 1."""
    with saying(code, status=said, clients=None) as server:
        shown = tidings("status", "--url", server.url)

    assert shown.returncode == 1
    assert said in shown.stdout and "unknown" in shown.stdout


def test_json_is_the_report_itself() -> None:
    """One line, for a program."""
    with saying(200) as server:
        shown = tidings("status", "--url", server.url, "--feed", "b", "--json")

    assert json.loads(shown.stdout) == REPORT
    assert shown.stdout.count("\n") == 1
    assert [asked.path for asked in server.asked] == ["/feeds/b/status"]


def test_nobody_there() -> None:
    """One sentence on stderr; exit code 1."""
    shown = tidings("status", "--url", "http://127.0.0.1:1")

    assert (shown.returncode, shown.stdout) == (1, "")
    assert shown.stderr.startswith("Error: http://127.0.0.1:1/status does not answer")
    assert shown.stderr.count("\n") == 1


def test_a_refusal_is_told() -> None:
    """The error is shown in the server's words."""
    error = {"error": {"code": "unknown_feed", "message": "feed: no such feed here"}}
    with answering(Answer(404, error)) as server:
        shown = tidings("status", "--url", server.url, "--feed", "nope")

    assert shown.returncode == 1
    assert "unknown_feed" in shown.stderr


def test_what_a_server_says_cannot_command_the_terminal() -> None:
    """Control characters and markup are shown, not obeyed."""
    with saying(200, feed="\x1b[2J", note="[bold]x[/bold]") as server:
        shown = tidings("status", "--url", server.url)

    assert "\x1b[2J" not in shown.stdout
    assert "[bold]x[/bold]" in shown.stdout


def test_wrong_usage() -> None:
    """Exit code 2."""
    assert tidings("status", "--url", "ftp://x").returncode == 2

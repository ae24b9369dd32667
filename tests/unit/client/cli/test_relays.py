"""`tidings relays`: its requests and its output."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.contract.answering import Answer, Answering, answering
from tidings.client.cli.main import main

CHAINED: dict[str, Any] = {
    "feed": "main",
    "source": "https://m.example/feeds/main",
    "status": "running",
    "role": "leader",
    "upstream": "https://m.example/feeds/main",
    "page": 1234,
    "lag_pages": 2,
    "lag_ms": 1500,
    "failures": 0,
    "error": "",
    "via": ["a", "b"],
    "copy": {"buckets_done": 3, "buckets": 64},
    "head": 1234,
    "min": {"page": 1, "cursor": "c1", "time": "2026-11-22T10:00:00Z"},
    "max": None,
    "members": [
        {"address": "https://a", "role": "leader", "page": 9, "heard_ms_ago": 5, "gone": False},
        {"address": "https://b", "role": "follower", "page": 8, "heard_ms_ago": 5, "gone": True},
    ],
}
LOCAL = {"feed": "orders", "source": "", "role": "master", "status": "master", "head": 7}


@pytest.fixture
def feed() -> Iterator[Answering]:
    with answering(Answer(200, CHAINED)) as server:
        yield server


def run(feed: Answering, *words: str, said: str = "") -> Result:
    environment = {"COLUMNS": "300", "TIDINGS_PASSWORD": "write this"}
    return CliRunner().invoke(
        main, ["relays", *words, "--url", feed.url], input=said, env=environment
    )


def answers(feed: Answering, status: int, /, **body: Any) -> None:
    feed.script[:] = [Answer(status, body)]


def test_D23_every_feed_is_listed(feed: Answering) -> None:
    """Chained ones by their place, local ones by their head; one line of JSON for a program."""
    answers(feed, 200, relays=[CHAINED, LOCAL])
    done = run(feed, "list")
    assert done.exit_code == 0
    assert [line.split()[:5] for line in done.output.splitlines()] == [
        ["feed", "status", "role", "page", "lag_pages"],
        ["main", "running", "leader", "1,234", "2"],
        ["orders", "master", "master", "7"],
    ]
    assert json.loads(run(feed, "list", "--json").output) == [CHAINED, LOCAL]
    assert {asked.path for asked in feed.asked} == {"/relays"}


@pytest.mark.parametrize(("status", "code"), [("running", 0), ("fell-off", 1), ("paused", 1)])
def test_a_monitor_is_told_by_the_exit_code(feed: Answering, status: str, code: int) -> None:
    """The exit code is 0 if all run; a local feed does."""
    answers(feed, 200, relays=[CHAINED | {"status": status}, LOCAL])
    assert run(feed, "list", "--check").exit_code == code


def test_one_feed_is_shown(feed: Answering) -> None:
    """The fields of the feed are shown; empty ones are left out."""
    lines = run(feed, "show", "main").output.splitlines()
    told = {line[:21].strip(): line[21:].strip() for line in lines}
    assert told["page"] == "1,234"
    assert told["via"] == "a, b"
    assert told["copied"] == "3 of 64 buckets"
    assert told["min"] == "c1 of 2026-11-22T10:00:00Z"
    assert "error" not in told and "max" not in told
    assert "member                https://b: follower at page 8, gone" in lines


def test_D38_members_are_shown(feed: Answering) -> None:
    """The leader is marked; if the members are unknown, the command fails."""
    assert "leader" in run(feed, "members", "main").output
    answers(feed, 200, **CHAINED | {"members": None})
    done = run(feed, "members", "main")
    assert (done.exit_code, "does not answer" in done.output) == (1, True)


@pytest.mark.parametrize("action", ["pause", "resume", "shutdown", "start"])
def test_D24_an_action_names_one_feed(feed: Answering, action: str) -> None:
    """None is wrong usage."""
    assert run(feed, action).exit_code == 2
    assert run(feed, action, "main").output == "main is running at page 1,234\n"
    (asked,) = feed.asked
    assert (asked.method, asked.path) == ("POST", f"/feeds/main/relay/{action}")


def test_D35_a_reset_says_where_to_and_why(feed: Answering) -> None:
    """Both are sent."""
    assert run(feed, "reset", "main", "--to", "latest").exit_code == 2
    assert run(feed, "reset", "main", "--to", "latest", "--why", "a test").exit_code == 0
    assert feed.asked[0].json == {"to": "latest", "why": "a test"}


def test_a_password_is_read_from_the_input_and_not_shown(feed: Answering) -> None:
    """Its first line, without the end of it."""
    answers(feed, 200, feed="main", password="set")
    done = run(feed, "password", "main", said="correct horse\nmore\n")
    assert done.output == "main: password set\n"
    (asked,) = feed.asked
    assert (asked.method, asked.path) == ("PUT", "/feeds/main/relay/password")
    assert asked.json == {"password": "correct horse"}


def test_a_refusal_is_one_line(feed: Answering) -> None:
    """The exit code is 1."""
    answers(feed, 409, error={"code": "nothing_done", "message": "is running"})
    done = run(feed, "resume", "main")
    assert done.exit_code == 1
    assert done.output.startswith("Error: ") and "is running" in done.output

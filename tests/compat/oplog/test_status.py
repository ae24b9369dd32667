"""oplog's rows 4 and 63 to 65: `/status`, black box; a killed process: tests/unit/admin."""

from __future__ import annotations

import json
import re

import pytest

from tests.compat.oplog.feed import Feed, ask, op
from tests.compat.oplog.wire import STREAM, until

TEN = [
    "status",
    "events_received",
    "events_sent",
    "events_ingested",
    "events_error",
    "events_discarded",
    "queue_size",
    "queue_max_size",
    "clients",
    "connections",
]


def status(feed: Feed, **wanted: int) -> bool:
    found = feed.status()
    return {name: found[name] for name in wanted} == wanted


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
@pytest.mark.parametrize("path", ["/status", "/feeds/{}/status"])
def test_O04_status_is_only_for_get(feed: Feed, method: str, path: str) -> None:
    """Anything else is 405, and says what is allowed."""
    answer = ask(feed.port, method, path.format(feed.name))

    assert answer.status == 405
    assert "GET" in answer.headers["allow"]


def test_O04_head_is_answered_as_get(feed: Feed) -> None:
    """An extension: oplog said 405."""
    answer = ask(feed.port, "HEAD", "/status")

    assert (answer.status, answer.body) == (200, b"")


def test_O63_status_is_one_line_of_json(feed: Feed) -> None:
    """Status and nine counters first, in oplog's order; `/status` is the feed `main`."""
    answer = ask(feed.port, "GET", "/status")
    found = json.loads(answer.body)

    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert b"\n" not in answer.body
    assert list(found)[:10] == TEN
    assert (found["status"], found["feed"]) == ("OK", "main")
    assert feed.name in found["feeds"]


def test_O63_the_counters_mean_what_they_meant(feed: Feed) -> None:
    """Received, in the log and the state, refused; the events sent to one consumer."""
    feed.post(op("a"), op("b"))
    feed.post(op("c"))
    assert feed.send(b'{"event":"insert"}').status == 400
    until(lambda: status(feed, events_received=3, events_ingested=3, events_error=1))
    found = feed.status()
    assert found["head"] == found["frontier"]["page"] == 2

    assert [block.name for block in feed.copied()][0::4] == ["reset", "live"]
    until(lambda: status(feed, events_sent=5, connections=1, clients=0))
    assert [feed.status()[name] for name in ("events_discarded", "queue_size")] == [0, 0]


def test_O64_clients_go_up_and_come_back(feed: Feed) -> None:
    """With each that connects and each that leaves; connections only ever grow."""
    assert status(feed, clients=0, connections=0)
    with feed.listening():
        until(lambda: status(feed, clients=1, connections=1))
        with feed.listening():
            until(lambda: status(feed, clients=2, connections=2))
        until(lambda: status(feed, clients=1, connections=2))
    until(lambda: status(feed, clients=0, connections=2))


def test_O64_who_is_refused_does_not_count(feed: Feed) -> None:
    """Neither as a connection nor as an error."""
    refused = [
        ask(feed.port, "GET", feed.path, {"accept": "application/json"}).status,
        ask(feed.port, "GET", feed.path, {"accept": STREAM, "last-event-id": "abcd"}).status,
        ask(feed.port, "GET", feed.path + "?types=%00", {"accept": STREAM}).status,
    ]
    with feed.listening():
        until(lambda: status(feed, clients=1))

    assert refused == [406, 400, 400]
    until(lambda: status(feed, clients=0, connections=1, events_error=0))


def test_O65_nothing_of_the_machine_is_told(feed: Feed) -> None:
    """No command line, no environment, no memory, no names of tables, no stack."""
    text = ask(feed.port, "GET", "/status").body.decode()

    places = ["feed", "feeds", "head", "frontier", "floor", "followers"]
    assert list(json.loads(text)) == [*TEN, *places, "time", "source", "generation"]
    assert not re.search(r"cmdline|memstats|python|password|TIDINGS|AWS|tidings-|/home|/tmp", text)

"""supervise: chained feeds as their operators see them, and follow-relay, which they steer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from functions.relay.handler import handle as relay
from functions.supervise.handler import handle as supervise
from tests.contract.answering import Reply
from tests.functions.cloud import Cloud, answered, restart
from tests.functions.upstream import Upstream
from tidings.aws.stage import stage
from tidings.core import limits
from tidings.core.model.pages import Page
from tidings.core.replication.wire import (
    ReplicationBatch,
    Rows,
    UpstreamStatus,
    encode_batch,
    encode_rows,
)
from tidings.core.state.rows import Row

Requests = set[tuple[str, str]]
RELAY = "/feeds/{feed}/relay"
ACTION = f"{RELAY}/{{action}}"
AT = 4_102_444_800_000  # in 2100: pages expire
LINE = '{"event":"update","timestamp":"2100-01-01T00:00:00Z","parents":[],"type":"a","id":"1"}'


def chained(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the feed main copy *upstream* from now on, in runs of half a second."""
    sources = {"main": {"url": upstream.url}}
    monkeypatch.setenv("TIDINGS_SOURCES", json.dumps(sources))
    monkeypatch.setattr(limits, "RELAY_RUN_MS", 500)
    restart()


def copied(upstream: Upstream, *numbers: int) -> None:
    """Let the upstream have these pages, and one run copy them."""
    pages = tuple(Page(number, LINE, "", AT) for number in numbers)
    standing = UpstreamStatus(1, max(numbers), max(numbers), upstream.url)
    row = Row("a/1", max(numbers), 0, AT, LINE)
    upstream.replies = {
        "/pages": Reply(encode_batch(ReplicationBatch(standing, pages)).encode()),
        "bucket=7": Reply(encode_rows(Rows(standing, (row,))).encode()),
        "/rows": Reply(encode_rows(Rows(standing)).encode()),
    }
    wake()


def wake() -> None:
    relay({"ring": "main"}, None)


def ask(method: str, route: str, body: object = None, **more: Any) -> tuple[int, dict[str, Any]]:
    """Status and body of one answer."""
    return answered(supervise, f"{method} {route}", body, **more)


def act(action: str, body: object = None, **more: Any) -> tuple[int, dict[str, Any]]:
    return ask("POST", ACTION, body, action=action, **more)


def relaying(monkeypatch: pytest.MonkeyPatch, start_recording: Callable[[], Requests]) -> None:
    """Pages of a log, then a copy of the state."""
    with Upstream() as upstream:
        chained(upstream, monkeypatch)
        requests = start_recording()
        copied(upstream, 1, 2)
        assert act("reset", {"to": "everything", "why": "a test"})[0] == 200
        copied(upstream, 5)
        while ask("GET", RELAY)[1]["copy"]:
            wake()
    assert "dynamodb:PutItem" in {action for table, action in requests if table == "state"}


def supervising(monkeypatch: pytest.MonkeyPatch, start_recording: Callable[[], Requests]) -> None:
    with Upstream() as upstream:
        chained(upstream, monkeypatch)
        start_recording()
        assert ask("GET", "/relays")[0] == 200
        assert ask("GET", RELAY)[0] == 200
        assert act("pause")[0] == 200
        assert ask("PUT", f"{RELAY}/password", {"password": "correct horse"})[0] == 200


SECRET = "correct horse"
PASSWORD = f"{RELAY}/password"


@pytest.fixture
def upstream(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Iterator[Upstream]:
    with Upstream() as server:
        chained(server, monkeypatch)
        yield server


def test_D2_pages_are_copied_as_they_are(upstream: Upstream) -> None:
    """With numbers and bytes; the next run continues after them."""
    copied(upstream, 1, 2)

    assert [page.number for page in stage().stores.log.read("main", 0)] == [1, 2]
    status, found = ask("GET", RELAY)
    assert status == 200
    assert (found["status"], found["page"], found["pages"]) == ("running", 2, 2)
    assert "after=" not in upstream.asked[0]
    wake()
    assert f"after={found['cursor']}" in upstream.asked[-1]


def test_D23_every_feed_is_told(cloud: Cloud, upstream: Upstream) -> None:
    """By name, status and position; an operator's step wakes the relay."""
    copied(upstream, 1)
    assert act("shutdown")[0] == 200
    (found,) = ask("GET", "/relays")[1]["relays"]
    assert (found["feed"], found["status"], found["page"]) == ("main", "shutdown", 1)
    assert ("tidings-dev-follow-relay", {"ring": "main"}) in cloud.invoked


def test_an_unknown_action_is_refused(upstream: Upstream) -> None:
    assert act("restart")[1]["error"]["code"] == "invalid_relay"
    assert act("resume")[0] == 409


def test_the_upstreams_password_is_sent_and_told_to_nobody(
    upstream: Upstream, capfd: pytest.CaptureFixture[str]
) -> None:
    """Not by a route, not in an error, not in a log."""
    assert ask("PUT", PASSWORD, {"password": SECRET}) == (200, {"feed": "main", "password": "set"})
    copied(upstream, 1)
    assert upstream.headers["authorization"].startswith("Basic ")
    told = json.dumps([ask("GET", RELAY), ask("GET", "/relays")])
    for wrong in ({"password": f"{SECRET}\n"}, {"password": [SECRET]}, {"secret": SECRET}):
        status, error = ask("PUT", PASSWORD, wrong)
        assert status == 400
        told += json.dumps(error)
    assert SECRET not in told + "".join(capfd.readouterr())
    assert ask("PUT", PASSWORD, {"password": ""})[1]["password"] == "none"
    assert stage().stores.relay_passwords.password("main") == ""

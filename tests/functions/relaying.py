"""Running `follow-relay` and asking `supervise`, with all that they may do."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from functions.relay.handler import handle as relay
from functions.supervise.handler import handle as supervise
from tests.functions.cloud import answered, restart
from tests.functions.upstream import Reply, Upstream, serving
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
    with serving() as upstream:
        chained(upstream, monkeypatch)
        requests = start_recording()
        copied(upstream, 1, 2)
        assert act("reset", {"to": "everything", "why": "a test"})[0] == 200
        copied(upstream, 5)
        while ask("GET", RELAY)[1]["copy"]:
            wake()
    assert "dynamodb:PutItem" in {action for table, action in requests if table == "state"}


def supervising(monkeypatch: pytest.MonkeyPatch, start_recording: Callable[[], Requests]) -> None:
    with serving() as upstream:
        chained(upstream, monkeypatch)
        start_recording()
        assert ask("GET", "/relays")[0] == 200
        assert ask("GET", RELAY)[0] == 200
        assert act("pause")[0] == 200
        assert ask("PUT", f"{RELAY}/password", {"password": "correct horse"})[0] == 200

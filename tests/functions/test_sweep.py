"""sweep: it visits the feeds that are due, and idle feeds cost it nothing."""

from __future__ import annotations

from typing import Any

import pytest

from functions.follow.handler import handle as follow
from functions.ingest.handler import handle as ingest
from functions.sweep.handler import handle as sweep
from tests.functions.cloud import Cloud, become, event, restart
from tidings.aws import clients
from tidings.aws.effects import now_ms
from tidings.aws.stage import stage
from tidings.client import publish_with
from tidings.core import limits

FEEDS = 1_000
WAKE = {"ring": "main"}
FORWARD = ("tidings-dev-forward", WAKE)


def requests() -> list[str]:
    """Return the list to which the requests to DynamoDB are added from now on."""
    found: list[str] = []

    def note(request: Any, **_: object) -> None:
        found.append(str(request.body))

    for client in (clients.dynamodb(), clients.dynamodb_once()):
        client.meta.events.register_first("before-send.dynamodb", note)
    return found


def settle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Follow all pages, and sweep until no feed is due."""
    for follower in ("state", "push"):
        become(follower, monkeypatch)
        follow(WAKE, None)
    for _ in range(3):
        sweep({}, None)
    assert stage().stores.due_feeds.due(now_ms()) == []


def test_idle_feeds_cost_nothing(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep of a stage with many idle feeds sends the same requests as one with a single feed."""
    monkeypatch.setattr(limits, "INDEX_EVERY", 2**60)
    assert ingest(event("http_post"), None)["statusCode"] == 204
    settle(monkeypatch)
    found = requests()
    sweep({}, None)
    few = len(found)
    assert few <= 6, found

    for number in range(FEEDS):
        stage().feed_service.create(f"idle-{number}")
    for _ in range(2):
        sweep({}, None)
    found.clear()
    sweep({}, None)
    assert len(found) == few


def test_a_feed_with_a_new_page_is_visited(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is visited until no follower lags, by this and by other processes."""
    settle(monkeypatch)
    cloud.around.asked.clear()
    sweep({}, None)
    assert cloud.invoked == []
    assert ingest(event("http_post"), None)["statusCode"] == 204
    for _ in range(3):
        restart()
        cloud.around.asked.clear()
        sweep({}, None)
        assert ("tidings-dev-follow-state", WAKE) in cloud.invoked
    settle(monkeypatch)


def test_a_message_in_the_outbox_of_an_idle_feed_is_found(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the stream of the table did not wake the forwarder; refused messages wake nothing."""
    settle(monkeypatch)
    item = {"event": "update", "type": "video", "id": "x"}
    publish_with(clients.dynamodb(), [], outbox="outbox", operations=[item])
    (message,) = stage().stores.outbox.pending("main")
    for _ in range(2):
        cloud.around.asked.clear()
        sweep({}, None)
        assert FORWARD in cloud.invoked
    stage().stores.outbox.put_aside("main", message, "why")
    cloud.around.asked.clear()
    for _ in range(3):
        sweep({}, None)
    assert FORWARD not in cloud.invoked
    assert stage().stores.due_feeds.due(now_ms()) == []

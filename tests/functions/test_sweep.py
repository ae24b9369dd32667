"""sweep and report: visits of the feeds that are due, the status, and the metrics of alarms."""

from __future__ import annotations

import json
from typing import Any

import pytest

from functions.follow.handler import handle as follow
from functions.ingest.handler import handle as ingest
from functions.report.handler import handle
from functions.sweep.handler import handle as sweep
from tests.functions.cloud import (
    Cloud,
    become,
    event,
    lines_of,
    log_here,
    restart,
    without_dynamodb,
)
from tidings.aws import clients
from tidings.aws.config import settings
from tidings.aws.effects import now_ms
from tidings.aws.stage import stage
from tidings.client import publish_with
from tidings.core import limits
from tidings.core.maintenance.status import COUNTERS
from tidings.http.settings import WrongSetting

FEEDS = 120  # more than one page of any list
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


def status(feed: str | None = None) -> tuple[int, dict[str, Any]]:
    """Return the status in a process that has reported nothing yet."""
    restart()
    changes: dict[str, Any] = {}
    if feed is not None:
        changes = {
            "routeKey": "GET /feeds/{feed}/status",
            "rawPath": f"/feeds/{feed}/status",
            "pathParameters": {"feed": feed},
        }
    answer = handle(event("http_get_status", **changes), None)
    assert answer["headers"]["content-type"] == "application/json"
    assert "\n" not in answer["body"]
    return answer["statusCode"], json.loads(answer["body"])


def test_a_feed_of_its_own(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each feed has its counts; one that is not there has none."""
    monkeypatch.setenv("TIDINGS_FEEDS", "main,b")
    restart()
    ingest(event("http_post", pathParameters={"feed": "b"}), None)

    assert status("b")[1]["events_received"] == 1
    assert status("b")[1]["feed"] == "b"
    assert status()[1]["events_received"] == 0
    assert status()[1]["feeds"] == ["b", "main"]
    assert status("c")[0] == 404


def test_W25_a_store_that_does_not_answer_is_told(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """oplog said OK in any case. The same fields, without unknown numbers."""
    without_dynamodb(monkeypatch)
    code, body = status()

    assert (code, body["status"]) == (503, "UNAVAILABLE")
    assert list(body) == ["status", *COUNTERS, "feed", "time"]
    assert {body[name] for name in COUNTERS} == {None}


def _metrics(lines: list[dict[str, Any]]) -> set[str]:
    written = [each["_aws"]["CloudWatchMetrics"] for each in lines if "_aws" in each]
    return {metric["Name"] for all_ in written for one in all_ for metric in one["Metrics"]}


def _post_without_follower(monkeypatch: pytest.MonkeyPatch, metrics: str) -> None:
    """Post three pages without a follower, in a stage that tolerates two."""
    monkeypatch.setenv("TIDINGS_METRICS", metrics)
    monkeypatch.setenv("TIDINGS_LAG_PAGES", "2")
    restart()
    log_here()
    for _ in range(3):
        ingest(event("http_post"), None)
    sweep({}, None)


def test_only_what_alarms_look_at_is_written(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the line that says what it is about: feed, figure, limit."""
    _post_without_follower(monkeypatch, "alarms")
    lines = lines_of(capsys)
    assert _metrics(lines) == {"Behind"}
    told = [each for each in lines if each.get("message") == "metric above its limit"]
    assert [(each["feed"], each["metric"], each["value"], each["limit"]) for each in told] == [
        ("main", "FollowerLag", 3, 2)
    ] * 2
    assert {each["level"] for each in told} == {"WARNING"}


def test_a_stage_may_write_them_all(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """But none for a zero."""
    _post_without_follower(monkeypatch, "all")
    found = _metrics(lines_of(capsys)) - {"FollowerAge"}  # which a slow machine has, in seconds
    assert found == {"OperationsIngested", "FollowerLag", "Behind"}


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("TIDINGS_METRICS", "some"),
        ("TIDINGS_LAG_PAGES", "0"),
        ("TIDINGS_ARCHIVE_SECONDS", "86401"),
        ("TIDINGS_ARCHIVE_SECONDS", "-1"),
        ("TIDINGS_TRACES", "some"),
        ("TIDINGS_LATE_SECONDS", "-1"),
        ("TIDINGS_STREAM_SECONDS", "59"),
        ("TIDINGS_STREAM_SECONDS", "841"),
        ("TIDINGS_STREAM_SECONDS", "2m"),
    ],
)
def test_a_setting_that_breaks_its_rule_is_refused(variable: str, value: str) -> None:
    """By name, before anything runs with it."""
    given = {each.variable: "x" for each in settings.SETTINGS if each.default is None}
    with pytest.raises(WrongSetting, match=variable):
        settings.Settings.read({**given, variable: value})
    parsed = settings.Settings.read(given)
    assert (parsed.archive_wait_ms, parsed.traces, parsed.late_ms) == (900_000, "asked", 10_000)

"""report: `GET /status`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tidings.aws.wiring import adapters
from tidings.core.maintenance.status import COUNTERS

from functions.follow.handler import handle as follow
from functions.ingest.handler import handle as ingest
from functions.report.handler import handle
from functions.sweep.handler import handle as sweep
from tests.functions.cloud import Cloud, become, event, start_anew, without_dynamodb


def status(feed: str | None = None) -> tuple[int, dict[str, Any]]:
    """The answer to a process that has reported nothing yet."""
    start_anew()
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


def follow_as(follower: str, monkeypatch: pytest.MonkeyPatch) -> None:
    become(follower, monkeypatch)
    follow({"ring": "main"}, None)


def test_a_new_feed_is_well(cloud: Cloud) -> None:
    """Nothing was posted, no follower ever ran: zeros, both followers named, status OK."""
    code, body = status()

    assert (code, body["status"]) == (200, "OK")
    assert [body[name] for name in COUNTERS] == [0] * 9
    assert body["frontier"] == {"cursor": "0000000000000000007fffff", "page": 0, "exact": True}
    assert (body["head"], body["floor"], body["feeds"]) == (0, 1, ["main"])
    assert [each["name"] for each in body["followers"]] == ["push", "state"]


def test_O63_what_was_posted_and_followed_is_counted(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Received when a number is taken, ingested when the state has it, error when refused."""
    ingest(event("http_post"), None)
    ingest(event("http_post_to_feed"), None)
    ingest(event("http_post", body='{"event":"insert"}'), None)
    before = status()[1]
    follow_as("state", monkeypatch)
    after = status()[1]

    names = ("events_received", "events_ingested", "events_error")
    assert [before[name] for name in names] == [3, 0, 1]
    assert [after[name] for name in names] == [3, 3, 1]
    assert [each["lag_pages"] for each in after["followers"]] == [2, 0]
    assert after["followers"][0]["lag_ms"] >= 0
    assert (after["head"], after["frontier"]["page"]) == (2, 2)


@pytest.mark.parametrize(
    "changes",
    [
        {"headers": {}},
        {"headers": {"content-type": "application/json", "idempotency-key": "\n"}},
        {"pathParameters": {"feed": "other"}},
    ],
)
def test_only_operations_that_are_wrong_are_errors(cloud: Cloud, changes: dict[str, Any]) -> None:
    """As oplog: not a wrong type, and not what names no feed of ours."""
    assert ingest(event("http_post", **changes), None)["statusCode"] >= 400
    assert status()[1]["events_error"] == 0


def test_a_retry_that_carries_a_key_is_received_once(cloud: Cloud) -> None:
    """The number is taken once, and so are its operations."""
    for _ in range(3):
        ingest(event("http_post_to_feed"), None)

    assert status()[1]["events_received"] == 2


def test_a_feed_of_its_own(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each feed has its counts; one that is not there has none."""
    monkeypatch.setenv("TIDINGS_FEEDS", "main,b")
    start_anew()
    ingest(event("http_post", pathParameters={"feed": "b"}), None)

    assert status("b")[1]["events_received"] == 1
    assert status("b")[1]["feed"] == "b"
    assert status()[1]["events_received"] == 0
    assert status()[1]["feeds"] == ["b", "main"]
    assert status("c")[0] == 404


def test_W25_a_store_that_does_not_answer_is_told(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """oplog said OK whatever happened. The same fields, without numbers nobody knows."""
    without_dynamodb(monkeypatch)
    code, body = status()

    assert (code, body["status"]) == (503, "UNAVAILABLE")
    assert list(body) == ["status", *COUNTERS, "feed", "time"]
    assert {body[name] for name in COUNTERS} == {None}


@pytest.mark.parametrize("path", ["/status", "/feeds/main/status"])
def test_O04_other_methods_are_wrong(cloud: Cloud, path: str) -> None:
    """They come by the default route."""
    sent = event("http_post", routeKey="$default", rawPath=path)
    sent["requestContext"]["http"] |= {"method": "POST", "path": path}

    assert ingest(sent, None)["statusCode"] == 405


def test_the_sweep_tells_who_is_on_a_socket(cloud: Cloud) -> None:
    """It lists the connections anyway."""
    from tests.functions.grant_scenes import come

    come()
    sweep({}, None)

    assert adapters.tallies().totals("main", now_ms=0).clients == 1
    assert status()[1]["clients"] == 1

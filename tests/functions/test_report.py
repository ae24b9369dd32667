"""report: `GET /status`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from functions.ingest.handler import handle as ingest
from functions.report.handler import handle
from functions.sweep.handler import handle as sweep
from tests.functions.cloud import Cloud, event, restart, without_dynamodb
from tidings.aws.effects import now_ms
from tidings.aws.stage import stage
from tidings.core.maintenance.status import COUNTERS


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


@pytest.mark.parametrize(
    "changes",
    [
        {"headers": {}},
        {"headers": {"content-type": "application/json", "idempotency-key": "\n"}},
        {"pathParameters": {"feed": "other"}},
    ],
)
def test_only_operations_that_are_wrong_are_errors(cloud: Cloud, changes: dict[str, Any]) -> None:
    """As in oplog: not a wrong type, and not an unknown feed."""
    assert ingest(event("http_post", **changes), None)["statusCode"] >= 400
    assert status()[1]["events_error"] == 0


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


def test_the_sweep_tells_who_is_on_a_socket(cloud: Cloud) -> None:
    """It lists the connections anyway."""
    from tests.functions.grant_scenes import come

    come()
    sweep({}, None)

    assert stage().stores.counters.totals("main", now_ms=now_ms()).clients == 1
    assert status()[1]["clients"] == 1

"""Drills of docs/operations/RUNBOOKS.md that a stage of its own can be put through."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import httpx
import pytest
from websockets.sync.client import connect

from infra.settings import SANDBOX_FEEDS
from tests.aws.stage import WAIT_S, Stage, until
from tests.aws.test_reading import Record
from tidings.aws.config.settings import LIVE
from tidings.aws.config.stages import settings_of
from tidings.core import limits

_REVOKED_S = 30  # the promise is five, and a clock of CloudWatch's is not in it
_SWEPT_S = 180  # a sweep a minute finds a page of half a minute
_SOONEST_S = limits.WAKE_LATE_MS / 1000 - 5  # the sweep leaves younger pages to the stream
_MAPPING_S = 300  # to turn a mapping off or on
_HANDLED_S = 120  # for the state to have all that was posted


def test_a_revoked_key_opens_nothing_within_seconds(stage: Stage, record_property: Record) -> None:
    feed = SANDBOX_FEEDS[1]  # a feed that has had a key is not open any more
    made = json.loads(
        stage.tidings(
            *("keys", "create", "--stage", stage.name, "--feed", feed, "--json"),
            *("--role", "read", "--role", "ingest", "--expires", "1h", "--label", "drill"),
        )
    )
    url, auth = f"{stage.addresses.feed}/feeds/{feed}/ops", ("", str(made["key"]))
    posted = {"event": "insert", "type": "drill", "id": "key"}

    def answer() -> httpx.Response:
        return httpx.post(url, json=posted, auth=auth, timeout=WAIT_S)

    until(lambda: answer().is_success, _REVOKED_S, "the key opens the feed", 0.5)
    stage.tidings("keys", "revoke", str(made["id"]), "--stage", stage.name, "--feed", feed)
    revoked = time.monotonic()
    unauthorized = httpx.codes.UNAUTHORIZED
    until(lambda: answer().status_code == unauthorized, _REVOKED_S, "401", 0.2)
    record_property("seconds until 401", round(time.monotonic() - revoked, 1))


def test_a_deleted_row_of_the_state_is_found_and_rebuilt(stage: Stage) -> None:
    name = f"drill-{uuid4().hex[:8]}"
    stage.post([{"event": "insert", "type": "drill", "id": name}])
    table, row = _row(stage, name)
    key = {each: row[each] for each in ("bucket", "key")}
    stage.client("dynamodb").delete_item(TableName=table, Key=key)
    where = ("--stage", stage.name, "--json")
    found = json.loads(stage.tidings("verify", *where, fine=(3,)).splitlines()[-1])
    stage.tidings("rebuild", *where)
    after = json.loads(stage.tidings("verify", *where).splitlines()[-1])
    assert sum(found["differences"].values()) > 0
    assert sum(after["differences"].values()) == 0


def _row(stage: Stage, name: str) -> tuple[str, dict[str, Any]]:
    """Return the table of the state and its row of an object, once it has one."""
    table = settings_of(stage.name, stage.client("cloudformation"))["TIDINGS_STATE_TABLE"]
    pages = stage.client("dynamodb").get_paginator("scan")

    def there() -> dict[str, Any] | None:
        asked = {"TableName": table, "ConsistentRead": True, "ProjectionExpression": "#b, #k"}
        names = {"ExpressionAttributeNames": {"#b": "bucket", "#k": "key"}}
        rows = (row for page in pages.paginate(**asked, **names) for row in page["Items"])
        return next((row for row in rows if name in row["key"]["S"]), None)

    row: dict[str, Any] = until(there, _HANDLED_S, f"{name} in the state")
    return table, row


@pytest.mark.timeout(1200)
def test_the_sweep_wakes_a_follower_that_the_stream_does_not(
    stage: Stage, record_property: Record
) -> None:
    stage.require_aws("the emulator continues to read a stream with a disabled mapping")
    name = f"drill-{uuid4().hex[:8]}"
    with connect(stage.addresses.sockets, open_timeout=WAIT_S) as socket, _mapping_off(stage):
        socket.send(json.dumps({"action": "subscribe", "ids": [name]}))
        assert json.loads(socket.recv(WAIT_S)).get("reply") == "subscribed"
        stage.post([{"event": "insert", "type": "drill", "id": name}])
        posted = time.monotonic()
        socket.recv(_SWEPT_S)
        seconds = time.monotonic() - posted
    record_property("seconds until the message", round(seconds))
    assert seconds >= _SOONEST_S, "the stream woke the follower, or something else did"


@contextmanager
def _mapping_off(stage: Stage) -> Iterator[None]:
    """Take the stream of the log from `follow-push` for a while."""
    functions = stage.client("lambda")
    called = f"{stage.named('follow-push')}:{LIVE}"
    (mapping,) = functions.list_event_source_mappings(FunctionName=called)["EventSourceMappings"]

    def turn(state: str) -> None:
        on = state == "Enabled"
        functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=on)

        def there() -> bool:
            found = functions.get_event_source_mapping(UUID=mapping["UUID"])["State"]
            return bool(found == state)

        until(there, _MAPPING_S, f"the mapping is {state}")

    turn("Disabled")
    try:
        yield
    finally:
        turn("Enabled")

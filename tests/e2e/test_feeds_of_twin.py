"""A feed of a twin is created, used in every way, deleted, and created again."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import websockets.sync.client

from tests.compat.oplog.wire import until
from tests.twin import Twin, store
from tidings.aws.config import deployment
from tidings.client import publish_with
from tidings.client.address import status_url

FEED, MARKER = "orders", "the-secret"
START = "000000000000000001000000"
REMOVED_S = 200  # the second pass begins 10 s after the deletion, when the sweep wakes the job
GONE_S = 60  # a process may use the record of a feed for 5 s; the machine may be busy
OPERATIONS = 50
# Items of the stage that name a feed: its record, and the numbers of clients of the last sweeps.
OF_STAGE = {"feeds", "roster"}


@pytest.fixture
def twin(tmp_path: Path) -> Iterator[Twin]:
    with Twin("--leave", data=tmp_path, tables_in_memory=True) as running:
        yield running


@pytest.fixture
def client(twin: Twin) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=twin.url, timeout=60) as made:
        yield made


def create(client: httpx.Client) -> dict[str, Any]:
    answer = client.put(f"feeds/{FEED}", json={"leave": True})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def use(client: httpx.Client, twin: Twin) -> None:
    """Leave data of the feed in each place."""
    for number in range(OPERATIONS):
        body = {
            "event": "update",
            "type": "video",
            "id": f"{MARKER}-{number}",
            "parents": [f"user/{number % 3}"],
        }
        headers = {"idempotency-key": f"{MARKER}-{number}"}
        client.post(f"feeds/{FEED}/ops", json=body, headers=headers).raise_for_status()
    client.put(f"feeds/{FEED}/consumers/billing", json={}).raise_for_status()
    erasure = {"type": "video", "id": f"{MARKER}-1", "reason": "a test"}
    client.post(f"feeds/{FEED}/erasures", json=erasure).raise_for_status()
    until(lambda: followers(client) >= {OPERATIONS + 1}, REMOVED_S)
    until(lambda: list((twin.data / "archive" / FEED).glob("*")) != [], REMOVED_S)
    operation = {"event": "update", "type": "video", "id": f"{MARKER}-x", "parents": []}
    publish_with(
        store.tables_client(twin.dynamodb_url),
        [],
        outbox=store.table_name("outbox"),
        feed=FEED,
        operations=[operation],
    )


def followers(client: httpx.Client) -> set[int]:
    status = client.get(status_url(str(client.base_url), FEED)).json()
    return {each["checkpoint"] for each in status["followers"]}


def stored(twin: Twin, key: str) -> list[str]:
    """Return what the tables and the folder of the twin have of the feed with *key*."""
    client = store.tables_client(twin.dynamodb_url)
    found = []
    for table in deployment.TABLES:
        pages = client.get_paginator("scan").paginate(TableName=store.table_name(table.name))
        for item in (item for page in pages for item in page["Items"]):
            partition = item[table.partition_key]["S"]
            texts = {value.get("S", "") for value in item.values()}
            parts = {part for each in texts for part in each.replace("+", "#").split("#")}
            if partition not in OF_STAGE and key in parts:
                found.append(f"{table.name} {partition}")
    return [*found, *map(str, twin.data.rglob(f"{key}/*"))]


def delete(client: httpx.Client, twin: Twin) -> list[dict[str, Any]]:
    """Delete the feed while a WebSocket follows it; return what the WebSocket received."""
    told: list[dict[str, Any]] = []
    with websockets.sync.client.connect(twin.ws_url) as socket:
        socket.send(json.dumps({"action": "subscribe", "feed": FEED}))
        assert "subscribed" in str(socket.recv(30))

        def listen() -> None:
            told.extend(json.loads(text) for text in socket)

        listener = threading.Thread(target=listen)
        listener.start()
        refused = client.delete(f"feeds/{FEED}", params={"confirm": FEED})
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "feed_in_use")
        deleted = client.delete(f"feeds/{FEED}", params={"confirm": FEED, "force": "true"})
        assert (deleted.status_code, deleted.json()["state"]) == (202, "deleting")
        listener.join(30)
        assert not listener.is_alive(), "the WebSocket stays open"
    return told


@pytest.mark.java
def test_23_a_feed_is_deleted_with_everything_and_created_again(
    twin: Twin, client: httpx.Client
) -> None:
    """Readers end, nothing is left in any table or folder, and old cursors are lost."""
    assert create(client)["number"] == 1
    use(client, twin)
    first = client.get(f"feeds/{FEED}/log", params={"from": START, "limit": "1"}).json()
    old = first["entries"][0]["id"]
    assert len(stored(twin, FEED)) > OPERATIONS

    told = delete(client, twin)
    assert any(each.get("error", {}).get("code") == "feed_deleted" for each in told), told
    until(lambda: is_gone(client, old), GONE_S)

    assert create(client)["number"] == 2
    operation = {"event": "update", "type": "video", "id": "new"}
    until(lambda: client.post(f"feeds/{FEED}/ops", json=operation).status_code == 204, 30)
    until(lambda: is_removed(client), REMOVED_S)
    assert stored(twin, FEED) == []
    assert stored(twin, f"{FEED}~2") != []
    headers = {"accept": "text/event-stream", "last-event-id": old}
    with client.stream("GET", f"feeds/{FEED}/ops", headers=headers) as stream:
        assert "reset" in next(line for line in stream.iter_lines() if line.startswith("event:"))


def is_gone(client: httpx.Client, cursor: str) -> bool:
    answer = client.get(f"feeds/{FEED}/log", params={"from": cursor})
    return answer.status_code == 410 and answer.json()["error"]["code"] == "feed_deleted"


def is_removed(client: httpx.Client) -> bool:
    removals = client.get(f"feeds/{FEED}").json()["removals"]
    return all(each["done_at"] for each in removals) and bool(removals)

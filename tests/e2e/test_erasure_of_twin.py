"""An object with many operations is erased from a twin and its copy while the feed is written."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.compat.oplog.wire import until
from tests.twin import Twin, store
from tidings.aws.config import deployment

OPERATIONS, REQUEST = 1_000, 20
MARKER = "the-secret"
OBJECT = {"type": "video", "id": "x-erased"}
COPY = "copy"
ERASED_S = 300  # the archive is woken by the job or the sweep, each minute; the machine may be busy


@pytest.fixture
def twin(tmp_path: Path) -> Iterator[Twin]:
    """A feed and its copy, both with an archive."""
    running = Twin("--leave", data=tmp_path, tables_in_memory=True)
    feeds = ("--feeds", f"main,{COPY}", "--chain", f"{COPY}={running.url}feeds/main")
    running.arguments = (*running.arguments, *feeds)
    with running:
        yield running


def post(client: httpx.Client, operations: list[dict[str, Any]]) -> None:
    client.post("", json=operations).raise_for_status()


def use(client: httpx.Client) -> None:
    """Post the operations of the object, in requests with as many of other objects."""
    for first in range(0, OPERATIONS, REQUEST):
        numbers = range(first, first + REQUEST)
        data = [{"text": f"{MARKER} {number}", "filled": "-" * 200} for number in numbers]
        parents = [f"user/{first % 3}"]
        own = [{"event": "update", **OBJECT, "parents": parents, "data": each} for each in data]
        others = [{"event": "update", "type": "video", "id": f"y{number}"} for number in numbers]
        post(client, own + others)


def log(client: httpx.Client, feed: str) -> dict[str, dict[str, Any]]:
    """Return the data of all entries by their ids."""
    found: dict[str, dict[str, Any]] = {}
    url = f"feeds/{feed}/log"
    end = client.get(url).raise_for_status().json()["current"]
    start = "000000000000000001000000"
    while end not in found:
        some = client.get(url, params={"from": start, "limit": "1000"}).json()["entries"]
        found |= {each["id"]: each["data"] for each in some}
        start = some[-1]["id"]
    return found


def stored(twin: Twin) -> str:
    """Return what the tables and the archive have, unpacked."""
    client = store.tables_client(twin.dynamodb_url)
    items: list[str] = []
    for table in deployment.TABLES:
        for page in client.get_paginator("scan").paginate(TableName=store.table_name(table.name)):
            items += map(_text, page["Items"])
    files = [path for path in (twin.data / "archive").rglob("*") if path.is_file()]
    assert {path.parent.name for path in files} == {"main", COPY}
    return "\n".join([*items, *(gzip.decompress(path.read_bytes()).decode() for path in files)])


def _text(item: Any) -> str:
    """Return an item with its page as text."""
    from tidings.core.model.pages import Page

    body = item.get("body", {})
    value = body.get("S") or body.get("B")
    is_page = value is not None and "append" in item
    return f"{item} {Page(1, value, '', 0).text if is_page else ''}"


def is_erased(client: httpx.Client, feed: str, erasure_id: str) -> bool:
    answer = client.get(f"feeds/{feed}/erasures/{erasure_id}")
    return answer.status_code == 200 and answer.json()["state"] == "erased"


@pytest.mark.java
def test_22_3_an_object_of_many_operations_is_erased_under_load(twin: Twin) -> None:
    """All ids stay, in the feed and in its copy."""
    stop = threading.Event()

    def produce() -> None:
        with httpx.Client(base_url=twin.url, timeout=60) as client:
            while not stop.wait(0.2):
                post(client, [{"event": "update", "type": "load", "id": "l"}])

    with httpx.Client(base_url=twin.url, timeout=60) as client:
        use(client)
        before = log(client, "main")
        until(lambda: len(log(client, COPY)) == len(before), ERASED_S)
        producer = threading.Thread(target=produce)
        producer.start()
        try:
            request = {**OBJECT, "reason": "a test"}
            erasure = client.post("feeds/main/erasures", json=request).raise_for_status().json()
            for feed in ("main", COPY):
                until(partial(is_erased, client, feed, erasure["id"]), ERASED_S)
        finally:
            stop.set()
            producer.join()
        after = {feed: log(client, feed) for feed in ("main", COPY)}
    assert MARKER not in stored(twin)
    for entries in after.values():
        kept = {name: entries[name] for name in before}
        others = {name: data for name, data in before.items() if data["id"] != OBJECT["id"]}
        assert others == {name: kept[name] for name in others}
        assert sum(bool(data.get("erased")) for data in kept.values()) == OPERATIONS
        assert entries[erasure["id"]]["id"] == OBJECT["id"]

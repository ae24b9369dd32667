"""Filter values with characters that mean something in a list or a URL, on every transport."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import Any

import httpx
import pytest

from tidings.client import Consumer, Worker
from tidings.client.reconnect import Transport
from tidings.core.model.filters import as_text
from tidings.server.running import Server

PATIENCE_S = 180.0
START = "0000000000000000007fffff"  # a cursor before the first page
VALUES = ["p/a,p/b", "a&b=c", "50%2C", "a+b", "\u00e9\u2028", " a ", "*", '["x"]']
DECOYS = ["p/a", "p/b", "a", "50", "50,", "a b", "\u00c3\u00a9", "x", "["]
ANY = ("ids", "*")  # matches all ids
transports = pytest.mark.parametrize("transport", ["sse", "ws"])


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Has an object for each of VALUES and DECOYS, which has that parent and that id."""
    with Server() as running:
        objects = [*DECOYS, *VALUES, "fence"]
        operations = [
            {"event": "update", "type": "t", "id": each, "parents": [each]} for each in objects
        ]
        httpx.post(running.url, json=operations).raise_for_status()
        yield running


@transports
@pytest.mark.parametrize(
    ("field", "value"),
    [(field, value) for value in VALUES for field in ("parents", "ids") if (field, value) != ANY],
)
def test_7_2_a_value_matches_itself_alone(
    server: Server, transport: Transport, field: str, value: str
) -> None:
    """In the log, by its name as a parent and as an id; only an id may end with a wildcard."""
    wanted: dict[str, Any] = {field: (value, "fence")}
    with closing(Consumer(server.url, transport=transport, cursor=START, **wanted)) as all_:
        told = [each.event.data["id"] for each in islice(all_, 2)]

    assert told == [value, "fence"]


@transports
def test_7_2_a_worker_is_sent_what_its_consumer_names(server: Server, transport: str) -> None:
    """P14.3: it acknowledges nothing else."""
    name = f"by-{transport}"
    url = f"{server.url}feeds/main/consumers/{name}"
    httpx.put(url, json={"parents": [*VALUES, "fence"]}).raise_for_status()
    told: list[str] = []
    worker = Worker(server.url, name, transport=transport)  # type: ignore[arg-type]

    def write(batch: Sequence[tuple[str, str, dict[str, str]]]) -> None:
        told.extend(data["id"] for _, _, data in batch)
        if "fence" in told:
            worker.stop()

    watchdog = threading.Timer(PATIENCE_S, worker.stop)
    watchdog.start()
    worker.run(write)
    watchdog.cancel()

    assert told == [*VALUES, "fence"]


@pytest.mark.parametrize("value", VALUES)
def test_7_2_pages_are_selected_by_whole_values(server: Server, value: str) -> None:
    """P16.6: a relay copies these pages."""
    answer = httpx.get(f"{server.url}feeds/main/pages", params={"ids": as_text([value])})
    entries = [json.loads(line) for line in answer.text.splitlines() if '"event"' in line]

    names = [entry["id"] for entry in entries]
    assert names == ([*DECOYS, *VALUES, "fence"] if value == "*" else [value])


@transports
def test_7_2_a_filter_that_is_empty_matches_nothing(server: Server, transport: Transport) -> None:
    """P7.2: a list of values that no operation has is not the same as no list."""
    name = f"nothing-{transport}"
    url = f"{server.url}feeds/main/consumers/{name}"
    httpx.put(url, json={"types": [""]}).raise_for_status()
    lease = httpx.post(f"{url}/lease", json={"worker": "w"}).json()
    assert lease["types"] == []

    with closing(Consumer(server.url, transport=transport, cursor=START, types=("",))) as consumer:
        assert consumer.within(2.0) is None

"""Many at once: consumers with filters of their own, producers that retry at the same time."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from tidings.client.produce.post import Poster
from tidings.server.running import Server

from tests.conformance.listeners import Heard
from tests.e2e import consumers
from tests.e2e.consumers import BEFORE_THE_FIRST, Consumer

SEED = 11
REQUESTS = 60
TYPES = ("video", "user", "channel")
PARENTS = ("user/ann", "user/bob", "repo/x y", "user/a,b")
END = {"event": "insert", "type": "video", "id": "end", "parents": ["user/ann"]}
AT_ONCE = 8
ROUNDS = 6


@pytest.fixture
def host() -> Iterator[Server]:
    with Server() as running:
        yield running


def test_each_consumer_hears_exactly_what_matches_its_filter(host: Server) -> None:
    """By type over SSE, by type and parents over WebSocket: the matching sequence, no more."""
    choose = random.Random(SEED)
    by_type = Consumer(
        consumers.raw_sse(host.url, BEFORE_THE_FIRST, {"types": "video,channel"}), _is_end
    )
    by_both = Consumer(
        consumers.client(
            host.url,
            BEFORE_THE_FIRST,
            ws_url=host.ws_url,
            types=["video"],
            parents=["user/ann", "user/a,b"],
        ),
        _is_end,
    )
    posted: list[tuple[str, dict[str, Any]]] = []
    with Poster(host.url) as poster:
        for number in range(REQUESTS):
            batch = [_operation(choose, number, slot) for slot in range(choose.randint(1, 9))]
            posted += zip(poster.post(batch), batch, strict=True)
        posted += zip(poster.post([END]), [END], strict=True)
    heard_by_type, heard_by_both = by_type.done(), by_both.done()

    assert [heard.id for heard in heard_by_type] == [
        event_id for event_id, operation in posted if operation["type"] in ("video", "channel")
    ]
    assert [heard.id for heard in heard_by_both] == [
        event_id
        for event_id, operation in posted
        if operation["type"] == "video" and {"user/ann", "user/a,b"} & set(operation["parents"])
    ]
    assert len(heard_by_both) > REQUESTS / 4, "the filter hardly matched anything"


def test_a_request_retried_at_the_same_time_is_appended_once(host: Server) -> None:
    """Eight senders of one Idempotency-Key at the same moment get the same ids of one page."""
    answers = []
    for number in range(ROUNDS):
        batch = [{"event": "insert", "type": "thing", "id": f"{number}-{at}"} for at in range(3)]
        answers.append(_all_at_once(host.url, f"key {number}", batch))
    httpx.post(host.url, json=END, timeout=30).raise_for_status()
    log = consumers.log_from(host.url, BEFORE_THE_FIRST, _is_end)

    for found in answers:
        assert len({tuple(ids) for ids in found}) == 1, found
    assert [heard.id for heard in log[:-1]] == [event_id for ids in answers for event_id in ids[0]]
    assert [heard.data["id"] for heard in log[:-1]] == [
        f"{number}-{at}" for number in range(ROUNDS) for at in range(3)
    ]


def _all_at_once(url: str, key: str, batch: list[dict[str, Any]]) -> list[list[str]]:
    start = threading.Barrier(AT_ONCE)
    headers = {"Idempotency-Key": key, "Prefer": "return=representation"}

    def send(_: int) -> list[str]:
        with httpx.Client(timeout=30) as client:
            start.wait()
            answer = client.post(url, json=batch, headers=headers)
        assert answer.status_code == 200, answer.text
        ids: list[str] = answer.json()["ids"]
        return ids

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(send, range(AT_ONCE)))


def _operation(choose: random.Random, number: int, slot: int) -> dict[str, Any]:
    return {
        "event": choose.choice(["insert", "update", "delete"]),
        "type": choose.choice(TYPES),
        "id": f"{number}-{slot}",
        "parents": choose.sample(PARENTS, choose.randint(0, 3)),
    }


def _is_end(heard: Heard) -> bool:
    return heard.data.get("id") == "end"

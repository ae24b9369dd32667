"""Producers that retry at the same time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.conformance.listeners import ReceivedEvent
from tests.e2e import consumers
from tests.e2e.consumers import BEFORE_THE_FIRST
from tidings.server.running import Server

END = {"event": "insert", "type": "video", "id": "end", "parents": ["user/ann"]}
AT_ONCE = 8
ROUNDS = 6


@pytest.fixture
def host() -> Iterator[Server]:
    with Server() as running:
        yield running


def test_a_request_retried_at_the_same_time_is_appended_once(host: Server) -> None:
    """Eight senders of one Idempotency-Key at the same moment get the same ids of one page."""
    answers = []
    for number in range(ROUNDS):
        batch = [{"event": "insert", "type": "thing", "id": f"{number}-{at}"} for at in range(3)]
        answers.append(_all_at_once(host.url, f"key {number}", batch))
    httpx.post(host.url, json=END, timeout=30).raise_for_status()
    log = consumers.log_from(host.url, BEFORE_THE_FIRST, _is_end)

    for ids_of_each in answers:
        assert len({tuple(ids) for ids in ids_of_each}) == 1, ids_of_each
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


def _is_end(heard: ReceivedEvent) -> bool:
    return heard.data.get("id") == "end"

"""Lanes of push that change while a feed is written and followed."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from functools import partial

import httpx
import pytest

from tests.compat.oplog.wire import until
from tests.conformance.listeners import ReceivedEvent, SocketListener
from tests.e2e.consumers import Consumer
from tests.hosts import set_lanes
from tests.twin import Twin

CONSUMERS = 16
LANES = (4, 2)  # one after the other, from one on
CHANGED_S = 60  # a change is noticed within five seconds; a busy machine needs more
END = {"event": "insert", "type": "end", "id": "end"}


@pytest.fixture
def twin() -> Iterator[Twin]:
    with Twin() as running:
        yield running


def received(twin: Twin) -> Iterator[ReceivedEvent]:
    """Collect the events of one connection, from now on; it never reconnects."""
    listener = SocketListener(twin.ws_url)
    listener.say(json.dumps({"action": "subscribe", "cursor": "now"}))
    with contextlib.closing(listener):
        while True:
            yield listener.next(within_s=30)


def are_at_work(twin: Twin, lanes: int) -> bool:
    """Return True if *lanes* lanes and no others have sent something, the first one aside."""
    followers = httpx.get(f"{twin.url}status").raise_for_status().json()["followers"]
    names = [each["name"] for each in followers if each["checkpoint"] and "-" in each["name"]]
    return sorted(names) == [f"push-{lane}" for lane in range(1, lanes)]


@pytest.mark.java
def test_11_4_nobody_misses_anything_while_lanes_come_and_go(twin: Twin) -> None:
    """Each consumer receives every post once, in order, on its first connection."""
    followers = [
        Consumer(received(twin), lambda each: each.data["type"] == "end") for _ in range(CONSUMERS)
    ]
    stop, posted = threading.Event(), list[str]()

    def produce() -> None:
        with httpx.Client() as client:
            while not stop.is_set():
                name = f"x{len(posted)}"
                body = {"event": "update", "type": "video", "id": name}
                client.post(twin.url, json=body).raise_for_status()
                posted.append(name)

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        for lanes in LANES:
            set_lanes(twin, "main", lanes)
            until(partial(are_at_work, twin, lanes), CHANGED_S)
    finally:
        stop.set()
        producer.join()
    httpx.post(twin.url, json=END).raise_for_status()
    for follower in followers:
        ids = [each.data["id"] for each in follower.done()]
        assert ids == [*posted[posted.index(ids[0]) :], "end"]

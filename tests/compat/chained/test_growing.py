"""A feed moves to another host while producers post and consumers read (GROWING.md).

To a twin as well: it alone copies a server into DynamoDB, and is copied from there.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.compat.chained.place import PATIENCE_S, Place, arrived, until
from tests.compat.chained.test_failing import LAST, is_last
from tests.conformance.listeners import (
    Ended,
    Listener,
    ReceivedEvent,
    Silence,
    SocketListener,
    SseListener,
)
from tests.e2e.consumers import BEFORE_THE_FIRST, log_from, without_repeats
from tests.hosts import host
from tidings.client.worker import Worker

FEED = "main"
PRODUCERS, LOAD_S = 4, 2.0
PAUSE_S = 0.02  # between posts of one producer: a twin takes some hundred a second
LOOK_S = 0.2


class Producer(threading.Thread):
    """Posts one object after the other, and goes where a refusal sends it."""

    def __init__(self, place: Place, name: str) -> None:
        super().__init__(daemon=True)
        self.acknowledged: list[str] = []
        self.refused = 0
        self.prefix, self.ended = f"{name}-", threading.Event()
        self._url = place.feed(FEED)

    def run(self) -> None:
        with httpx.Client(timeout=30) as client:
            while not self.ended.wait(PAUSE_S):
                id_ = f"{self.prefix}{len(self.acknowledged)}"
                operation = {"event": "update", "type": "video", "id": id_}
                answer = client.post(f"{self._url}/ops", json=operation)
                if answer.status_code == 409:
                    self.refused += 1
                    self._url = answer.json()["error"]["master"]
                    continue
                assert answer.status_code < 300, answer.text
                self.acknowledged.append(id_)


class Reader(threading.Thread):
    """Reads by SSE or WebSocket until the last object; moves to a host that has its last event."""

    def __init__(self, kind: str, place: Place) -> None:
        super().__init__(daemon=True)
        self.heard: list[ReceivedEvent] = []
        self.to: Place | None = None
        self._kind, self._place = kind, place

    def run(self) -> None:
        cursor = BEFORE_THE_FIRST
        while not self.heard or not is_last(self.heard[-1]):
            listener = self._listen(cursor)
            with contextlib.closing(listener), contextlib.suppress(Ended):
                self._read(listener)
            cursor = self.heard[-1].id if self.heard else cursor

    def objects(self) -> list[str]:
        return [event.data["id"] for event in without_repeats(self.heard)]

    def _read(self, listener: Listener) -> None:
        while not self.heard or self.to is None or self._place is self.to:
            with contextlib.suppress(Silence):
                self.heard.append(listener.next(LOOK_S))
                if is_last(self.heard[-1]):
                    return
        arrived(self.to, FEED, int(self.heard[-1].id[8:18], 16))
        self._place = self.to

    def _listen(self, cursor: str) -> Listener:
        if self._kind == "sse":
            address = f"{self._place.feed(FEED)}/ops"
            return SseListener(address, {}, {"Last-Event-ID": cursor})
        listener = SocketListener(self._place.ws_url)
        listener.say(json.dumps({"action": "resume", "feed": FEED, "cursor": cursor}))
        assert listener.answer()["reply"] == "subscribed"
        return listener


class Named:
    """A named consumer with a position that the test moves."""

    def __init__(self, place: Place) -> None:
        self.written: list[str] = []
        self._place = place
        self._create(place, "oldest")
        self._work()

    def move(self, to: Place) -> None:
        self.stop()
        address = f"{self._place.feed(FEED)}/consumers/index"
        position = self._place.client.get(address).json()["position"]
        self._place = to
        self._create(to, position)
        self._work()

    def stop(self) -> None:
        self._worker.close()
        self._thread.join(PATIENCE_S)

    @staticmethod
    def _create(place: Place, position: str) -> None:
        address = f"{place.feed(FEED)}/consumers/index"
        answer = place.client.put(address, json={"from": position})
        assert answer.status_code == 201, answer.text

    def _work(self) -> None:
        place = self._place
        self._worker = Worker(place.url, "index", ws_url=place.ws_url)
        self._thread = threading.Thread(
            target=self._worker.run,
            args=[lambda batch: self.written.extend(each.data["id"] for each in batch)],
            daemon=True,
        )
        self._thread.start()


@pytest.fixture(params=["server", pytest.param("twin", marks=pytest.mark.java)])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Place, Place, Place]]:
    """Yield a server as the master, a server or a twin that copies it, and a copy of the copy."""
    old = Place(host("server"), tmp_path / "old")
    new = Place(host(request.param), tmp_path / "new")
    far = Place(host("server"), tmp_path / "far")
    old.chain([FEED], {})
    new.chain([FEED], {FEED: {"url": old.feed(FEED)}})
    far.chain([FEED], {FEED: {"url": new.feed(FEED)}})
    with old, new, far:
        yield old, new, far


def test_a_feed_moves_under_load_without_loss(places: tuple[Place, Place, Place]) -> None:
    """Every operation acknowledged anywhere is received once, in the order of the one log, which
    passes on to a copy of the copy.
    """
    old, new, far = places
    producers = [Producer(old, f"p{number}") for number in range(PRODUCERS)]
    readers = [Reader(kind, old) for kind in ("sse", "ws", "sse", "ws")]
    named = Named(old)
    for thread in (*readers, *producers):
        thread.start()
    time.sleep(LOAD_S)
    for early in readers[:2]:
        early.to = new  # while it is a copy
    time.sleep(LOAD_S)

    assert old.act(FEED, "yield", to=new.feed(FEED)).status_code == 200
    until(lambda: new.act(FEED, "promote").status_code == 200)
    for late in readers[2:]:
        late.to = new
    named.move(new)
    until(lambda: all(each.refused for each in producers))
    time.sleep(LOAD_S)
    for producer in producers:
        producer.ended.set()
        producer.join(PATIENCE_S)
    new.post(FEED, LAST)

    for reader in readers:
        reader.join(PATIENCE_S)
        assert not reader.is_alive()
    until(lambda: LAST in named.written)
    named.stop()
    log = [event.data["id"] for event in log_from(f"{new.url}ops", BEFORE_THE_FIRST, is_last)]
    for reader in readers:
        assert reader.objects() == log
    assert named.written == log
    arrived(far, FEED, new.relay(FEED)["head"])
    assert far.log(FEED) == new.log(FEED)
    until(lambda: far.state(FEED) == new.state(FEED))
    for producer in producers:
        assert [id_ for id_ in log if id_.startswith(producer.prefix)] == producer.acknowledged
        assert len(producer.acknowledged) > PRODUCERS

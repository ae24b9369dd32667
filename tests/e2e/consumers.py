"""Consumers that keep their events, and the folds that are compared with them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import httpx

from tests.conformance.listeners import Ended, ReceivedEvent, Silence, SseListener
from tidings.client.reconnect import follow

BEFORE_THE_FIRST = "0000000000000000007fffff"  # the cursor of an empty feed
PATIENCE_S = 180.0
RETRY_S = 0.02  # between attempts at a server that is coming back

Objects = dict[tuple[str, str], Any]


class Consumer:
    """Collects events in a thread of its own until *is_last* is True, or for `PATIENCE_S`."""

    def __init__(
        self, events: Iterable[ReceivedEvent], is_last: Callable[[ReceivedEvent], bool]
    ) -> None:
        self.heard: list[ReceivedEvent] = []
        self._events, self._is_last = events, is_last
        self._trouble: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def done(self, within_s: float = PATIENCE_S) -> list[ReceivedEvent]:
        """Return the events, after the last one has arrived."""
        self._thread.join(within_s)
        if self._trouble:
            raise self._trouble
        assert not self._thread.is_alive(), f"still waiting after {len(self.heard)} events"
        return self.heard

    def _run(self) -> None:
        try:
            for event in self._events:
                self.heard.append(event)
                if self._is_last(event):
                    return
        except BaseException as trouble:  # noqa: BLE001 handed to the test's own thread
            self._trouble = trouble


def client(url: str, cursor: str, **options: Any) -> Iterator[ReceivedEvent]:
    """Yield the events of the consumer library over WebSocket, with short delays."""
    impatient = follow(url, cursor=cursor, wait=lambda _: time.sleep(RETRY_S), **options)
    for event in impatient:
        yield ReceivedEvent(event.id, event.name, event.data)


def raw_sse(url: str, cursor: str, params: dict[str, str] | None = None) -> Iterator[ReceivedEvent]:
    """Yield the events of a stream that resumes from its last event id, as a browser does."""
    while True:
        with contextlib.suppress(httpx.HTTPError, Ended, Silence):
            listener = SseListener(url, params or {}, {"Last-Event-ID": cursor})
            with contextlib.closing(listener):
                assert listener.response.status_code < 400, listener.response.text
                while True:
                    heard = listener.next(within_s=30)
                    cursor = heard.id
                    yield heard
        time.sleep(RETRY_S)


def log_from(
    url: str, cursor: str, is_last: Callable[[ReceivedEvent], bool]
) -> list[ReceivedEvent]:
    """Return everything after *cursor* up to the last, on one unbroken stream."""
    heard: list[ReceivedEvent] = []
    with contextlib.closing(SseListener(url, {}, {"Last-Event-ID": cursor})) as listener:
        while not heard or not is_last(heard[-1]):
            heard.append(listener.next())
    return heard


def replicate(url: str) -> Objects:
    """Return a full copy: the objects of a consumer without a cursor at `live`."""
    objects: Objects = {}
    with contextlib.closing(SseListener(url, {"lastEventId": "0"}, {})) as listener:
        assert listener.next().name == "reset"
        while (heard := listener.next()).name != "live":
            apply(objects, heard)
    return objects


def fold(events: Iterable[ReceivedEvent]) -> Objects:
    objects: Objects = {}
    for heard in events:
        apply(objects, heard)
    return objects


def apply(objects: Objects, heard: ReceivedEvent) -> None:
    key = (heard.data["type"], heard.data["id"])
    if heard.name == "delete":
        objects.pop(key, None)
    else:
        objects[key] = heard.data


def place(heard: ReceivedEvent) -> str:
    """Page and slot, by which events are ordered; the second before them orders nothing."""
    return heard.id[8:]


def without_repeats(events: Iterable[ReceivedEvent]) -> list[ReceivedEvent]:
    """Drop events with ids at or below the last one (PROTOCOL 6.4).

    Raises:
        AssertionError: an event repeats that was not the last one before.
    """
    kept: list[ReceivedEvent] = []
    seen: dict[str, ReceivedEvent] = {}
    for heard in events:
        if kept and place(heard) <= place(kept[-1]):
            assert seen.get(heard.id) == heard, f"{heard.id} was not received before {kept[-1].id}"
            continue
        kept.append(heard)
        seen[heard.id] = heard
    return kept

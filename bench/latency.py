"""From POST to WebSocket message through the twin, and where the time goes."""

from __future__ import annotations

import json
import threading
import time

import httpx
from tidings.twin.running import Twin
from websockets.sync.client import connect

from .sections import Section, percentile

_RATE = 50
_SECONDS = 20
_ID = "bench-{}"


def _received(url: str, count: int, seen: dict[str, float], ready: threading.Event) -> None:
    with connect(url) as socket:
        socket.send(json.dumps({"action": "subscribe"}))
        while len(seen) < count:
            message = json.loads(socket.recv(timeout=30))
            if message.get("reply") == "subscribed":
                ready.set()
            for event in message.get("events", ()):
                seen.setdefault(event["data"]["id"], time.perf_counter())


def _post(url: str, count: int, sent: dict[str, float], answered: list[float]) -> None:
    with httpx.Client(base_url=url) as client:
        started = time.perf_counter()
        for at in range(count):
            time.sleep(max(0.0, started + at / _RATE - time.perf_counter()))
            body = {"event": "update", "type": "video", "id": _ID.format(at)}
            sent[body["id"]] = time.perf_counter()
            client.post("/", json=body).raise_for_status()
            answered.append(time.perf_counter() - sent[body["id"]])


def _ms(values: list[float]) -> str:
    return (
        f"p50 {percentile(values, 0.5) * 1000:.0f} ms, p99 {percentile(values, 0.99) * 1000:.0f} ms"
    )


def measure() -> Section:
    count = _RATE * _SECONDS
    sent: dict[str, float] = {}
    seen: dict[str, float] = {}
    answered: list[float] = []
    ready = threading.Event()
    with Twin() as twin:
        listener = threading.Thread(target=_received, args=(twin.ws_url, count, seen, ready))
        listener.start()
        ready.wait(30)
        _post(twin.url, count, sent, answered)
        listener.join(30)
    whole = [seen[name] - sent[name] for name in sent if name in seen]
    after = [total - answer for total, answer in zip(whole, answered, strict=False)]
    return Section(
        f"From POST to WebSocket message, {_RATE} operations a second",
        "recorded",
        [
            ("whole way", _ms(whole)),
            ("of it: POST until its answer (gateway, ingest, counter and page)", _ms(answered)),
            (
                "of it: from the answer on (stream poll, lease, query, look-ups, message)",
                _ms(after),
            ),
            ("received", f"{len(whole)} of {count}"),
        ],
        met=None,
        notes=["One producer, one subscriber, both followers running, on one machine."],
    )

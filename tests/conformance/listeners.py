"""Consumers of the feed, written against the wire and nothing else: SSE and WebSocket."""

from __future__ import annotations

import contextlib
import gzip
import json
import queue
import threading
import time
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

PATIENCE_S = 180.0  # a cold function, an emulator: slow is not wrong
TRUSTED = httpx.create_ssl_context()  # once: it reads every root certificate
STREAM = "text/event-stream"
MESSAGE_BYTES_MAX = 128 * 1024  # in gzip and in plain (8.9)


@dataclass(frozen=True, slots=True)
class ReceivedEvent:
    id: str
    name: str
    data: dict[str, Any]
    trace: str = ""

    @property
    def is_row(self) -> bool:
        """Whether it comes from a copy: the slot's first bit says so."""
        return int(self.id[18:] or "0", 16) >= 0x800000


class Ended(AssertionError):
    """The server ended the connection."""


class Silence(AssertionError):
    """Nothing arrived in time."""


class SseListener:
    """One `GET`, read by a thread of its own; *raw* keeps every byte."""

    def __init__(self, url: str, params: Mapping[str, str], headers: Mapping[str, str]) -> None:
        self.raw = b""
        self.moved = 0  # blocks of an id alone, without the first of a stream
        self.cursor = headers.get("Last-Event-ID", "")
        self._arrived: queue.Queue[ReceivedEvent | None] = queue.Queue()
        self._client = httpx.Client(timeout=httpx.Timeout(PATIENCE_S, read=60.0), verify=TRUSTED)
        request = self._client.build_request(
            "GET", url, params=params or None, headers={"Accept": STREAM, **headers}
        )
        self.response = self._client.send(request, stream=True)
        if self.response.status_code == 200:
            threading.Thread(target=self._read, daemon=True).start()
        else:
            self.response.read()

    @property
    def started_at(self) -> str:
        return self.response.headers["last-event-id"]

    def next(self, within_s: float = PATIENCE_S) -> ReceivedEvent:
        try:
            heard = self._arrived.get(timeout=max(0.0, within_s))
        except queue.Empty:
            raise Silence(f"nothing arrived in {within_s} s") from None
        if heard is None:
            raise Ended("the stream ended")
        if heard.name != "reset":
            self.cursor = heard.id
        return heard

    def close(self) -> None:
        self._client.close()

    def _read(self) -> None:
        rest = b""
        lines = self.response.headers["content-type"].startswith("application/x-ndjson")
        end, hear = (b"\n", self._receive_line) if lines else (b"\n\n", self._receive_block)
        with contextlib.suppress(httpx.HTTPError, httpx.StreamError):
            for chunk in self.response.iter_raw():
                self.raw += chunk
                *blocks, rest = (rest + chunk).split(end)
                for block in blocks:
                    hear(block.decode())
        self._arrived.put(None)

    def _receive_line(self, line: str) -> None:
        """Handle a line: all of it is data."""
        if line:
            event = json.loads(line)
            self._arrived.put(ReceivedEvent(event.get("id", ""), event.get("event", ""), event))

    def _receive_block(self, block: str) -> None:
        fields = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":"))
        if fields.keys() <= {"id", "retry"}:
            self.cursor = fields.get("id", self.cursor)
            self.moved += "id" in fields and "retry" not in fields
        else:
            trace = fields.get("traceparent", "")
            data = json.loads(fields["data"])
            self._arrived.put(ReceivedEvent(fields["id"], fields["event"], data, trace))


class SocketListener:
    """One WebSocket; messages of the server are sorted into events and answers."""

    def __init__(self, url: str, **options: Any) -> None:
        self.cursor = ""
        self.code = 0
        self.packed: list[str] = []  # messages that came in gzip, as they came
        self._events: list[ReceivedEvent] = []
        self._answers: list[dict[str, Any]] = []
        self._stack = contextlib.ExitStack()
        self._socket: ClientConnection = self._stack.enter_context(
            connect(
                url, open_timeout=PATIENCE_S, max_size=256 * 1024, ping_interval=None, **options
            )
        )

    def say(self, message: str | bytes) -> None:
        with contextlib.suppress(ConnectionClosed):
            self._socket.send(message)

    def next(self, within_s: float = PATIENCE_S) -> ReceivedEvent:
        self._receive_until(lambda: bool(self._events), within_s)
        return self._events.pop(0)

    def answer(self, within_s: float = PATIENCE_S) -> dict[str, Any]:
        """Return the next message that is not a batch of events."""
        self._receive_until(lambda: bool(self._answers), within_s)
        return self._answers.pop(0)

    def close(self) -> None:
        self._stack.close()

    def _receive_until(self, enough: Callable[[], bool], within_s: float) -> None:
        deadline = time.monotonic() + within_s
        while not enough():
            try:
                text = self._socket.recv(timeout=max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                raise Silence(f"nothing arrived in {within_s} s") from None
            except ConnectionClosed as closed:
                self.code = closed.rcvd.code if closed.rcvd else 1006
                raise Ended(f"closed with {self.code}") from None
            self._sort(json.loads(self._unpacked(str(text))))

    def _unpacked(self, text: str) -> str:
        assert len(text.encode()) <= MESSAGE_BYTES_MAX
        if text.startswith("{"):
            return text
        self.packed.append(text)
        plain = gzip.decompress(b64decode(text, validate=True))
        assert len(text) < len(plain) <= MESSAGE_BYTES_MAX
        return plain.decode()

    def _sort(self, message: dict[str, Any]) -> None:
        if "events" not in message:
            self._answers.append(message)
        for raw in message.get("events", ()):
            trace = raw.get("traceparent", "")
            self._events.append(ReceivedEvent(raw["id"], raw["event"], raw.get("data", {}), trace))
        self.cursor = message.get("cursor", self.cursor)


Listener = SseListener | SocketListener

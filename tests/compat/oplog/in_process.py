"""A feed in memory without a server: its stores, the deployed app on it, and its clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.compat.oplog.wire import JSON
from tests.unit.core.scene import FEED, Scene
from tidings.aws.effects import now_ms
from tidings.client.events import Event
from tidings.client.sse import Parser
from tidings.core.errors import Rejected
from tidings.core.ingest.ingest import PostRequest
from tidings.http.streams.sse import ClientCounter, EventStreams
from tidings.http.streams.tail_poller import Listen, at_fixed_interval

ORIGIN = "https://example.org"
PATIENCE_S = 180.0  # none takes two seconds on an idle machine
Message = MutableMapping[str, Any]


def accept(scene: Scene, body: str, kind: str = JSON, key: str = "") -> list[str]:
    return scene.ingester.accept(PostRequest(FEED, body.encode(), kind, key or None))


def refused(scene: Scene, body: str) -> Rejected:
    """Return the error with which *body* is refused."""
    with pytest.raises(Rejected) as caught:
        accept(scene, body)
    return caught.value


def streams(
    scene: Scene, longest_ms: int | None = 60_000, listen: Listen = at_fixed_interval
) -> EventStreams:
    """Return the app; without *longest_ms* it does not end streams, as on a server."""
    return EventStreams(
        streamer=lambda: scene.streamer,
        clients=ClientCounter(lambda: scene.counters, now_ms, "here"),
        origins=(ORIGIN,),
        longest_ms=longest_ms,
        listen=listen,
    )


@dataclass
class Client:
    """One request. It leaves when *enough* returns True for the text read; *stuck*, it takes one
    piece and then nothing more until it leaves.
    """

    app: EventStreams
    enough: Callable[[str], bool] = lambda text: False
    stuck: bool = False
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    text: str = ""
    is_complete: bool = False
    left: asyncio.Event = field(default_factory=asyncio.Event)

    async def get(self, cursor: str | None = None, query: str = "", **headers: str) -> Client:
        """Request as a browser and oplog's client do: the cursor is in a header, here."""
        if cursor is not None:
            headers["last-event-id"] = cursor
        return await self.ask("GET", query, accept="text/event-stream", **headers)

    async def ask(self, method: str, query: str = "", **headers: str) -> Client:
        scope = {
            "type": "http",
            "method": method,
            "path": "/",
            "query_string": query.encode(),
            "headers": [
                (name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()
            ],
        }
        await self.app(scope, self._receive, self._send)
        return self

    def events(self) -> list[Event]:
        """Return the events received, parsed by our own client."""
        signs = Parser().feed(self.text.encode())
        return [sign for sign in signs if isinstance(sign, Event)]

    async def _receive(self) -> Message:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            return
        self.text += message.get("body", b"").decode()
        self.is_complete = not message.get("more_body", False)
        if self.enough(self.text):
            self.left.set()
        if self.stuck and self.text:
            await self.left.wait()


def until_live(text: str) -> bool:
    return "event: live\n" in text


def run(work: Any) -> Any:
    async def in_time() -> Any:
        async with asyncio.timeout(PATIENCE_S):
            return await work

    return asyncio.run(in_time())

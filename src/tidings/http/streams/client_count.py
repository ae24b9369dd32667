"""
Count the streams of an ASGI app for `/status` while they are served.

A separate task writes the counts, and only the last stream waits for it. A function is frozen after
the end of its last stream, so the counts are written before.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable

from tidings.core import limits
from tidings.core.counters import CounterDelta, Counters, StreamCounter
from tidings.core.effects import Clock
from tidings.core.errors import TidingsError
from tidings.core.model.json_body import NDJSON_TYPE
from tidings.http.asgi import WRITE_NOW, App, Message, Receive, Send, WriteNow
from tidings.http.router import feed_of

# Each SSE block contains the first, and each line of NDJSON the second, exactly once, because data
# is one line of JSON.
_BLOCK, _LINE = b"\nevent: ", b"}\n"


class ClientCounter:
    """A wrapper that counts the streams of *app*. *place* identifies this process in the counts."""

    def __init__(
        self, app: App, counter_store: Callable[[], Counters], clock: Clock, place: str
    ) -> None:
        self._app, self._counter_store, self._clock, self._place = app, counter_store, clock, place
        self._counters: defaultdict[str, StreamCounter] = defaultdict(StreamCounter)
        self._writing = asyncio.Lock()
        self._ticking: asyncio.Task[None] | None = None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        write_now = scope.get(WRITE_NOW)
        request = TrackedRequest(self, feed_of(scope["path"]), send, write_now)
        if write_now is not None:
            scope = {**scope, WRITE_NOW: request.write_now}
        try:
            await self._app(scope, receive, request.send)
        finally:
            await request.leave()

    def counter(self, feed: str) -> StreamCounter:
        return self._counters[feed]

    def wake(self) -> None:
        if self._ticking is None or self._ticking.done():
            self._ticking = asyncio.ensure_future(self._tick())

    async def _tick(self) -> None:
        """Write the due counts while there are any clients."""
        while not all(counter.is_empty for counter in self._counters.values()):
            for feed, counter in list(self._counters.items()):
                if counter.is_due(self._clock()):
                    await self.write(feed)
            await asyncio.sleep(limits.COUNT_SOON_MS / 1000)

    async def write(self, feed: str) -> None:
        async with self._writing:
            delta = self._counters[feed].take_delta(self._clock())
            try:
                await asyncio.to_thread(self._store, feed, delta)
            except TidingsError:
                self._counters[feed].give_back(delta)
                self.wake()

    def _store(self, feed: str, delta: CounterDelta) -> None:
        until_ms = self._clock() + limits.PRESENCE_MS
        self._counter_store().attend(feed, self._place, delta.clients, until_ms=until_ms)
        if delta.connections or delta.sent:
            self._counter_store().serve(feed, connections=delta.connections, sent=delta.sent)


class TrackedRequest:
    """One request. It is counted from the response status 200 until its end."""

    def __init__(
        self,
        client_counter: ClientCounter,
        feed: str,
        send: Send,
        write_now: WriteNow | None = None,
    ) -> None:
        self._client_counter, self._feed, self._send = client_counter, feed, send
        self._write_now = write_now
        self._counter: StreamCounter | None = None  # None while the request is not counted
        self._mark = _BLOCK

    async def send(self, message: Message) -> None:
        """Wrap the server's `send`."""
        if message["type"] == "http.response.body" and self._counter is not None:
            self._counter.send(message.get("body", b"").count(self._mark))
            if not message.get("more_body", False):
                await self.leave()
        await self._send(message)
        if message.get("status") == 200:
            kind = dict(message["headers"]).get(b"content-type", b"")
            self._mark = _LINE if kind.startswith(NDJSON_TYPE.encode()) else _BLOCK
            self._counter = self._client_counter.counter(self._feed)
            self._counter.open()
            self._client_counter.wake()

    def write_now(self, frame: bytes, events: int) -> bool:
        """Wrap the server's `WRITE_NOW`."""
        assert self._write_now is not None
        is_written = self._write_now(frame, events)
        if is_written and self._counter is not None:
            self._counter.send(events)
        return is_written

    async def leave(self) -> None:
        """Count the end of the request, however it ended; a second call does nothing."""
        counter, self._counter = self._counter, None
        if counter is not None:
            counter.close()
            if counter.has_left:
                await self._client_counter.write(self._feed)

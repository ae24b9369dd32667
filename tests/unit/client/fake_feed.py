"""A small server on loopback that speaks docs/PROTOCOL.md, with faults to order.

It is enough of a feed for clients: one log in memory, posts, Server-Sent Events, WebSocket,
and the files of `console/`. It shares no code with the product but the form of event ids, and the
folder of the client that the page imports.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import mimetypes
import socket
import threading
from base64 import b64encode
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import uvicorn

from tidings.http.endpoints.status import CLIENT

SECONDS = 0x65000000  # every page was committed then


def event_id(page: int, slot: int = 0) -> str:
    return f"{SECONDS:08x}{page:010x}{slot:06x}"


@dataclass
class Faults:
    """What goes wrong next. Lists are used up from the front."""

    refuse: list[tuple[int, str]] = field(default_factory=list)  # readers: status, code
    posts: list[str] = field(default_factory=list)  # "503", "lost" (appended, no answer), "422"
    pongs: list[str | None] = field(default_factory=list)  # state to say, None: say nothing
    repeat: int = 0  # resume this many pages too early
    goodbye_after: int | None = None  # close each connection after this many events


class FakeFeed:
    """The log and all connections. Use it from the server's loop, except for `append`."""

    def __init__(self) -> None:
        self.pages: list[list[dict[str, Any]]] = []
        self.keys: dict[str, list[str]] = {}
        self.faults = Faults()
        self.requests: list[dict[str, str]] = []  # headers of each GET and POST
        self.messages: list[dict[str, Any]] = []  # of each WebSocket
        self.generation = 0  # connections of an older one are cut
        self.password = ""  # which a WebSocket has to send
        self.changed = asyncio.Event()

    @property
    def report(self) -> dict[str, Any]:
        """Return the content of `/status`: one follower is up to date, one never ran."""
        head = len(self.pages)
        followers = [{"name": "push", "lag_pages": 0}, {"name": "state", "lag_pages": head}]
        return {"status": "OK", "clients": 1, "followers": followers}

    def append(self, operations: list[dict[str, Any]]) -> list[str]:
        self.pages.append(operations)
        self.tell()
        return [event_id(len(self.pages), slot) for slot in range(len(operations))]

    def tell(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    @property
    def end(self) -> str:
        return event_id(len(self.pages), 0x7FFFFF)

    def events(self, page: int, slot: int) -> Iterator[tuple[str, dict[str, Any]]]:
        for number in range(max(page, 1), len(self.pages) + 1):
            for at, operation in enumerate(self.pages[number - 1]):
                if (number, at) > (page, slot):
                    yield event_id(number, at), operation

    def fold(self) -> dict[tuple[str, str], dict[str, Any]]:
        objects: dict[tuple[str, str], dict[str, Any]] = {}
        for _, operation in self.events(0, 0):
            key = (operation["type"], operation["id"])
            objects.pop(key, None)
            if operation["event"] != "delete":
                objects[key] = operation
        return objects


@dataclass
class Reader:
    """One connection: its filter and its position."""

    feed: FakeFeed
    cursor: str
    types: list[str] | None
    parents: list[str] | None

    def __post_init__(self) -> None:
        self.generation = self.feed.generation
        self.copy = self.cursor == "0"
        self.page, self.slot = len(self.feed.pages), 0x7FFFFF
        if len(self.cursor) == 24 and int(self.cursor[18:], 16) < 0x800000:
            self.page, self.slot = int(self.cursor[8:18], 16), int(self.cursor[18:], 16)
            self.page = max(0, self.page - self.feed.faults.repeat)
        elif self.cursor not in ("", "now", "0"):
            self.copy = True

    @property
    def place(self) -> str:
        return event_id(self.page, self.slot)

    @property
    def is_cut(self) -> bool:
        return self.generation != self.feed.generation

    def next(self) -> list[tuple[str, str, dict[str, Any]]]:
        """Return the events since the last call, as id, name and data."""
        found: list[tuple[str, str, dict[str, Any]]] = []
        if self.copy:
            self.copy = False
            row = f"{0:08x}{len(self.feed.pages):010x}800000"
            if self.cursor == "0":
                found.append(("1", "reset", {}))
            for operation in self.feed.fold().values():
                if self._wants(operation):
                    found.append((row, "insert", _data(operation)))
            found.append((self.feed.end, "live", {}))
            self.page, self.slot = len(self.feed.pages), 0x7FFFFF
        for at, operation in self.feed.events(self.page, self.slot):
            self.page, self.slot = int(at[8:18], 16), int(at[18:], 16)
            if self._wants(operation):
                found.append((at, operation["event"], _data(operation)))
        return found

    def _wants(self, operation: dict[str, Any]) -> bool:
        if self.types is not None and operation["type"] not in self.types:
            return False
        parents = operation.get("parents", [])
        return self.parents is None or any(parent in self.parents for parent in parents)


def _data(operation: dict[str, Any]) -> dict[str, Any]:
    data = {"timestamp": "2026-11-20T17:19:10.94Z", "parents": [], **operation}
    del data["event"]
    return data


CONSOLE = Path(__file__).resolve().parents[3] / "console"
Send = Callable[[dict[str, Any]], Awaitable[None]]
Say = Callable[[dict[str, Any], bool], Awaitable[None]]
Receive = Callable[[], Coroutine[Any, Any, dict[str, Any]]]


def application(feed: FakeFeed) -> Callable[[dict[str, Any], Receive, Send], Awaitable[None]]:
    """Return the ASGI application."""

    async def handle(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await _websocket(feed, receive, send)
        elif scope["type"] == "http":
            headers = {name.decode(): value.decode() for name, value in scope["headers"]}
            if scope["path"].startswith("/console"):
                await _file(scope["path"], send)
                return
            feed.requests.append({**headers, "path": scope["path"], ":method": scope["method"]})
            if scope["path"].endswith("/status"):
                await _answer(send, 200, json.dumps(feed.report).encode())
            elif scope["path"] == "/feeds":
                await _answer(send, 200, b'{"feeds": []}')
            elif scope["method"] == "POST":
                await _post(feed, headers, receive, send)
            else:
                query = parse_qs(scope["query_string"].decode(), keep_blank_values=True)
                await _sse(feed, headers, query, receive, send)

    return handle


async def _answer(
    send: Send, status: int, body: bytes = b"", kind: str = "application/json"
) -> None:
    headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _error(code: str, message: str) -> bytes:
    return json.dumps({"error": {"code": code, "message": message}}).encode()


async def _file(path: str, send: Send) -> None:
    name = path.removeprefix("/console").strip("/") or "index.html"
    folder = CONSOLE.parent / CLIENT if name.startswith("client/") else CONSOLE
    name = name.removeprefix("client/")
    file = folder / name
    if "/" in name or not file.is_file():
        await _answer(send, 404)
        return
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    await _answer(send, 200, file.read_bytes(), kind)


async def _post(feed: FakeFeed, headers: dict[str, str], receive: Receive, send: Send) -> None:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    fault = feed.faults.posts.pop(0) if feed.faults.posts else ""
    if fault.isdigit():
        await _answer(send, int(fault), _error("unavailable", "not now"))
        return
    operations = []
    for number, line in enumerate(body.split(b"\n"), 1):
        operation = json.loads(line)
        if operation.get("event") not in ("insert", "update", "delete"):
            rule = f"line {number}: event: must be one of insert, update, delete"
            await _answer(send, 400, _error("invalid_operation", rule))
            return
        operations.append(operation)
    key = headers["idempotency-key"]
    if key not in feed.keys:
        feed.keys[key] = feed.append(operations)
    if fault != "lost":
        await _answer(send, 200, json.dumps({"ids": feed.keys[key]}).encode())


async def _sse(
    feed: FakeFeed,
    headers: dict[str, str],
    query: dict[str, list[str]],
    receive: Receive,
    send: Send,
) -> None:
    if feed.faults.refuse:
        status, code = feed.faults.refuse.pop(0)
        await _answer(send, status, _error(code, "not for you"))
        return
    filters = {name: values[0].split(",") for name, values in query.items()}
    reader = Reader(
        feed, headers.get("last-event-id", ""), filters.get("types"), filters.get("parents")
    )
    kind = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": kind})
    await send({"type": "http.response.body", "body": b": hello\n\n", "more_body": True})
    sent = 0
    while not reader.is_cut:
        changed = feed.changed
        for at, name, data in reader.next():
            block = f"id: {at}\nevent: {name}\ndata: {json.dumps(data)}\n\n".encode()
            await send({"type": "http.response.body", "body": block, "more_body": True})
            sent += 1
            if sent == feed.faults.goodbye_after:
                await send({"type": "http.response.body", "body": b""})
                return
        await changed.wait()
    # returning without an end breaks the connection off


async def _websocket(feed: FakeFeed, receive: Receive, send: Send) -> None:
    await receive()
    if feed.faults.refuse:
        status, code = feed.faults.refuse.pop(0)
        await send({"type": "websocket.http.response.start", "status": status, "headers": []})
        body = _error(code, "not for you")
        await send({"type": "websocket.http.response.body", "body": body})
        return
    await send({"type": "websocket.accept"})
    generation = feed.generation
    pump: asyncio.Task[None] | None = None
    messages = asyncio.create_task(receive())
    try:
        while feed.generation == generation:
            changed = asyncio.create_task(feed.changed.wait())
            await asyncio.wait({messages, changed}, return_when=asyncio.FIRST_COMPLETED)
            changed.cancel()
            if not messages.done():
                continue
            message = messages.result()
            if message["type"] == "websocket.disconnect":
                return
            messages = asyncio.create_task(receive())
            pump = await _message(feed, json.loads(message["text"]), send, pump)
        await send({"type": "websocket.close", "code": 1001})
    finally:
        messages.cancel()
        if pump:
            pump.cancel()


async def _message(
    feed: FakeFeed, message: dict[str, Any], send: Send, pump: asyncio.Task[None] | None
) -> asyncio.Task[None] | None:
    feed.messages.append(message)
    if message["action"] == "ping":
        state = feed.faults.pongs.pop(0) if feed.faults.pongs else "live"
        if state is not None:
            await _say(send, {"reply": "pong", "state": state})
        return pump
    if message["action"] == "keepalive":
        return pump
    if message["action"] == "unsubscribe":
        if pump:
            pump.cancel()
        await _say(send, {"reply": "unsubscribed"})
        return None
    cursor = message["cursor"] if message["action"] == "resume" else message.get("from", "now")
    if refusal := _refusal(feed, message):
        await send({"type": "websocket.send", "text": refusal.decode()})
        return pump
    reader = Reader(feed, cursor, message.get("types"), message.get("parents"))
    start = reader.place if cursor in ("", "now") else cursor
    await _say(send, {"reply": "subscribed", "feed": message["feed"], "cursor": start})
    in_gzip = message.get("encoding") == "gzip"
    return asyncio.create_task(_pump(feed, reader, partial(_say_events, send, in_gzip)))


def _refusal(feed: FakeFeed, message: dict[str, Any]) -> bytes | None:
    if message.get("feed") == "nowhere":
        return _error("unknown_feed", "no such feed here")
    wrong = message.get("password", "") != feed.password
    return _error("wrong_password", "wrong password") if wrong else None


async def _pump(feed: FakeFeed, reader: Reader, say: Say) -> None:
    sent = 0
    while True:
        changed = feed.changed
        before = reader.place
        events = [
            {"id": at, "event": name, **({"data": data} if data else {})}
            for at, name, data in reader.next()
        ]
        if feed.faults.goodbye_after is not None:
            events = events[: feed.faults.goodbye_after - sent]
        if events and feed.faults.goodbye_after is not None:
            sent += len(events)
            await say({"events": events}, sent >= feed.faults.goodbye_after)
            if sent >= feed.faults.goodbye_after:
                return
        elif events or reader.place != before:
            await say({"events": events, "cursor": reader.place}, False)
        await changed.wait()


async def _say(send: Send, message: dict[str, Any]) -> None:
    await send({"type": "websocket.send", "text": json.dumps(message)})


async def _say_events(send: Send, in_gzip: bool, message: dict[str, Any], is_last: bool) -> None:
    """Send the message, in gzip of any size if the client asked for it."""
    text = json.dumps(message)
    if in_gzip:
        text = b64encode(gzip.compress(text.encode())).decode()
    await send({"type": "websocket.send", "text": text})
    if is_last:
        await send({"type": "websocket.close", "code": 1001})


class Running:
    """The server in a thread of its own, on a free port of loopback."""

    def __init__(self) -> None:
        self.feed = FakeFeed()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        config = uvicorn.Config(
            application(self.feed), log_level="critical", lifespan="off", ws="websockets-sansio"
        )
        self._server = uvicorn.Server(config)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(60)

    def stop(self) -> None:
        self.cut()
        self._server.should_exit = True
        self._server.force_exit = True
        self._thread.join(60)
        self._listening.close()

    def append(self, *operations: dict[str, Any]) -> list[str]:
        """Append one page, like a post."""
        ids: list[str] = self._do(lambda: self.feed.append(list(operations)))
        return ids

    def cut(self) -> None:
        """Break every connection."""

        def bump() -> None:
            self.feed.generation += 1
            self.feed.tell()

        self._do(bump)

    def _run(self) -> None:
        async def serve() -> None:
            self._loop = asyncio.get_running_loop()
            self._loop.call_soon(self._ready.set)
            await self._server.serve(sockets=[self._listening])

        asyncio.run(serve())

    def _do(self, what: Callable[[], Any]) -> Any:
        async def call() -> Any:
            return what()

        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(60)


@contextmanager
def running() -> Iterator[Running]:
    server = Running()
    server.start()
    try:
        yield server
    finally:
        server.stop()

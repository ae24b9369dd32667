"""The memory of a server: feeds, connections, filters, consumers, keys, webhooks, durable streams.

After their deletion, no thread, task or file is left of them, and no object in memory names them
except a `Newest`, which has a maximum size.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import threading
from collections import Counter, deque
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

import httpx
import pytest

from tests.unit.server.test_crashes import hosted
from tests.unit.server.test_feeds import client, delete, removed
from tests.unit.server.test_kills import OPERATION
from tidings.core import limits
from tidings.core.auth.guard import Role
from tidings.core.auth.keys import Key, KeyIssuer, PresentedKey
from tidings.core.newest import Newest
from tidings.server.app import ServerApp
from tidings.server.host import Host, now_ms

# A few show that something grows; TIDINGS_TEST_FEEDS=1000 takes some minutes.
FEEDS = int(os.environ.get("TIDINGS_TEST_FEEDS", "5"))
WITHIN_S = 180.0
BEGINNING = "0000000000000000007fffff"
JSON = {"content-type": "application/json"}
READS = [
    *("changes", "changes?tags=x", "pages", "pages?types=video", "rows?bucket=1", "objects"),
    *("status", "sums", "clients", "history", "relay", "log", "consumers", "hooks", "keys"),
]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REMOVE_SETTLE_MS", 100)


async def stream(app: ServerApp, path: str, accept: str) -> None:
    """Open a stream, and disconnect after its first bytes."""
    first = asyncio.Event()
    asked = iter([{"type": "http.request", "body": b""}])

    async def receive() -> dict[str, Any]:
        request = next(asked, None)
        if request is None:
            await first.wait()
        return request or {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            assert message["status"] == 200
        elif message.get("body"):
            first.set()

    headers = {"host": "127.0.0.1", "last-event-id": BEGINNING, "accept": accept}
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    path, _, query = path.partition("?")
    scope = {"type": "http", "method": "GET", "path": path, "query_string": query.encode()}
    await app({**scope, "headers": raw}, receive, send)


async def socket(app: ServerApp, feed: str, **more: Any) -> None:
    """Subscribe with a WebSocket, and disconnect after the first message."""
    incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    subscribe = {"action": "resume", "feed": feed, "cursor": BEGINNING, **more}
    incoming.put_nowait({"type": "websocket.connect"})
    incoming.put_nowait({"type": "websocket.receive", "text": json.dumps(subscribe)})

    async def send(message: Any) -> None:
        if message["type"] == "websocket.send":
            incoming.put_nowait({"type": "websocket.disconnect", "code": 1000})

    scope = {"type": "websocket", "path": "/ws", "query_string": b""}
    await app({**scope, "headers": [(b"host", b"127.0.0.1")]}, incoming.get, send)


async def use(host: Host, app: ServerApp, http: httpx.AsyncClient, feed: str) -> None:
    """Create the feed and everything that a feed can have, and read it in every way."""
    base = f"/feeds/{feed}"
    for method, path, body in (
        ("PUT", "", None),
        ("PUT", "/v1/stream/s", [1]),
        *[("POST", "/ops", {**OPERATION, "data": at}) for at in range(3)],
        ("PUT", "/consumers/c", {"from": "oldest"}),
        ("POST", "/consumers/c/lease", {"worker": "w"}),
        ("PUT", "/hooks/h", {"url": "http://127.0.0.1:9/", "from": "oldest"}),
        ("POST", "/erasures", {"type": "video", "id": "b", "reason": "x"}),
    ):
        answer = await http.request(method, base + path, json=body, headers=JSON)
        assert answer.is_success, answer.text
    for path in READS:
        await http.get(f"{base}/{path}")
    for query, accept in (("types=video", "text/event-stream"), ("leave=false", "x/y, */*")):
        await stream(app, f"{base}/ops?{query}", accept)
    await stream(app, f"{base}/ops?parents=user/1", "application/x-ndjson")
    await stream(app, f"{base}/v1/stream/s?offset=-1&live=sse", "text/event-stream")
    await socket(app, feed, parents=["user/1"])
    given = PresentedKey(f"{abs(hash(feed)) % 10**12:012}", "s" * 32)
    rights = Key("", "", frozenset({Role.READ, Role.ADMIN}), rate=100)
    issuer = KeyIssuer(host.stores.keys, host.profiles, now_ms)
    await asyncio.to_thread(issuer.create, feed, given, rights)
    headers = {"authorization": f"Bearer {given.encode()}"}
    (await http.get(f"{base}/changes", headers=headers)).raise_for_status()
    (await http.post(f"{base}/keys/{given.id}/revoke", headers=headers)).raise_for_status()


def naming(prefix: str, *roots: object) -> Counter[str]:
    """Count the entries and fields below *roots* with a key or value that begins with *prefix*."""
    found, seen, left = Counter[str](), set[int](), [("", each) for each in roots]
    while left:
        place, each = left.pop()
        if id(each) not in seen:
            seen.add(id(each))
            for name, part in _parts(place, each):
                key = part[0] if isinstance(part, tuple) and part else part
                if isinstance(key, str) and key.startswith(prefix):
                    found[name] += 1
                left.append((name, part))
    return found


def _parts(place: str, whole: object) -> Iterator[tuple[str, object]]:
    if isinstance(whole, Newest):
        return  # it has a maximum size
    if isinstance(whole, dict):
        yield from ((place, each) for pair in [*whole.items()] for each in pair)
    elif isinstance(whole, list | tuple | set | frozenset | deque):
        yield from ((place, each) for each in [*whole])
    elif isinstance(whole, partial):
        yield from ((place, each) for each in (whole.func, whole.args))
    elif isinstance(whole, MethodType):
        yield place, whole.__self__
    elif isinstance(whole, FunctionType):
        yield from ((place, cell.cell_contents) for cell in whole.__closure__ or ())
    elif type(whole).__module__.startswith("tidings"):
        slots = [name for of in type(whole).__mro__ for name in getattr(of, "__slots__", ())]
        names = [*getattr(whole, "__dict__", {}), *slots]
        name = type(whole).__qualname__
        yield from ((f"{name}.{each}", getattr(whole, each, None)) for each in names)


def held() -> Counter[str]:
    """Count the threads by name, the tasks and the files that are open.

    Leave out the threads of pools and the connections to the database, which have a maximum number.
    """
    pools = ("asyncio", "request", "replay", "slow-", "heavy-", "webhook", "commit")
    threads = [each.name for each in threading.enumerate() if not each.name.startswith(pools)]
    gc.collect()
    files = [each.readlink().name for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    others = [each for each in files if not each.startswith("feed.db")]
    return Counter([*threads, *("task" for _ in asyncio.all_tasks()), *("file" for _ in others)])


async def _used_and_deleted(folder: Path) -> None:
    async with hosted(folder / "feed.db", folder) as (host, app), client(app) as http:

        async def cycle(names: list[str], most: Counter[str]) -> None:
            for name in names:
                await use(host, app, http, name)
            await asyncio.to_thread(host.sweep)
            for name in names:
                await asyncio.to_thread(delete, host, name)
            for name in names:
                await removed(host, name)
            async with asyncio.timeout(WITHIN_S):
                while not held() <= most:  # what earlier tests have left may end
                    await asyncio.sleep(0.05)

        await cycle(["warm"], held() + Counter(file=5))  # files that stay open, such as of pools
        await cycle([f"gone-{at}" for at in range(FEEDS)], held())
        async with asyncio.timeout(WITHIN_S):  # after a sweep, once a minute
            while naming("gone-", host, app):
                await asyncio.to_thread(host.sweep)


def test_everything_is_removed_with_its_feed(tmp_path: Path) -> None:
    asyncio.run(_used_and_deleted(tmp_path))

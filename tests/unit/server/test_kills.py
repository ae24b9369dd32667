"""A kill between any two statements of SQLite, for each request that appends to the log."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import pytest

from tests.unit.server.test_crashes import FEED, hosted
from tidings.core.auth.guard import Role
from tidings.core.auth.keys import Key, KeyIssuer, PresentedKey
from tidings.core.model.feeds import STATE
from tidings.core.model.filters import Filter
from tidings.server.host import Host, now_ms
from tidings.server.sqlite.database import Database
from tidings.server.sqlite.log import SqliteLog

UPSTREAM = "http://127.0.0.1:9/feeds/main"  # where nothing listens
SOURCES = json.dumps({FEED: {"url": UPSTREAM}})
KEY, BOUNDED = PresentedKey("a" * 12, "s" * 32), PresentedKey("b" * 12, "s" * 32)
OPERATION = {"event": "update", "type": "video", "id": "a", "parents": ["user/1"]}
CORRECTION = {**OPERATION, "id": "b", "timestamp": "2026-01-01T00:00:00.000Z", "at": ""}
WITHIN_S = 180.0

Append = Callable[[httpx.AsyncClient], Awaitable[httpx.Response]]


def _posting(path: str, body: object, **headers: str) -> Append:
    return lambda client: client.post(path, json=body, headers=headers)


def _bearer(given: PresentedKey) -> str:
    return f"Bearer {given.encode()}"


async def _repeat(client: httpx.AsyncClient) -> httpx.Response:
    await APPENDS["a request with an Idempotency-Key"](client)
    return await APPENDS["a request with an Idempotency-Key"](client)


async def _promote(client: httpx.AsyncClient) -> httpx.Response:
    """Promote the feed, and post to it; a feed that is not chained yields before."""
    await client.post("/feeds/main/relay/yield", json={"to": UPSTREAM})
    await client.post("/feeds/main/relay/promote", json={"why": "a test"})
    async with asyncio.timeout(WITHIN_S):  # a copy refuses producers for up to a second more
        while (answer := await APPENDS["operations with a bounded key"](client)).is_error:
            assert answer.status_code == 409, answer.text
            await asyncio.sleep(0.1)
    return answer


async def _streams(client: httpx.AsyncClient) -> httpx.Response:
    path, kind = "/feeds/main/v1/stream/s", {"content-type": "application/json"}
    await client.put(path, content=b"[1]", headers=kind)
    await client.post(path, content=b"[2]", headers=kind)
    return await client.delete(path)


APPENDS: dict[str, Append] = {
    "operations": _posting("/ops", [OPERATION, OPERATION]),
    "operations with a key": _posting("/ops", OPERATION, authorization=_bearer(KEY)),
    "operations with a bounded key": _posting("/ops", OPERATION, authorization=_bearer(BOUNDED)),
    "a request with an Idempotency-Key": _posting(
        "/ops", OPERATION, authorization=_bearer(BOUNDED), **{"idempotency-key": "k"}
    ),
    "a repeated request": _repeat,
    "a change": _posting("/changes", {"data": 1}),
    "a change with an Idempotency-Key": _posting(
        "/changes", {"data": 1}, **{"idempotency-key": "k"}
    ),
    "corrections": lambda client: client.post(
        "/feeds/main/corrections?through=0",
        content=json.dumps(CORRECTION),
        headers={"content-type": "application/x-ndjson"},
    ),
    "durable streams": _streams,
    "a feed that yields": _posting("/feeds/main/relay/yield", {"to": UPSTREAM}),
    "a feed that is promoted": _promote,
}


# The cases that need keys. A feed with keys is closed to requests without one.
KEYED = frozenset(
    {
        "operations with a key",
        "operations with a bounded key",
        "a request with an Idempotency-Key",
        "a repeated request",
        "a feed that is promoted",
    }
)


class Kills:
    """The files at *path* as a kill before each statement would leave them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.images: dict[tuple[bytes, ...], None] = {}

    def look(self, _: str = "") -> None:
        wal = self._path.with_name(f"{self._path.name}-wal")
        self.images[self._path.read_bytes(), wal.read_bytes()] = None


def _add_keys(host: Host) -> None:
    issuer = KeyIssuer(host.stores.keys, host.profiles, now_ms)
    ingest = frozenset({Role.INGEST})
    issuer.create(FEED, KEY, Key("", "", ingest | {Role.ADMIN}))
    issuer.create(FEED, BOUNDED, Key("", "", ingest, Filter(parents=frozenset({"user/1"}))))


def _trace(host: Host, kills: Kills) -> None:
    with host.database.reading() as sql:
        sql.set_trace_callback(kills.look)


async def _killed(path: Path, name: str, sources: str = "") -> Kills:
    kills, headers = Kills(path), dict[str, str]()
    async with hosted(path, TIDINGS_SOURCES=sources) as (host, app):
        if name in KEYED:
            await asyncio.to_thread(_add_keys, host)
            headers = {"authorization": _bearer(KEY)}
        await asyncio.to_thread(_trace, host, kills)
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://127.0.0.1", headers=headers
        ) as client:
            answer = await APPENDS[name](client)
            assert answer.is_success, answer.text
            kills.look()
            await asyncio.wait_for(_settled(host), WITHIN_S)
    return kills


async def _settled(host: Host) -> None:
    head = await asyncio.to_thread(host.stores.log.head, FEED)
    while host.stores.followers.checkpoints(FEED).get(STATE, 0) < head:
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("name", APPENDS)
def test_no_kill_leaves_a_number_without_its_page(tmp_path: Path, name: str) -> None:
    """No operation is counted without its page either; the answer comes after the page."""
    (tmp_path / "served").mkdir()
    kills = asyncio.run(_killed(tmp_path / "served" / "feed.db", name))
    _check(kills, tmp_path / "feed.db")


def test_no_kill_of_a_promoted_relay_does(tmp_path: Path) -> None:
    """It takes requests of producers as any other feed."""
    (tmp_path / "served").mkdir()
    promoted = "a feed that is promoted"
    kills = asyncio.run(_killed(tmp_path / "served" / "feed.db", promoted, SOURCES))
    _check(kills, tmp_path / "feed.db")


def _check(kills: Kills, path: Path) -> None:
    assert len(kills.images) > 1
    for database_bytes, wal in kills.images:
        path.write_bytes(database_bytes)
        path.with_name("feed.db-wal").write_bytes(wal)
        with contextlib.closing(Database(path)) as database:
            log = SqliteLog(database)
            pages, counter = log.read(FEED, 0), log.log_counter(FEED)
        ends = [0, *(page.number for page in pages)]
        assert [page.first for page in pages] == [end + 1 for end in ends[:-1]]
        assert ends[-1] == counter.page
        assert sum(len(page.lines) for page in pages) == counter.operations
    assert pages

"""A server creates and deletes feeds while it runs: nothing of a deleted feed is left."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sqlite3
import threading
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

import httpx
import pytest

from tests.contract.stores import LATER_MS
from tests.unit.server.test_crashes import hosted
from tests.unit.server.test_erasures import contents, holders
from tests.unit.server.test_kills import OPERATION as VIDEO
from tidings.core import limits
from tidings.core.auth.guard import Role
from tidings.core.auth.keys import Key, KeyIssuer, PresentedKey
from tidings.core.consumers.consumer import Change, Consumer, Note, Parked
from tidings.core.errors import FeedDeleted
from tidings.core.feeds.records import DELETED, FeedRecord
from tidings.core.feeds.service import jump_end
from tidings.core.model.feeds import key_of
from tidings.core.model.operations import line_from
from tidings.core.newest import Newest
from tidings.core.settings.profiles import Profile
from tidings.server.app import ServerApp
from tidings.server.host import Host, now_ms
from tidings.server.sqlite.database import Database
from tidings.server.sqlite.removal import SqliteFeedData

NAME, MARKER = "orders", "the-secret"
WITHIN_S = 180.0
ENDED_S = 40.0  # the promise is 5 s; the end of a wait comes after 50 s
OPERATION = {"event": "update", "type": "video", "id": MARKER, "data": MARKER}
JSON = {"content-type": "application/json"}


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin the second pass of a removal soon."""
    monkeypatch.setattr(limits, "REMOVE_SETTLE_MS", 300)


@asynccontextmanager
async def client(app: ServerApp) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as opened:
        yield opened


def post(host: Host, feed: str, count: int = 1, size: int = 1) -> None:
    fields = {**OPERATION, "data": f"{MARKER} " * size}
    lines = [line_from({**fields, "id": f"{MARKER}{at}"}, now_ms=now_ms()) for at in range(count)]
    host.appender.append(feed, lines)


def fill_every_table(host: Host, feed: str) -> None:
    """Store something of the feed in every table and in every kind of document and file."""
    stores, given = host.stores, PresentedKey("a" * 12, "s" * 32)
    host.profiles.save(feed, Profile(leave=True, object_url=f"/{MARKER}"))
    for number in range(70):
        post(host, feed, 20, 1 + number * 40)
    fields = {**OPERATION, "parents": [f"{MARKER}/p"]}  # removed by the next page
    host.appender.append_once(feed, [line_from(fields, now_ms=now_ms())], MARKER, "print")
    host.appender.append(feed, [line_from(OPERATION, now_ms=now_ms())])
    parked = Parked("i", MARKER, f"bad {MARKER}", 1)
    change = Change(
        Consumer(feed, "index", parked=1), Note(LATER_MS, MARKER, "x", MARKER), park=parked
    )
    assert stores.consumers.write(feed, "index", 0, change)
    KeyIssuer(stores.keys, host.profiles, now_ms).create(
        feed, given, Key("", "", frozenset({Role.READ}), label=MARKER)
    )
    stores.relay_passwords.keep(feed, MARKER)
    stores.counters.refuse(feed)
    stores.counters.attend(feed, MARKER, 1, until_ms=now_ms() + 60_000)
    host.indexer.run(feed)
    host.sum_reader.read(feed)
    host.sweep()


def left(path: Path, feed: str) -> list[str]:
    """Return the tables that have rows of *feed*."""
    with closing(sqlite3.connect(path)) as sql:
        tables = [name for (name,) in sql.execute("SELECT name FROM sqlite_master")]
        found: list[str] = []
        for table in tables:
            columns = [row[1] for row in sql.execute(f"PRAGMA table_info({table})")]
            where = "feed = ? AND kind NOT IN ('feed')" if table == "documents" else "feed = ?"
            if (
                "feed" in columns
                and sql.execute(f"SELECT 1 FROM {table} WHERE {where} LIMIT 1", (feed,)).fetchone()
            ):
                found.append(table)
    return found


async def removed(host: Host, name: str = NAME) -> FeedRecord:
    """Return the record of *name* when all removals are done."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            record = await asyncio.to_thread(host.feed_service.show, name)
            if not record.unfinished:
                return record
            await asyncio.sleep(0.02)


def delete(host: Host, name: str = NAME) -> FeedRecord:
    return host.feed_service.delete(name, confirm=name, force=True, by="ann")


async def _used_and_deleted(folder: Path) -> FeedRecord:
    async with hosted(folder / "feed.db", folder) as (host, app), client(app) as http:
        await asyncio.to_thread(host.feed_service.create, NAME)
        path = f"/feeds/{NAME}/v1/stream/{MARKER}"
        assert (await http.put(path, content=b"[1]", headers=JSON)).status_code == 201
        await asyncio.to_thread(fill_every_table, host, NAME)
    with closing(sqlite3.connect(folder / "feed.db")) as sql:
        kinds = {kind for (kind,) in sql.execute("SELECT DISTINCT kind FROM records")}
    assert {"consumer", "feed", "key", "note", "parked", "profile", "upstream"} <= kinds
    missing = {"counts", "clients", "claims", "followers", "heads", "pages", "removed_parents"}
    missing |= {"records", "extents", "rows", "sums", "summaries"}
    assert missing <= {*left(folder / "feed.db", NAME)}
    assert "feed.db" in holders(folder, MARKER)
    assert any(name.endswith(".gz") for name, _ in contents(folder))
    async with hosted(folder / "feed.db", folder) as (host, app):
        await asyncio.to_thread(delete, host)
        return await removed(host)


def test_no_byte_of_a_feed_is_left(tmp_path: Path) -> None:
    """Not in any table, in the write-ahead log, in the archive or in the free space of the file."""
    record = asyncio.run(_used_and_deleted(tmp_path))
    assert record.state == DELETED
    (removal,) = record.removals
    counts = dict(removal.counts)
    assert counts["pages"] == 73 and counts["key"] == 1 and counts["archive"] >= 1
    assert left(tmp_path / "feed.db", NAME) == []
    assert holders(tmp_path, MARKER) == []
    assert list((tmp_path / "archive").iterdir()) == []


async def _created_again(folder: Path) -> tuple[list[str], list[int]]:
    cursors, statuses = [], []
    async with hosted(folder / "feed.db") as (host, app), client(app) as http:
        await asyncio.to_thread(host.feed_service.create, NAME)
        for _ in range(2):
            answer = await http.post(f"/feeds/{NAME}/ops", json=[OPERATION])
            assert answer.is_success, answer.text
            log = (await http.get(f"/feeds/{NAME}/log")).json()
            cursors.append(log["current"])
            await asyncio.to_thread(delete, host)
            for path in ("changes", "objects", "sums", "consumers", "log", "erasures", "pages"):
                found = await http.get(f"/feeds/{NAME}/{path}")
                statuses.append(found.status_code)
                assert "was deleted" in found.text and "~" not in found.text
            statuses.append((await http.post(f"/feeds/{NAME}/ops", json=[OPERATION])).status_code)
            await asyncio.to_thread(host.feed_service.create, NAME)
        objects = await http.get(f"/feeds/{NAME}/objects")
        assert objects.json()["objects"] == []
        status = (await http.get(f"/feeds/{NAME}/status")).text
        metrics = (await http.get("/metrics")).text
        for text in (status, metrics):
            assert f'"{NAME}"' in text and "~" not in text
        for name in cursors:
            old = {"last-event-id": name, "accept": "application/x-ndjson"}
            async with asyncio.timeout(WITHIN_S):
                text = await first_line(app, f"/feeds/{NAME}/ops", old)
            assert '"reset"' in text, text
        await removed(host)
    async with hosted(folder / "feed.db") as (host, app), client(app) as http:
        assert host.directory.key(NAME) == key_of(NAME, 3)
        assert (await http.post(f"/feeds/{NAME}/ops", json=[OPERATION])).is_success
    return cursors, statuses


async def first_line(app: ServerApp, path: str, headers: dict[str, str]) -> str:
    """Return the first text of an event stream."""
    got: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    gone = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message.get("body") and not got.done():
            got.set_result(message["body"].decode())

    raw = [(b"host", b"localhost"), *((k.encode(), v.encode()) for k, v in headers.items())]
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": raw,
        "client": ("127.0.0.1", 1),
        "http_version": "1.1",
    }
    serving = asyncio.ensure_future(app(scope, receive, send))
    try:
        return await got
    finally:
        gone.set()
        await serving


def test_a_successor_tells_readers_of_its_predecessors(tmp_path: Path) -> None:
    """Every request to a deleted feed gets 410, and every old cursor a reset afterwards."""
    cursors, statuses = asyncio.run(_created_again(tmp_path))
    assert set(statuses) == {410}
    assert len({*cursors}) == 2
    assert left(tmp_path / "feed.db", NAME) == left(tmp_path / "feed.db", key_of(NAME, 2)) == []


async def _live_readers(folder: Path) -> list[object]:
    async with hosted(folder / "feed.db") as (host, app), client(app) as http:
        await asyncio.to_thread(host.feed_service.create, NAME)
        stream = f"/feeds/{NAME}/v1/stream/s"
        assert (await http.put(stream, content=b"[1]", headers=JSON)).status_code == 201
        since = (await http.get(f"/feeds/{NAME}/changes")).json()["next"]
        after = (await http.get(f"/feeds/{NAME}/log")).json()["end"]
        waits = [
            http.get(f"/feeds/{NAME}/changes?block=50&since={since}", timeout=60),
            http.get(f"/feeds/{NAME}/pages?block=50&after={after}", timeout=60),
            http.get(f"{stream}?offset=now&live=long-poll", timeout=60),
            http.get(f"{stream}?offset=now&live=sse", timeout=60),
            http.get(f"/feeds/{NAME}/ops", headers={"accept": "text/event-stream"}, timeout=60),
        ]
        waiting = [asyncio.ensure_future(each) for each in waits]
        await asyncio.sleep(0.5)
        assert [each.result().text for each in waiting if each.done()] == []
        await asyncio.to_thread(delete, host)
        async with asyncio.timeout(ENDED_S):
            return [each.status_code for each in await asyncio.gather(*waiting)]


def test_live_readers_end(tmp_path: Path) -> None:
    """Long before the end of their wait; those that have no response yet receive 410."""
    assert asyncio.run(_live_readers(tmp_path)) == [410, 410, 410, 200, 200]


async def _killed(folder: Path) -> FeedRecord:
    async with hosted(folder / "feed.db", folder) as (host, _):
        await asyncio.to_thread(host.feed_service.create, NAME)
        await asyncio.to_thread(fill_every_table, host, NAME)
        host.waker.stop()  # as if the process were killed after the request
        await asyncio.to_thread(delete, host)
    async with hosted(folder / "feed.db", folder) as (host, _):
        return await removed(host)


def test_a_server_continues_when_it_starts(tmp_path: Path) -> None:
    """The file of last pages does not make it a restored one."""
    asyncio.run(_killed(tmp_path))
    assert left(tmp_path / "feed.db", NAME) == []
    assert holders(tmp_path, MARKER) == []


class Killed(BaseException):
    """The process ends."""


class Mortal(Database):
    """A database whose process is killed at its second transaction."""

    writes = 0

    def write(self, run: Callable[[sqlite3.Connection], Any]) -> Any:
        self.writes += 1
        if self.writes > 1:
            raise Killed
        return super().write(run)


class Followers:
    """Has no checkpoints in memory."""

    def forget(self, feed: str) -> None: ...


def is_finished(path: Path, key: str) -> bool:
    """Remove *key* until the process is killed; return True if it was not killed."""
    with closing(Mortal(path)) as database:
        followers: Any = Followers()
        try:
            SqliteFeedData(database, followers, lambda: 0).remove(key, "", 1)
        except Killed:
            return False
        return True


def test_a_removal_continues_after_each_transaction(tmp_path: Path) -> None:
    """Each transaction makes progress, and none removes rows of another feed."""
    path = tmp_path / "feed.db"

    async def prepare() -> None:
        async with hosted(path) as (host, _):
            for name in (NAME, "other"):
                await asyncio.to_thread(host.feed_service.create, name)
                await asyncio.to_thread(fill_every_table, host, name)

    asyncio.run(prepare())
    others = left(path, "other")
    kills = 0
    while not is_finished(path, NAME):
        kills += 1
    assert kills > 8
    assert left(path, NAME) == [] and left(path, "other") == others


async def _stale(folder: Path) -> None:
    async with hosted(folder / "feed.db") as (host, _):
        await asyncio.to_thread(host.feed_service.create, NAME)
        key = host.directory.key(NAME)  # a request that was accepted before the deletion
        await asyncio.to_thread(delete, host)
        with pytest.raises(FeedDeleted):
            await asyncio.to_thread(post, host, key)
        record, _new = await asyncio.to_thread(host.feed_service.create, NAME)
        with pytest.raises(FeedDeleted):
            await asyncio.to_thread(post, host, key)
        pages = await asyncio.to_thread(host.stores.log.read, record.key, 0)
        assert [page.number for page in pages] == [jump_end(0)]


def test_a_late_request_writes_nothing(tmp_path: Path) -> None:
    """It found the feed before the deletion, and appends afterwards."""
    asyncio.run(_stale(tmp_path))


# A few show that something grows; TIDINGS_TEST_FEEDS=1000 takes some minutes.
FEEDS = int(os.environ.get("TIDINGS_TEST_FEEDS", "5"))
BEGINNING = "0000000000000000007fffff"
READS = [
    *("changes", "changes?tags=x", "pages", "pages?types=video", "rows?bucket=1", "objects"),
    *("status", "sums", "clients", "history", "relay", "log", "consumers", "hooks", "keys"),
]


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
        *[("POST", "/ops", {**VIDEO, "data": at}) for at in range(3)],
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


async def _cycled(folder: Path) -> None:
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
    asyncio.run(_cycled(tmp_path))

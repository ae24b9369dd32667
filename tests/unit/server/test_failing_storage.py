"""Reads that fail, and a disk that is full: a server continues and loses nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sqlite3
import string
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from tests.unit.server.test_crashes import FEED, Producer, _status, executed, hosted
from tests.unit.server.test_recovery import UPSTREAM
from tidings.core.errors import Unavailable
from tidings.core.followers.follower import ARCHIVE
from tidings.core.model.feeds import PUSH, STATE
from tidings.core.model.pages import Page
from tidings.core.replication.admin import Action
from tidings.core.replication.relay import Relay
from tidings.server import wakeups, writer
from tidings.server.app import ServerApp
from tidings.server.host import Host
from tidings.server.sqlite.database import Database
from tidings.server.sqlite.log import SqliteLog, SqliteRelays
from tidings.server.sqlite.state import SqliteState

WITHIN_S = 180.0
PAGES = 200  # more than are handled before the server ends


@pytest.mark.parametrize("error", [Unavailable("disk I/O error"), ValueError("a mistake")])
def test_a_read_that_fails_once_stops_no_follower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Each reads again after a moment; no other process would release its lease."""
    read, failed = SqliteLog.read, set[str]()

    def fail_once(log: SqliteLog, *of: Any, **more: Any) -> Any:
        name = threading.current_thread().name
        if name.startswith("follow-") and name not in failed:
            failed.add(name)
            raise error
        return read(log, *of, **more)

    async def main() -> None:
        async with hosted(tmp_path / "feed.db", tmp_path / "archive") as (host, app):
            monkeypatch.setattr(SqliteLog, "read", fail_once)
            async with asyncio.timeout(WITHIN_S):
                await Producer(app, "p").post(1)
                host.waker.wake(FEED, ARCHIVE)
                head = await asyncio.to_thread(host.stores.log.head, FEED)
                wanted = dict.fromkeys((STATE, PUSH, ARCHIVE), head)
                while host.stores.followers.checkpoints(FEED) != wanted:
                    await asyncio.sleep(0.01)

    asyncio.run(main())
    assert failed == {f"follow-{name}" for name in (PUSH, ARCHIVE)}


def test_a_projection_that_fails_once_holds_up_no_post(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page is acknowledged, and the state has its rows a moment later."""
    write, errors = SqliteState.write, [ValueError("a mistake")]

    def fail_once(state: SqliteState, *of: Any) -> Any:
        if errors:
            raise errors.pop()
        return write(state, *of)

    async def main() -> None:
        async with hosted(tmp_path / "feed.db") as (host, app):
            committed, states = host.database.steps.committed, list[int]()

            def note(pages: Sequence[tuple[str, Page]]) -> None:
                states.append(host.stores.followers.checkpoints(FEED).get(STATE, 0))
                committed(pages)

            host.database.steps = replace(host.database.steps, committed=note)
            monkeypatch.setattr(SqliteState, "write", fail_once)
            async with asyncio.timeout(WITHIN_S):
                await Producer(app, "p").post(1)
                head = host.stores.log.head(FEED)
                assert head and states[0] < head
                while host.stores.followers.checkpoints(FEED).get(STATE) != head:
                    await asyncio.sleep(0.01)
                await Producer(app, "p").post(1)
                assert host.stores.followers.checkpoints(FEED)[STATE] == head + 1

    asyncio.run(main())


@pytest.mark.parametrize("error", [Unavailable("disk I/O error"), ValueError("a mistake")])
def test_a_registry_that_fails_once_stops_no_webhook(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The thread that looks for webhooks looks again."""
    monkeypatch.setattr(wakeups, "LOOK_S", 0.01)
    answers: Iterator[Any] = chain([error], repeat({"hook": object()}))
    called = threading.Event()

    class Registry:
        def all(self, feed: str) -> Any:
            answer = next(answers)
            if isinstance(answer, Exception):
                raise answer
            return answer

    class WebhookDelivery:
        def run(self, feed: str, hook: object, *, look: bool) -> None:
            called.set()

    registry: Any = Registry()
    delivery: Any = WebhookDelivery()
    webhooks = wakeups.Webhooks(registry, delivery, lambda: [FEED], lambda: 0, lambda: None)
    webhooks.start()
    assert called.wait(WITHIN_S)
    webhooks.stop()


class Forgetful(dict[str, Any]):
    """A cache in which no job of the host leaves what it has read."""

    def __setitem__(self, key: str, value: Any) -> None:
        pass


def test_a_read_that_fails_once_makes_no_promoted_feed_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the answer of another read; if both fail, producers try again."""
    read, left = SqliteRelays.relay, 0

    def fail(relays: SqliteRelays, feed: str) -> Relay:
        nonlocal left
        if threading.current_thread().name.startswith("request"):  # the jobs of the host read, too
            left -= 1
            if left >= 0:
                raise Unavailable("disk I/O error")
        return read(relays, feed)

    async def main() -> list[int]:
        nonlocal left
        async with hosted(tmp_path / "feed.db", TIDINGS_SOURCES=UPSTREAM) as (host, app):
            act = host.relay_control.act
            await asyncio.to_thread(act, FEED, Action.PROMOTE, {"why": "a test"})
            monkeypatch.setattr(SqliteRelays, "relay", fail)
            monkeypatch.setattr(host.copies, "_cached", Forgetful())
            statuses = []
            for fails in (2, 1, 0):
                left = fails
                statuses.append(await _status(app, b'{"event":"update","type":"a","id":"b"}'))
            return statuses

    assert asyncio.run(main()) == [503, 204, 204]


def test_a_state_that_is_behind_does_not_delay_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The slices stop, and the next process continues from the checkpoint."""
    monkeypatch.setattr(writer, "SLICE_OPERATIONS", 1)
    path = tmp_path / "feed.db"

    def fail(*_: Any) -> Any:
        raise ValueError("a mistake")

    async def main(*, fails: bool) -> None:
        async with hosted(path) as (host, app):
            if fails:
                with monkeypatch.context() as broken:
                    broken.setattr(SqliteState, "write", fail)
                    for _ in range(PAGES):
                        await Producer(app, "p").post(1)
                host.waker.wake(FEED, STATE)
                return
            head = host.stores.log.head(FEED)
            assert head == PAGES
            async with asyncio.timeout(WITHIN_S):
                while host.stores.followers.checkpoints(FEED).get(STATE) != head:
                    await asyncio.sleep(0.01)

    asyncio.run(main(fails=True))
    assert {type(each.exc_info[1]) for each in caplog.records if each.exc_info} <= {ValueError}
    asyncio.run(main(fails=False))


def test_a_thread_that_cannot_start_stops_no_webhook(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run waits until the operating system has a thread again."""
    monkeypatch.setattr(wakeups, "LOOK_S", 0.05)
    start, refused, ran = threading.Thread.start, list[str](), threading.Event()

    def start_later(thread: threading.Thread) -> None:
        if thread.name.startswith("webhook_") and len(refused) < 2:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    def run(*_: object, **__: object) -> None:
        ran.set()

    monkeypatch.setattr(threading.Thread, "start", start_later)
    registry: Any = SimpleNamespace(all=lambda feed: {"h": object()})
    delivery: Any = SimpleNamespace(run=run)
    webhooks = wakeups.Webhooks(registry, delivery, lambda: [FEED], lambda: 0, lambda: None)
    webhooks.start()
    assert ran.wait(30) and len(refused) == 2
    webhooks.stop()


def test_a_feed_that_fails_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others run until its run is repeated; what wakes it earlier changes nothing."""
    monkeypatch.setattr(wakeups, "AGAIN_S", WITHIN_S)
    ran: SimpleQueue[str] = SimpleQueue()

    def run(feed: str) -> None:
        ran.put(feed)
        if feed == "bad":
            raise Unavailable("disk I/O error")

    async def main() -> None:
        runs = wakeups.Runs("a", run, 0.0, asyncio.get_running_loop())
        runs.start()
        for feed in ("bad", "good", "other"):
            runs.wake(feed)
        got = partial(asyncio.to_thread, ran.get, timeout=WITHIN_S)
        assert [await got() for _ in range(3)] == ["bad", "good", "other"]
        for feed in ("bad", "good"):
            runs.wake(feed)
        assert await got() == "good"
        assert ran.empty()
        runs._retries._again("bad")
        assert await got() == "bad"
        runs.stop()
        await asyncio.to_thread(runs.join)

    asyncio.run(main())


LARGE = "".join(random.Random(0).choices(string.ascii_letters, k=60_000))  # which packs badly
PAGES_MAX = 1_000_000
_HEADERS = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]


async def post(app: ServerApp, name: str) -> tuple[int, str]:
    """Post; return the status of the answer, and the time to retry."""
    operation = {"event": "insert", "type": "video", "id": name, "data": LARGE}
    answers: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": json.dumps(operation).encode()}

    async def send(message: Any) -> None:
        answers.append(message)

    scope = {"type": "http", "method": "POST", "path": "/ops", "query_string": b""}
    await app({**scope, "headers": _HEADERS}, receive, send)
    return answers[0]["status"], dict(answers[0]["headers"]).get(b"retry-after", b"").decode()


def test_a_full_disk_is_answered_with_503(tmp_path: Path) -> None:
    """This includes posts that share a commit. None of them is stored, and with free space posts
    work again.
    """

    async def main() -> tuple[list[tuple[int, str]], tuple[int, str], list[str]]:
        async with hosted(tmp_path / "feed.db") as (host, app):
            (used,) = await asyncio.to_thread(executed, host.database, "PRAGMA page_count")
            await asyncio.to_thread(executed, host.database, f"PRAGMA max_page_count = {used}")
            refused = await asyncio.gather(*(post(app, name) for name in "abc"))
            more = f"PRAGMA max_page_count = {PAGES_MAX}"
            await asyncio.to_thread(executed, host.database, more)
            answered = await post(app, "d")
            pages = await asyncio.to_thread(host.stores.log.read, FEED, 0)
            lines = [line for page in pages for line in page.lines]
            return refused, answered, [json.loads(line)["id"] for line in lines]

    refused, answered, written = asyncio.run(main())
    assert refused == [(503, "1")] * 3
    assert (answered, written) == ((204, ""), ["d"])


ROUNDS_MAX = 200  # of requests, until the disk is full for each kind of them
FREE_PAGES = 60


def _limit(host: Host, pages: int | None) -> None:
    """Let the file grow to *pages*; None: by a few."""

    def limit(sql: sqlite3.Connection) -> None:
        (used,) = sql.execute("PRAGMA page_count").fetchone()
        sql.execute(f"PRAGMA max_page_count = {pages or used + FREE_PAGES}")

    host.database.write(limit)


async def _append(client: httpx.AsyncClient, kind: str, name: str) -> int:
    """Append in one of the ways; the status of the answer."""
    size = len(name) * 997 % len(LARGE)  # so that each statement meets the end of the disk
    data = {"u": name, "p": LARGE[:size]}
    operation = {"event": "insert", "type": "video", "id": name, "data": data}
    if kind == "change":
        answer = await client.post("/changes", json={"data": data})
    elif kind == "correction":
        line = {**operation, "timestamp": "2026-01-01T00:00:00Z", "at": ""}
        answer = await client.post(
            "/feeds/main/corrections?through=0",
            content=json.dumps(line),
            headers={"content-type": "application/x-ndjson"},
        )
    elif kind == "stream":
        kind_of_body = {"content-type": "application/json"}
        path, body = f"/feeds/main/v1/stream/{name}", json.dumps({"u": name})
        answer = await client.put(path, content=body, headers=kind_of_body)
    else:
        headers = {"idempotency-key": name} if kind == "repeatable" else {}
        answer = await client.post("/ops", json=operation, headers=headers)
    return answer.status_code


KINDS = ("operation", "change", "correction", "stream", "repeatable")


async def _fill(path: Path) -> list[str]:
    """Append until the disk is full, and once there is room; the names that were acknowledged."""
    acknowledged: list[str] = []
    refused: Counter[str] = Counter()
    async with hosted(path) as (host, app):
        await asyncio.to_thread(_limit, host, None)
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:

            async def append(kind: str, number: int) -> None:
                name = f"{kind}-{number}-{'x' * (number % 50)}"
                status = await _append(client, kind, name)
                assert status < 300 or status == 503, (kind, status)
                refused[kind] += status == 503
                if status < 300:
                    acknowledged.append(name)

            for number in range(ROUNDS_MAX):
                await asyncio.gather(*(append(kind, number) for kind in KINDS))
                if all(refused[kind] > 2 for kind in KINDS):
                    break
            assert all(refused[kind] > 2 for kind in KINDS), refused
            await asyncio.to_thread(_limit, host, PAGES_MAX)
            await asyncio.gather(*(append(kind, ROUNDS_MAX) for kind in KINDS))
            async with asyncio.timeout(WITHIN_S):
                while not await asyncio.to_thread(_is_settled, host):
                    await asyncio.sleep(0.01)
    assert [name for name in acknowledged if f"-{ROUNDS_MAX}-" in name]
    return acknowledged


def _is_settled(host: Host) -> bool:
    return host.stores.followers.checkpoints(FEED).get(STATE, 0) == host.stores.log.head(FEED)


def test_a_full_disk_takes_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """A refused post leaves no number without a page, so that all pages can be read."""
    path = tmp_path / "feed.db"
    acknowledged = asyncio.run(_fill(path))
    with contextlib.closing(Database(path)) as database:
        log, more = SqliteLog(database), True
        pages: list[Page] = []
        while more:
            run = log.read(FEED, len(pages))
            pages, more = [*pages, *run], run.more
        assert [page.number for page in pages] == list(range(1, log.head(FEED) + 1))
    assert all(page.lines for page in pages)  # none had to be filled
    names = [json.loads(line)["data"]["u"] for page in pages for line in page.lines]
    assert sorted(names) == sorted(acknowledged)


def test_a_server_on_a_full_disk_stops_and_closes_its_file(tmp_path: Path) -> None:
    """The followers handle some pages again at the next start."""
    path = tmp_path / "feed.db"

    def full(_: object) -> None:
        raise Unavailable("the database: database or disk is full")

    async def main() -> None:
        async with hosted(path) as (host, app):
            await Producer(app, "p").post(1)
            host.database.steps = replace(host.database.steps, write_more=full)

    asyncio.run(main())
    with contextlib.closing(Database(path)) as database:
        assert SqliteLog(database).head(FEED) == 1

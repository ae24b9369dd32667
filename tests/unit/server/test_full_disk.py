"""A full disk: nothing acknowledged is lost, and everything continues when there is room."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sqlite3
import string
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from tests.unit.server.test_crashes import FEED, Producer, executed, hosted
from tidings.core.errors import Unavailable
from tidings.core.model.feeds import STATE
from tidings.core.model.pages import Page
from tidings.server.app import ServerApp
from tidings.server.host import Host
from tidings.server.sqlite.database import Database
from tidings.server.sqlite.log import SqliteLog

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
WITHIN_S = 180.0


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

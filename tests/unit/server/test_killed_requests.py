"""A kill between any two statements of each request that changes more than one record, and of a
start.

A server that starts on such files writes few pages. The request has happened or has not, can be
repeated, and leaves a feed that accepts posts.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.unit.server.test_crashes import FEED, hosted
from tests.unit.server.test_kills import (
    BOUNDED,
    KEY,
    OPERATION,
    SOURCES,
    UPSTREAM,
    Kills,
    _add_keys,
    _bearer,
)
from tidings.core.auth.keys import KeyIssuer, KeyStore, PresentedKey
from tidings.core.errors import InvalidSetting
from tidings.core.model.feeds import HOST
from tidings.core.settings.profiles import ProfileStore, remember_lost
from tidings.http.router import Match, RouteTable
from tidings.http.routes import HTTP_ROUTES, SERVER_ROUTES
from tidings.server.host import Host, now_ms
from tidings.server.recovery import Start
from tidings.server.settings import Settings
from tidings.server.sqlite.database import Database
from tidings.server.sqlite.log import SqliteLog
from tidings.server.sqlite.records import SqliteRecords

NAME = "orders"
DELETE = f"/feeds/{NAME}?confirm={NAME}&force=true"
LOST = 100_000  # pages, as a restore loses them
GAP = 38_000_000
CHANGING = ("lag_ms", "lag_pages", "again_ms", "state")
NEW, NEXT = PresentedKey("c" * 12, "s" * 32), PresentedKey("d" * 12, "s" * 32)
READS = ("GET", "HEAD", "ANY")
PAGES_MAX = 4  # that a start may write: an empty page for each gap

Step = tuple[str, str, Any]  # the method, the path and the body of a request


@dataclass(frozen=True)
class Case:
    """The request *step* after the requests *before*. *lost* pages were lost by a restore."""

    step: Step
    before: tuple[Step, ...] = ()
    sources: str = ""
    keyed: bool = False
    lost: int = 0
    again: frozenset[int] = frozenset({200, 201, 202, 204})  # the answers to a repeated request


def act(path: str, body: Any, *before: Step, sources: str = "") -> Case:
    """Return the case of an action, which a repeated request may find done."""
    step = ("POST", f"/feeds/{FEED}/{path}", body)
    return Case(step, before, sources, again=frozenset({200, 404, 409}))


HOOK = ("PUT", f"/feeds/{FEED}/hooks/h", {"url": "https://a.example/x"})
CONSUMER = ("PUT", f"/feeds/{FEED}/consumers/c", {"from": "oldest"})
STREAM: Step = ("PUT", f"/feeds/{FEED}/v1/stream/s", [1])
CREATE: Step = ("PUT", f"/feeds/{NAME}", {"object_url": "/{{id}}"})
WHY = "why=test&by=ann"
REASON = {"why": "test", "by": "ann"}
LEASE, PARK, PAUSE, RETRY = (
    ("POST", f"/feeds/{FEED}/consumers/c/{action}", {**body})
    for action, body in (
        ("lease", {"worker": "w"}),
        ("park", REASON),
        ("pause", REASON),
        ("retry", {**REASON, "id": "all"}),
    )
)
LEASED = {"fence": 1}
FIRST = "<the id of the first event>"
ACTIONS: dict[str, tuple[Any, ...]] = {
    "lease": ({"worker": "w"}, CONSUMER),
    "ack": ({"fence": 2, "retried": [FIRST]}, CONSUMER, PARK, RETRY, LEASE),
    "fail": ({**LEASED, "error": "x"}, CONSUMER, LEASE),
    "release": (LEASED, CONSUMER, LEASE),
    "pause": (REASON, CONSUMER),
    "resume": (REASON, CONSUMER, PAUSE),
    "mark": ({**REASON, "position": "now"}, CONSUMER),
    "step": (REASON, CONSUMER),
    "park": (REASON, CONSUMER),
    "retry": ({**REASON, "id": "all"}, CONSUMER, PARK),
    "drop": ({**REASON, "id": "all"}, CONSUMER, PARK, RETRY),
}
CASES = {
    "create": Case(CREATE),
    "create again": Case(CREATE, (CREATE, ("DELETE", DELETE, None))),
    "create after a restore": Case(CREATE, lost=LOST),
    "delete": Case(("DELETE", DELETE, None), (CREATE,)),
    "promote": act("relay/promote", {"why": "a test"}, sources=SOURCES),
    "yield": act("relay/yield", {"to": UPSTREAM}),
    "promote again": act(
        "relay/promote", {"why": "x"}, ("POST", f"/feeds/{FEED}/relay/yield", {"to": UPSTREAM})
    ),
    "reset": act("relay/reset", {"why": "a test", "to": "everything"}, sources=SOURCES),
    "pause a relay": act("relay/pause", {}, sources=SOURCES),
    "change settings": Case(("PUT", f"/feeds/{NAME}", {"object_url": "/x/{{id}}"}), (CREATE,)),
    "configure": Case(("PUT", f"/feeds/{FEED}/config", "minPurgeRecords: 7")),
    "create a key": Case(("POST", f"/feeds/{FEED}/keys", {"roles": ["ingest"]}), keyed=True),
    "revoke a key": Case(("POST", f"/feeds/{FEED}/keys/{BOUNDED.id}/revoke", None), keyed=True),
    "create a consumer": Case(CONSUMER),
    "delete a consumer": Case(
        ("DELETE", f"/feeds/{FEED}/consumers/c?{WHY}", None),
        (CONSUMER,),
        again=frozenset({200, 404}),
    ),
    **{name: act(f"consumers/c/{name}", *rest) for name, rest in ACTIONS.items()},
    "create a hook": Case(HOOK),
    "rotate a hook": Case(("POST", f"/feeds/{FEED}/hooks/h/rotate", {}), (HOOK,)),
    "delete a hook": Case(
        ("DELETE", f"/feeds/{FEED}/hooks/h?{WHY}", None), (HOOK,), again=frozenset({200, 204, 404})
    ),
    "erase": Case(("POST", f"/feeds/{FEED}/erasures", {"type": "video", "id": "a", "reason": "x"})),
    "create a stream": Case(STREAM),
    "append to a stream": Case(("POST", STREAM[1], [2]), (STREAM,)),
    "delete a stream": Case(
        ("DELETE", STREAM[1], None), (STREAM,), again=frozenset({200, 204, 404})
    ),
}
# Other requests that write. All but the passwords append pages only: see `test_kills`.
OTHERS = (
    *(f"POST {feed}/{end}" for end in ("ops", "changes", "changefeeds") for feed in ("", "FEED")),
    *("POST /", "POST FEED/corrections", "POST FEED/corrections/rows", "PUT FEED/relay/password"),
    *("PUT /health", "POST /health", "PUT /config", "POST /config", "POST FEED/config"),
    *(f"{method} /cluster/members" for method in ("PUT", "POST")),
    "DELETE /cluster/members/{id}",
)


def test_every_route_that_writes_has_a_case() -> None:
    routes = [each for each in (*HTTP_ROUTES, *SERVER_ROUTES) if each.method not in READS]
    table = RouteTable(routes)
    met = [table.match(*case.step[:2]) for case in CASES.values()]
    keys = {each.route.key for each in met if isinstance(each, Match)}
    others = {each.replace("FEED", "/feeds/{feed}") for each in OTHERS}
    assert {each.key for each in routes if not each.is_default} == keys | others


@contextlib.asynccontextmanager
async def serving(path: Path, case: Case) -> AsyncIterator[tuple[Host, httpx.AsyncClient]]:
    async with hosted(path, TIDINGS_SOURCES=case.sources) as (host, app):
        headers = {"authorization": _bearer(KEY)} if case.keyed else {}
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://127.0.0.1", headers=headers
        ) as client:
            yield host, client


async def do(client: httpx.AsyncClient, step: Step) -> httpx.Response:
    method, path, body = step
    if isinstance(body, str):
        kind = {"content-type": "application/yaml"}
        return await client.request(method, path, content=body, headers=kind)
    if FIRST in str(body):
        ends = (await client.get(f"/feeds/{FEED}/relay")).json()
        body = {**body, "retried": [ends["min"]["cursor"]]}
    return await client.request(method, path, json=body)


async def visible(client: httpx.AsyncClient) -> dict[str, Any]:
    """Return what clients see of all records, without what changes with time."""
    seen: dict[str, Any] = {}
    for path in ("consumers", "consumers/c/parked", "consumers/c/notes", "hooks", "keys"):
        answer = (await client.get(f"/feeds/{FEED}/{path}")).json()
        found = answer.get(path.rpartition("/")[2], [])
        seen[path] = [{k: v for k, v in each.items() if k not in CHANGING} for each in found]
    erasures = (await client.get(f"/feeds/{FEED}/erasures")).json()
    seen["erasures"] = [each["id"] for each in erasures.get("erasures", [])]
    for path in ("config", "v1/stream/s?offset=-1"):
        seen[path] = (await client.get(f"/feeds/{FEED}/{path}")).text
    feed = (await client.get(f"/feeds/{NAME}")).json()
    seen["feed"] = feed.get("state") == "live" and feed["settings"]
    relay = (await client.get(f"/feeds/{FEED}/relay")).json()
    stopped = relay.get("status") in ("paused", "yielded") and relay["status"]
    seen["relay"] = relay.get("role"), stopped, relay.get("why")
    for name in (FEED, NAME):
        pages = await client.get(f"/feeds/{name}/pages")
        seen[f"lost of {name}"] = pages.is_success and json.loads(pages.text.split("\n")[0])["lost"]
    return seen


def revive(path: Path, image: tuple[bytes, ...], *, marked: bool = True) -> int:
    """Write the files of *image*; return the number of all pages.

    If *marked* is True, the files count as those of the last start, otherwise as restored.
    """
    for name, content in zip((path.name, f"{path.name}-wal"), image, strict=True):
        path.with_name(name).write_bytes(content)
    mark = path.with_name(f"{path.name}.started")
    mark.write_text("the last start")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as sql:
        start = Start(mark.read_text(), mark.stat().st_ctime_ns, now_ms())
        if marked:
            sql.execute("UPDATE starts SET id = ?, changed_ns = ?, at_ms = ?", start)
        return int(sql.execute("SELECT count(*) FROM pages").fetchone()[0])


def _tracer(kills: Kills) -> Callable[[sqlite3.Connection], None]:
    return lambda sql: sql.set_trace_callback(kills.look)


async def killed(path: Path, case: Case) -> tuple[Kills, list[dict[str, Any]]]:
    """Return the files at each moment, and what was visible before and after the request."""
    kills, seen = Kills(path), list[dict[str, Any]]()
    async with serving(path, case) as (host, client):
        if case.keyed:
            await asyncio.to_thread(_add_keys, host)
        if not case.sources:
            (await client.post("/ops", json=OPERATION)).raise_for_status()
        if case.lost:
            await asyncio.to_thread(remember_lost, host.profiles, HOST, (1, case.lost))
        for step in case.before:
            (await do(client, step)).raise_for_status()
        seen.append(await visible(client))
        await asyncio.to_thread(host.database.write, _tracer(kills))
        answer = await do(client, case.step)
        assert answer.is_success, answer.text
        kills.look()
        await asyncio.to_thread(host.database.write, lambda sql: sql.set_trace_callback(None))
        seen.append(await visible(client))
    return kills, seen


async def started(path: Path, case: Case, before: int) -> dict[str, Any]:
    """Start on the files, repeat the request and post; return what was visible before."""
    async with serving(path, case) as (host, client):
        with host.database.reading() as sql:
            written = sql.execute("SELECT count(*) FROM pages").fetchone()[0] - before
            gaps = sql.execute(
                "SELECT feed, page FROM heads WHERE page > 0 AND page >"
                " (SELECT coalesce(max(page), 0) FROM pages WHERE pages.feed = heads.feed)"
            ).fetchall()
        assert written <= PAGES_MAX and not gaps, (written, gaps)
        seen = await visible(client)
        answer = await do(client, case.step)
        assert answer.status_code in case.again, answer.text
        if case.step[:2] == CREATE[:2]:
            answer = await client.post(f"/feeds/{NAME}/ops", json=OPERATION)
            assert answer.is_success, answer.text
    return seen


@pytest.mark.parametrize("name", CASES)
def test_a_killed_request_has_happened_or_not(tmp_path: Path, name: str) -> None:
    (tmp_path / "served").mkdir()
    case, path = CASES[name], tmp_path / "again" / "feed.db"
    kills, seen = asyncio.run(killed(tmp_path / "served" / "feed.db", case))
    assert seen[0] != seen[1] and len(kills.images) > 1
    for image in kills.images:
        path.parent.mkdir()
        pages = revive(path, image)
        assert asyncio.run(started(path, case, pages)) in seen
        shutil.rmtree(path.parent)


async def _rotated(path: Path, overlap_ms: int) -> Kills:
    kills = Kills(path)
    async with hosted(path) as (host, _):
        await asyncio.to_thread(_add_keys, host)
        await asyncio.to_thread(host.database.write, _tracer(kills))
        issuer = KeyIssuer(host.stores.keys, host.profiles, now_ms)
        await asyncio.to_thread(issuer.rotate, FEED, BOUNDED.id, NEW, overlap_ms, "ann")
        kills.look()
    return kills


@pytest.mark.parametrize("overlap_ms", [0, 60_000])
def test_a_killed_rotation_of_a_key_can_be_repeated(tmp_path: Path, overlap_ms: int) -> None:
    """Until it is repeated, a key is valid. Afterwards, connections with the old key end."""
    (tmp_path / "served").mkdir()
    kills = asyncio.run(_rotated(tmp_path / "served" / "feed.db", overlap_ms))
    assert len(kills.images) > 3
    for image in kills.images:
        revive(tmp_path / "feed.db", image)
        with contextlib.closing(Database(tmp_path / "feed.db")) as database:
            records = SqliteRecords(database)
            keys, profiles = KeyStore(records), ProfileStore(records)
            issuer = KeyIssuer(keys, profiles, now_ms)
            assert not all(each.ended_ms for each in keys.keys(FEED) if each.id != KEY.id)
            with contextlib.suppress(InvalidSetting):  # it has ended
                issuer.rotate(FEED, BOUNDED.id, NEXT, overlap_ms, "ann")
            ended = [each.id for each in keys.keys(FEED) if each.ended_ms]
            assert ended == [each.key for each in profiles.profile(FEED).ended] == [BOUNDED.id]


async def restored(folder: Path) -> Kills:
    """Return the files at each moment of a start from a backup."""
    async with serving(folder / "feed.db", CASES["create"]) as (host, client):
        (await client.post("/ops", json=OPERATION)).raise_for_status()
        (await do(client, CREATE)).raise_for_status()
        await asyncio.to_thread(host.database.back_up, folder / "restored.db")
    kills = Kills(folder / "restored.db")
    settings = Settings.read({"TIDINGS_FEEDS": FEED, "TIDINGS_OPEN": "true"})
    host = await Host.open(folder / "restored.db", settings)
    try:
        await asyncio.to_thread(host.database.write, _tracer(kills))
        await asyncio.to_thread(host.start)
        kills.look()
    finally:
        await host.stop()
    return kills


def test_a_killed_start_from_a_backup_is_repeated(tmp_path: Path) -> None:
    """The readers learn of the loss, and the name of a later feed does not use its numbers."""
    (tmp_path / "served").mkdir()
    kills, path = asyncio.run(restored(tmp_path / "served")), tmp_path / "again" / "feed.db"
    assert len(kills.images) > 1
    for image in kills.images:
        path.parent.mkdir()
        pages = revive(path, image, marked=False)
        seen = asyncio.run(started(path, CASES["create"], pages))
        assert seen[f"lost of {FEED}"] and seen[f"lost of {NAME}"]
        shutil.rmtree(path.parent)


def test_a_start_fills_a_gap_of_any_length_with_one_page(tmp_path: Path) -> None:
    """An earlier release left such a gap if it was killed while it created a feed."""
    path, case = tmp_path / "feed.db", CASES["create"]
    with contextlib.closing(Database(path)) as database:
        SqliteLog(database).raise_head(FEED, GAP)
    asyncio.run(started(path, case, 0))

    with contextlib.closing(Database(path)) as database:
        first = SqliteLog(database).read(FEED, 0)[0]
    assert (first.first, first.number) == (1, GAP)

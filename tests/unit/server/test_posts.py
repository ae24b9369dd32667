"""Posts with a learned head: the same results as in the ordinary way, for each change of facts."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from tests.unit.server.test_crashes import executed, hosted
from tidings.core.auth.guard import Role
from tidings.core.auth.keys import ID_LENGTH, Key, KeyIssuer, PresentedKey
from tidings.core.auth.passwords import hash_password
from tidings.core.model.filters import Filter
from tidings.core.settings.profiles import Profile, change
from tidings.server.host import Host, now_ms
from tidings.server.http_protocol import HOLD_S
from tidings.server.http_server import serving
from tidings.server.posts import LOOP_BYTES_MAX, Post, Posts

FEED_NAMES = "ordinary", "learned"
FEEDS = ",".join(("main", *FEED_NAMES))
POST = b'{"event":"update","type":"video","id":"x%d","timestamp":"2026-11-30T00:00:00Z"}'
JSON = "Content-Type: application/json"
UNUSUAL = "Prefer: none"  # a head with this field is not learned
_VARYING = re.compile(rb"date: [^\r]*|ordinary|learned")

# Each is sent in the ordinary way and in the learned one.
BODIES: Sequence[bytes] = (
    POST % 1,
    b"[" + POST % 1 + b"," + POST % 2 + b"]",
    b'{"EVENT":"Insert","Type":"VIDEO","id":"\\u00e9","parents":["user/u1","a\\"b"]}',
    b'{"event":"delete","type":"video","id":"x1","tags":["t"],"data":{"a":1.00,"b":[1e2,null]}}',
    b'{"event":"update","type":"video","id":"1","data":12345678901234567890.5}',
    b'{"event":"update","type":"video","id":"x","id":"y"}',
    '{"event":"update","type":"İ","id":"ß\u2028"}'.encode(),
    b' \t\n{"event":"update","type":"video","id":"x"}\r\n',
    b"[]",
    b"",
    b"{",
    b"null",
    b"\x1f\x8b\x08",
    b"\xff\xfe",
    b'{"event":"update","type":"video"}',
    b'{"event":"update","type":"video","id":""}',
    b'{"event":"update","type":"video","id":"\\u0000"}',
    b'{"event":"update","type":"video","id":"\\ud800"}',
    b'{"event":"renamed","type":"video","id":"x"}',
    b'{"event":"update","type":"video","id":"x","timestamp":"today"}',
    b'{"event":"update","type":"video","id":"x","parents":"user/u1"}',
    b'{"event":"update","type":"video","id":"x","data":NaN}',
    b'{"event":"update","type":"video","id":"x","data":' + b"[" * 200 + b"]" * 200 + b"}",
    b'{"event":"update","type":"video","id":"' + b"x" * 2000 + b'"}',
    b'{"event":"update","type":"video","id":"x","data":"' + b"x" * (LOOP_BYTES_MAX + 1) + b'"}',
)
FIELDS: Sequence[Sequence[str]] = (
    (),
    ("Idempotency-Key: first",),
    ("idempotency-key: first",),
    ("Idempotency-Key: ",),
    ("Idempotency-Key: " + "k" * 300,),
    ("traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",),
    ("traceparent: wrong", "X-Forwarded-For: 192.0.2.1", "X-Forwarded-Proto: https"),
)


class Answer(NamedTuple):
    status: int
    text: bytes


class Client:
    """A connection that is kept."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(
        self,
        body: bytes,
        *fields: str,
        path: str = "/feeds/main/ops",
        method: str = "POST",
        length: object = None,
    ) -> None:
        size = len(body) if length is None else length
        head = [f"{method} {path} HTTP/1.1", "Host: localhost", JSON, f"Content-Length: {size}"]
        self.writer.write("\r\n".join([*head, *fields, "", ""]).encode() + body)

    async def answer(self) -> Answer:
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        body = await self.reader.readexactly(int(length[1])) if length else b""
        return Answer(int(head.split()[1]), head + body)

    async def post(self, body: bytes, *fields: str, **target: Any) -> Answer:
        self.send(body, *fields, **target)
        return await self.answer()


class Scene(NamedTuple):
    host: Host
    posts: Posts
    taken: list[Post]  # posts that took the learned way
    connect: Callable[[], Awaitable[Client]]


@contextlib.asynccontextmanager
async def playing(path: Path) -> AsyncIterator[Scene]:
    async with hosted(path / "feed.db", TIDINGS_FEEDS=FEEDS) as (host, app):
        posts, taken = host.posts, list[Post]()
        add = posts.add

        def adding(post: Post) -> None:
            taken.append(post)
            add(post)

        posts.add = adding  # type: ignore[method-assign]
        listener = socket.create_server(("127.0.0.1", 0))
        clients: list[Client] = []

        async def connect() -> Client:
            clients.append(Client(*await asyncio.open_connection(*listener.getsockname())))
            return clients[-1]

        async with asyncio.timeout(120), serving(app, listener, grace_s=1, posts=posts):
            yield Scene(host, posts, taken, connect)
        for client in clients:
            client.writer.close()


def play(path: Path, scene: Callable[[Scene], Awaitable[None]]) -> None:
    async def run() -> None:
        async with playing(path) as played:
            await scene(played)

    asyncio.run(run())


def selected(host: Host, statement: str, feed: str) -> list[Any]:
    with host.database.reading() as sql:
        return sql.execute(statement, (feed,)).fetchall()


def lines(host: Host, feed: str) -> list[Any]:
    pages = host.stores.log.read(feed, 0)
    assert any(page.trace for page in pages)  # not all of them: their rate is limited
    return [(page.number, page.lines) for page in pages]


HEADS = "SELECT page, operations FROM heads WHERE feed = ?"
PAGES = "SELECT page FROM pages WHERE feed = ? ORDER BY page"
_STORED = (
    "SELECT key, page, slot, line FROM rows WHERE feed = ? ORDER BY key",
    "SELECT key, fingerprint, page FROM claims WHERE feed = ? ORDER BY key",
    HEADS,
    "SELECT refused FROM counts WHERE feed = ?",
)
_TIMES = re.compile(r'"timestamp":"20(?!26-11-30T00:00:00)[^"]*"')


def test_both_ways_have_the_same_results(tmp_path: Path) -> None:
    """Each body with each field: the answer, the pages, the rows, the claims and the counters."""

    async def scene(scene: Scene) -> None:
        client = await scene.connect()
        ordinary, learned = "/feeds/ordinary/ops", "/feeds/learned/ops"
        for path in (ordinary, learned):
            assert (await client.post(POST % 0, path=path)).status == 204
        for fields in FIELDS:
            for body in BODIES:
                before = len(scene.taken)
                slow = await client.post(body, UNUSUAL, *fields, path=ordinary)
                assert len(scene.taken) == before
                fast = await client.post(body, *fields, path=learned)
                assert len(scene.taken) - before == (len(body) <= LOOP_BYTES_MAX)
                same = [_VARYING.sub(b"", each.text) for each in (slow, fast)]
                assert same[0] == same[1], (body, fields)
        texts = [repr(await asyncio.to_thread(lines, scene.host, each)) for each in FEED_NAMES]
        assert _TIMES.sub("", texts[0]) == _TIMES.sub("", texts[1])
        for statement in _STORED:
            rows = [
                _TIMES.sub("", repr(await asyncio.to_thread(selected, scene.host, statement, feed)))
                for feed in FEED_NAMES
            ]
            assert rows[0] == rows[1], statement

    play(tmp_path, scene)


async def learned(scene: Scene, *fields: str) -> Client:
    """Return a connection whose head with *fields* is learned."""
    client = await scene.connect()
    assert (await client.post(POST % 0, *fields)).status == 204
    taken = len(scene.taken)
    assert (await client.post(POST % 0, *fields)).status == 204
    assert len(scene.taken) == taken + 1
    return client


def test_a_key_ends_for_a_learned_head(tmp_path: Path) -> None:
    """When it is revoked, and when it expires."""

    async def scene(scene: Scene) -> None:
        host = scene.host
        issuer = KeyIssuer(host.stores.keys, host.profiles, now_ms, host.key_ring.forget)

        async def key(name: str, **rights: Any) -> str:
            given = PresentedKey(name * ID_LENGTH, "s" * 32)
            wanted = Key("", "", frozenset({Role.INGEST}), **rights)
            await asyncio.to_thread(issuer.create, "main", given, wanted)
            return f"Authorization: Bearer {given.encode()}"

        kept = await key("a")
        client = await learned(scene, kept)
        await asyncio.to_thread(issuer.revoke, "main", "a" * ID_LENGTH)
        assert (await client.post(POST % 1, kept)).status == 401

        ends_ms = now_ms() + 2_000
        short = await key("b", expires_ms=ends_ms)
        client = await learned(scene, short)
        while (answer := await client.post(POST % 1, short)).status == 204:
            assert now_ms() < ends_ms + 500
            await asyncio.sleep(0.01)
        assert answer.status == 401

    play(tmp_path, scene)


def test_a_rate_and_a_bound_are_checked_for_each_post(tmp_path: Path) -> None:
    """Posts with such a key always take the ordinary way."""

    async def scene(scene: Scene) -> None:
        host = scene.host
        issuer = KeyIssuer(host.stores.keys, host.profiles, now_ms, host.key_ring.forget)
        given = PresentedKey("c" * ID_LENGTH, "s" * 32)
        bound = Filter(types=frozenset({"video"}))
        wanted = Key("", "", frozenset({Role.INGEST}), bound=bound, rate=5)
        await asyncio.to_thread(issuer.create, "main", given, wanted)
        shown, client = f"Authorization: Bearer {given.encode()}", await scene.connect()
        other = POST.replace(b"video", b"user") % 1
        assert (await client.post(POST % 1, shown)).status == 204
        assert (await client.post(other, shown)).status == 403
        statuses = {(await client.post(POST % 1, shown)).status for _ in range(80)}
        assert 429 in statuses

    play(tmp_path, scene)


def test_a_password_and_the_end_of_a_feed_apply_to_a_learned_head(tmp_path: Path) -> None:
    def with_password(password: str) -> Callable[[Profile], Profile]:
        stored = hash_password(password, salt=b"s" * 16, now_ms=0)
        return lambda profile: replace(profile, ingest_passwords=(stored,))

    def basic(password: str) -> str:
        return "Authorization: Basic " + base64.b64encode(f":{password}".encode()).decode()

    async def scene(scene: Scene) -> None:
        client, profiles = await learned(scene), scene.host.profiles
        first, second = "the first password", "the second password"
        await asyncio.to_thread(change, profiles, "main", with_password(first))
        assert (await client.post(POST % 1)).status == 401
        client = await learned(scene, basic(first))
        await asyncio.to_thread(change, profiles, "main", with_password(second))
        assert (await client.post(POST % 1, basic(first))).status == 401
        client = await learned(scene, basic(second))
        await asyncio.to_thread(scene.host.stores.log.yield_to, "main", "http://other.example/")
        ordinary = await client.post(POST % 1, basic(second), UNUSUAL)
        assert ordinary.status == 409
        assert (await client.post(POST % 1, basic(second))).status == 409

    play(tmp_path, scene)


def test_a_deleted_feed_is_gone_for_a_learned_head(tmp_path: Path) -> None:
    async def scene(scene: Scene) -> None:
        client = await learned(scene)
        deleted = await client.post(
            b"", method="DELETE", path="/feeds/main?confirm=main&force=true"
        )
        assert deleted.status in (200, 202, 204), deleted
        assert (await client.post(POST % 1)).status == 410

    play(tmp_path, scene)


def test_a_batch_that_cannot_be_written_is_dropped_whole(tmp_path: Path) -> None:
    """Each of its posts is decided again, and no number is lost."""

    async def scene(scene: Scene) -> None:
        clients = [await learned(scene) for _ in range(4)]
        before = await asyncio.to_thread(selected, scene.host, HEADS, "main")
        database = scene.host.database
        await asyncio.to_thread(
            executed,
            database,
            "CREATE TEMP TRIGGER broken BEFORE INSERT ON pages"
            " BEGIN SELECT RAISE(ABORT, 'broken'); END",
        )
        answers = await asyncio.gather(*[each.post(POST % 7) for each in clients])
        assert {each.status for each in answers} == {503}
        await asyncio.to_thread(executed, database, "DROP TRIGGER broken")
        assert await asyncio.to_thread(selected, scene.host, HEADS, "main") == before
        answers = await asyncio.gather(*[each.post(POST % 8) for each in clients])
        assert {each.status for each in answers} == {204}
        pages = await asyncio.to_thread(selected, scene.host, PAGES, "main")
        assert [page for (page,) in pages] == [*range(1, len(pages) + 1)]
        assert len(pages) == before[0][0] + 4

    play(tmp_path, scene)


def test_posts_of_a_batch_with_one_key_are_appended_once(tmp_path: Path) -> None:
    """The others of the batch get the answer to the first one, or an error for another body."""

    async def scene(scene: Scene) -> None:
        clients = [await learned(scene) for _ in range(6)]
        before = len(await asyncio.to_thread(selected, scene.host, PAGES, "main"))

        async def post_all(number: Callable[[int], int], key: Callable[[int], int]) -> list[int]:
            posts = [
                each.post(POST % number(at), f"Idempotency-Key: {key(at)}")
                for at, each in enumerate(clients)
            ]
            return sorted(answer.status for answer in await asyncio.gather(*posts))

        async def more() -> int:
            return len(await asyncio.to_thread(selected, scene.host, PAGES, "main")) - before

        assert await post_all(lambda at: 7, lambda at: 1) == [204] * 6
        assert await more() == 1
        assert await post_all(lambda at: at, lambda at: 2 + at // 2) == [204] * 3 + [422] * 3
        assert await more() == 4
        assert await post_all(lambda at: at, lambda at: 9 + at) == [204] * 6
        assert await post_all(lambda at: at, lambda at: 9 + at) == [204] * 6
        assert await more() == 10

    play(tmp_path, scene)


def test_framing_around_learned_heads(tmp_path: Path) -> None:
    """Late bodies, several posts in a packet, bytes during a commit, broken requests after it."""

    async def scene(scene: Scene) -> None:
        client = await learned(scene)
        body = POST % 1
        for waits_s in (0, 10 * HOLD_S):
            client.send(b"", length=len(body))
            await client.writer.drain()
            await asyncio.sleep(waits_s)
            client.writer.write(body)
            assert (await client.answer()).status == 204
        for _ in range(3):
            client.send(body)
        assert [(await client.answer()).status for _ in range(3)] == [204] * 3
        client.send(body)
        await client.writer.drain()
        client.send(body)
        client.send(b"{")
        assert [(await client.answer()).status for _ in range(3)] == [204, 204, 400]
        for length in ("1, 1", "+1", "", "9" * 30):
            other = await scene.connect()
            other.send(body, length=length)
            assert (await other.answer()).status in (400, 413)
        other = await scene.connect()
        other.send(body, f"Content-Length: {len(body)}")
        assert (await other.answer()).status == 400
        for _ in range(20):
            gone = await scene.connect()
            gone.send(body)
            await gone.writer.drain()
            gone.writer.transport.abort()
        await asyncio.sleep(0.1)
        assert (await client.post(body)).status == 204

    play(tmp_path, scene)


def test_posts_of_many_connections_share_commits(tmp_path: Path) -> None:
    async def scene(scene: Scene) -> None:
        clients = [await learned(scene) for _ in range(16)]
        commits = scene.host.meters.commits.count
        for _ in range(10):
            answers = await asyncio.gather(*[each.post(POST % 7) for each in clients])
            assert {each.status for each in answers} == {204}
        assert scene.host.meters.commits.count - commits < 160 / 2
        operations = scene.host.metrics["OperationsIngested"]
        assert operations == 16 * 2 + 160

    play(tmp_path, scene)

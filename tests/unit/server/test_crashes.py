"""A server that is killed at any moment: at every await of its tasks, and around every commit.

Producers post, and consumers connect and disconnect, on one host in this process. At each moment
the files are copied as a kill would leave them. Their contents are compared with the operations
that were acknowledged and received by then. On some of the copies a host is started, and the same
consumers resume there.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tidings.core.followers.follower import STATE
from tidings.core.model.operations import parse_line
from tidings.core.state.rows import Row
from tidings.server import loop_guard
from tidings.server.app import ServerApp
from tidings.server.host import Host
from tidings.server.http_server import HostCheck
from tidings.server.settings import Settings
from tidings.server.sqlite.database import Database
from tidings.server.sqlite.log import SqliteLog

FEED = "main"
BEFORE_THE_FIRST = "0000000000000000007fffff"
PRODUCERS, POSTS, CONSUMERS = 6, 80, 4
EVENTS = 12  # a consumer leaves after about this number, and reconnects
MOMENTS = 0.4  # of all, so that some commits are fast
RESTARTS = 12
CHECKPOINT_PAGES = 40  # so that the file is checkpointed several times
WITHIN_S = 180.0
_HEADERS = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]


@dataclass
class Consumer:
    """Receives objects by WebSocket, and resumes with its cursor."""

    app: ServerApp
    cursor: str = BEFORE_THE_FIRST
    heard: list[str] = field(default_factory=list)

    async def listen(self, count: int) -> None:
        """Listen until *count* more objects arrived."""
        incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        incoming.put_nowait({"type": "websocket.connect"})
        subscribe = {"action": "resume", "feed": FEED, "cursor": self.cursor}
        incoming.put_nowait({"type": "websocket.receive", "text": json.dumps(subscribe)})
        enough = len(self.heard) + count

        async def send(message: Any) -> None:
            if message["type"] != "websocket.send" or left.is_set():
                return
            answer = json.loads(message["text"])
            assert "error" not in answer, answer
            for event in answer.get("events", ()):
                self.heard.append(event["data"]["id"])
                self.cursor = event["id"]
            self.cursor = answer.get("cursor", self.cursor)
            if len(self.heard) >= enough:
                left.set()
                incoming.put_nowait({"type": "websocket.disconnect", "code": 1000})

        left = asyncio.Event()
        scope = {"type": "websocket", "path": "/ws", "query_string": b"", "headers": _HEADERS}
        await self.app(scope, incoming.get, send)


@dataclass
class Producer:
    """Posts one object after the other."""

    app: ServerApp
    name: str
    acknowledged: list[str] = field(default_factory=list)

    async def post(self, count: int) -> None:
        for number in range(count):
            id_ = f"{self.name}-{number}"
            body = json.dumps({"event": "update", "type": "video", "id": id_}).encode()
            assert await _status(self.app, body) < 300
            self.acknowledged.append(id_)


async def _status(app: ServerApp, body: bytes) -> int:
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        statuses.append(message.get("status", 0))

    scope = {"type": "http", "method": "POST", "path": "/ops", "query_string": b""}
    await app({**scope, "headers": _HEADERS}, receive, send)
    return max(statuses)


@dataclass
class Image:
    """The files, and for each consumer the received objects and its cursor."""

    files: dict[str, bytes]
    heard: list[tuple[str, list[str]]]


class Crashes:
    """Looks at the files of *database* at the moments of a run."""

    def __init__(self, folder: Path, database: Database, random: Random) -> None:
        self.kinds: Counter[str] = Counter()
        self.images: list[Image] = []
        self.producers: list[Producer] = []
        self.consumers: list[Consumer] = []
        self.trouble: AssertionError | None = None
        self._folder, self._database, self._random = folder, database, random
        self._reader = ThreadPoolExecutor(1)
        for name in ("begin", "commit", "rollback"):  # while no other task writes
            setattr(database, name, self._around(name, getattr(database, name)))

    def at_await(self) -> None:
        if self._database.acquire(wait=False):
            try:
                self._look("await")
            finally:
                self._database._turn.release()

    def _around(self, name: str, call: Callable[[], None]) -> Callable[[], None]:
        def around() -> None:
            if name == "begin":
                call()
                self._look(name)
            else:
                self._look(name)
                call()

        return around

    def _look(self, kind: str) -> None:
        if self._random.random() > MOMENTS or self.trouble:
            return
        heard = [(each.cursor, list(each.heard)) for each in self.consumers]
        acknowledged = [list(each.acknowledged) for each in self.producers]
        files = {path.name: path.read_bytes() for path in self._folder.glob("feed.db*")}
        self.kinds[kind] += 1
        self.images.append(Image(files, heard))
        try:
            # In a thread: the event loop may not wait for a database, not even for a copy.
            objects = self._reader.submit(_objects_of, files, self._folder / "image").result()
            _compare(objects, acknowledged, heard)
        except AssertionError as trouble:
            self.trouble = trouble
        if len(self.images) > RESTARTS:  # a fair choice among all moments so far
            self.images.pop(self._random.randrange(len(self.images)))


def _compare(
    log: Sequence[str],
    acknowledged: Sequence[Sequence[str]],
    heard: Sequence[tuple[str, Sequence[str]]],
) -> None:
    """Assert that the acknowledged objects are in the log once and in order, and that the received
    ones are its prefix.
    """
    assert len(set(log)) == len(log)
    for each in acknowledged:
        assert [id_ for id_ in log if id_ in set(each)] == each
    for _, objects in heard:
        assert list(log[: len(objects)]) == objects


def _put(files: dict[str, bytes], folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    for path in folder.glob("feed.db*"):
        path.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder / "feed.db"


def _objects_of(files: dict[str, bytes], folder: Path) -> list[str]:
    with contextlib.closing(Database(_put(files, folder))) as database:
        return _objects(SqliteLog(database))


def _objects(log: SqliteLog) -> list[str]:
    pages = log.read(FEED, 0)
    assert not pages.more
    return [parse_line(line).id for page in pages for line in page.lines]


class Stepped(Coroutine[Any, Any, Any]):
    """A task's coroutine, with a look before each of its steps."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], look: Callable[[], None]) -> None:
        self._coroutine, self._look = coroutine, look

    def send(self, value: Any) -> Any:
        self._look()
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        raise NotImplementedError


@contextlib.asynccontextmanager
async def hosted(
    path: Path, archive: Path | None = None, **given: str
) -> AsyncIterator[tuple[Host, ServerApp]]:
    if archive is not None:
        given["TIDINGS_ARCHIVE"] = archive.as_uri()
    parsed = Settings.read({"TIDINGS_FEEDS": FEED, "TIDINGS_OPEN": "true", **given})
    limit_ms = loop_guard.parse_limit_ms(os.environ[loop_guard.VARIABLE])
    loop_guard.watch(asyncio.get_running_loop(), limit_ms)
    host = await Host.open(path, parsed)
    await asyncio.to_thread(host.start)
    try:
        yield host, ServerApp(host, HostCheck(), None)
    finally:
        await host.stop()


def _rows(host: Host) -> list[Row]:
    return [row for bucket in range(64) for row in host.stores.state.read(FEED, bucket, None)]


def executed(database: Database, statement: str) -> Any:
    """Return the first row of *statement*, in a thread: the event loop must not wait."""
    return database.write(lambda sql: sql.execute(statement).fetchone())


async def _crashing(folder: Path, seed: int) -> Crashes:
    async with hosted(folder / "feed.db") as (host, app):
        pragma = f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}"
        await asyncio.to_thread(executed, host.database, pragma)
        crashes = Crashes(folder, host.database, Random(seed))
        crashes.producers = [Producer(app, f"p{number}") for number in range(PRODUCERS)]
        crashes.consumers = [Consumer(app) for _ in range(CONSUMERS)]
        asyncio.get_running_loop().set_task_factory(
            lambda loop, coroutine, **more: asyncio.Task(
                Stepped(coroutine, crashes.at_await), loop=loop, **more
            )
        )
        async with asyncio.timeout(WITHIN_S), asyncio.TaskGroup() as group:
            for producer in crashes.producers:
                group.create_task(producer.post(POSTS))
            for number, consumer in enumerate(crashes.consumers, 1):
                group.create_task(_restless(consumer, EVENTS * number))
        asyncio.get_running_loop().set_task_factory(None)
    return crashes


async def _restless(consumer: Consumer, events: int) -> None:
    while (rest := PRODUCERS * POSTS - len(consumer.heard)) > 0:
        await consumer.listen(min(events, rest))


async def _resumed(image: Image, folder: Path) -> None:
    """Start a host on the copied files: it accepts posts, and each consumer gets the rest once."""
    async with hosted(_put(image.files, folder)) as (host, app):
        async with asyncio.timeout(WITHIN_S):
            await Producer(app, "last").post(1)
            log = await asyncio.to_thread(_objects, host.stores.log)
            assert log[-1] == "last-0"
            for cursor, heard in image.heard:
                consumer = Consumer(app, cursor, list(heard))
                await consumer.listen(len(log) - len(heard))
                assert consumer.heard == log
            head = await asyncio.to_thread(host.stores.log.head, FEED)
            while host.stores.followers.checkpoints(FEED).get(STATE, 0) < head:
                await asyncio.sleep(0.005)
        rows = await asyncio.to_thread(_rows, host)
        assert sorted(row.key for row in rows) == sorted(f"video/{id_}" for id_ in log)


@pytest.mark.parametrize("seed", range(2))
def test_a_kill_at_any_moment_loses_and_repeats_nothing(tmp_path: Path, seed: int) -> None:
    """Nothing that was acknowledged, and nothing that a consumer relied on."""
    crashes = asyncio.run(_crashing(tmp_path, seed))
    if crashes.trouble:
        raise crashes.trouble
    assert set(crashes.kinds) == {"await", "begin", "commit", "rollback"}
    assert min(crashes.kinds.values()) > RESTARTS
    for image in crashes.images:
        asyncio.run(_resumed(image, tmp_path / "resumed"))

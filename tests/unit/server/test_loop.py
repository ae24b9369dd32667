"""The event loop never waits for a lock, so that no thread can stop the server."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from base64 import b64encode
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import uvloop
from click.testing import CliRunner
from websockets.asyncio.client import connect

from tests.hosts import make_key
from tests.unit.server.test_crashes import FEED, Producer, hosted
from tidings.client.cli.main import main
from tidings.core.auth.guard import Role
from tidings.core.auth.keys import ID_LENGTH, Key, KeyIssuer, PresentedKey
from tidings.core.durable_streams import messages
from tidings.core.errors import Unavailable
from tidings.core.log.append import Appender
from tidings.core.model.pages import Page
from tidings.server import loop_guard, serving
from tidings.server.loop_guard import LoopBlocked, LoopWouldBlock
from tidings.server.posts import LOOP_BYTES_MAX
from tidings.server.processes import Problem
from tidings.server.running import Server
from tidings.server.settings import Options
from tidings.server.sqlite.database import Database
from tidings.server.sqlite.log import SqliteLog
from tidings.server.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tidings.server.app import ServerApp

PATIENCE_S = 180.0
ROUNDS = 30
PASSWORD = "an ingest password"
# A host that blocks its loop for good once it serves.
STUCK = """
import asyncio, threading
from tidings.server.command import run
async def host(options, ready, stopped):
    ready("http://x", "ws://x")
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
run(host, "serve", None, stop_s=0.5)
"""


async def get(app: ServerApp, path: str) -> int:
    """Return the status of the answer."""
    statuses: list[int] = []
    messages: list[dict[str, Any]] = [{"type": "http.request", "body": b""}]

    async def receive() -> dict[str, Any]:
        return messages.pop() if messages else await asyncio.Future()

    async def send(message: Any) -> None:
        statuses.append(message.get("status", 0))

    scope = {"type": "http", "method": "GET", "path": path, "query_string": b""}
    await app({**scope, "headers": [(b"host", b"127.0.0.1")]}, receive, send)
    return max(statuses)


@pytest.mark.parametrize(
    "path", ["/metrics", "/status", "/health", "/console", "/feeds/main/pages"]
)
def test_no_request_stops_the_loop(tmp_path: Path, path: str) -> None:
    """While a thread commits to a slow disk, the loop answers requests that read."""
    begun, ended = threading.Event(), threading.Event()

    async def play() -> tuple[bool, int]:
        async with hosted(tmp_path / "feed.db") as (host, app):
            commit = host.database.commit

            def commit_slowly() -> None:
                begun.set()
                assert ended.wait(PATIENCE_S)
                commit()

            setattr(host.database, "commit", commit_slowly)  # noqa: B010 (a method)
            host.writer._is_slow = True
            posting = asyncio.ensure_future(Producer(app, "p").post(1))
            assert await asyncio.to_thread(begun.wait, PATIENCE_S)
            async with asyncio.timeout(PATIENCE_S):
                status = await get(app, path)
                is_waiting = not posting.done()
                ended.set()
                await posting
            return is_waiting, status

    is_waiting, status = asyncio.run(play())
    assert is_waiting
    assert status < 500


def test_the_database_refuses_to_block_the_loop(tmp_path: Path) -> None:
    """Free or not, so that a test finds each place that would wait."""

    async def play(database: Database) -> None:
        for blocking in (database.acquire, database.transaction().__enter__, database.close):
            with pytest.raises(LoopWouldBlock):
                blocking()
        assert database.acquire(wait=False)
        database.begin()
        with database.transaction() as sql:  # a part of the loop's own transaction
            assert sql.in_transaction
        database.commit()

    with closing(Database(tmp_path / "feed.db")) as database:
        asyncio.run(play(database))


LONGEST_S = 0.05  # of a callback in this test


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_callback_that_computes_for_long_ends_the_loop(run: Callable[[Any], object]) -> None:
    """In both kinds of loops, the error names the callback. Waiting does not count."""

    async def compute() -> None:
        until_s = time.thread_time() + 2 * LONGEST_S
        while time.thread_time() < until_s:
            pass
        await asyncio.sleep(PATIENCE_S)

    async def play(*computing: Any) -> None:
        loop = asyncio.get_running_loop()
        loop_guard.watch(loop, LONGEST_S * 1000)
        time.sleep(2 * LONGEST_S)
        tasks = [loop.create_task(each) for each in computing]
        await asyncio.sleep(0.01)
        await asyncio.gather(*tasks)

    run(play())
    with pytest.raises(LoopBlocked, match=r"compute > sleep used \d+ ms"):
        run(play(compute()))


@pytest.mark.parametrize("value", ["5O", "-1", "nan", "inf"])
def test_an_invalid_limit_is_refused_at_the_start(value: str) -> None:
    options = Options(environment={loop_guard.VARIABLE: value})
    with pytest.raises(Problem, match=f"TIDINGS_DEBUG_LOOP={value}: must be a number of millis"):
        asyncio.run(serving.run(options, lambda *urls: None, asyncio.Event()))


WAITS = """
import asyncio, fcntl, socket, sys, time, uvloop
from tidings.server import loop_guard
loop_guard.install()
async def play():
    with socket.create_server(("127.0.0.1", 0)) as server, open(sys.argv[1], "w") as file:
        address = server.getsockname()
        for wait in (
            lambda: socket.socket().connect(address),
            lambda: socket.getaddrinfo("localhost", 80),
            lambda: fcntl.flock(file, fcntl.LOCK_EX),
            lambda: time.sleep(0),
        ):
            try:
                wait()
            except loop_guard.LoopWouldBlock as error:
                print(error)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _, writer = await asyncio.open_connection(*address)
        writer.close()
asyncio.run(play())
uvloop.run(play())
"""


def test_a_loop_waits_for_nothing(tmp_path: Path) -> None:
    """Asynchronous calls, which do not block, are still possible."""
    command = [sys.executable, "-c", WAITS, str(tmp_path / "file")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    waits = ["a connection", "a name server", "a file lock", "a pause"]
    expected = [f"the event loop must not wait for {each}; use a thread" for each in waits]
    assert done.stdout.splitlines() == 2 * expected


LARGE = "x" * (LOOP_BYTES_MAX // 3)  # three of them are too much


@pytest.mark.parametrize(
    ("data", "rate", "is_in_loop"), [("", 0, True), (LARGE, 0, False), ("", 10, False)]
)
def test_only_posts_that_cannot_take_long_run_in_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: str, rate: int, is_in_loop: bool
) -> None:
    """Large bodies, and keys with a rate, which takes a lock, go to a thread, except the write."""
    threads = dict[object, threading.Thread]()

    def note(method: Any) -> Any:
        def noted(*of: Any) -> Any:
            threads[method] = threading.current_thread()
            return method(*of)

        return noted

    append, take = Appender.append, SqliteLog.take
    monkeypatch.setattr(Appender, "append", note(append))
    monkeypatch.setattr(SqliteLog, "take", note(take))
    given = PresentedKey("k" * ID_LENGTH, "s" * 32)

    async def play() -> None:
        async with hosted(tmp_path / "feed.db") as (host, app):
            issuer = KeyIssuer(host.stores.keys, host.profiles, host.runtime.clock)
            key = Key(given.id, "", frozenset({Role.INGEST}), rate=rate)
            await asyncio.to_thread(issuer.create, FEED, given, key)
            headers = {"authorization": f"Bearer {given.encode()}"}
            client = httpx.AsyncClient(
                transport=httpx.ASGITransport(app), base_url="http://127.0.0.1", headers=headers
            )
            async with client:
                for _ in range(2):  # the first one may read the key
                    operation = {"event": "insert", "type": "video", "id": "a", "data": data}
                    answer = await client.post("/ops", json=[operation] * 3)
                    assert answer.status_code == 204, answer.text

    asyncio.run(play())
    assert (threads[append] is threading.current_thread()) is is_in_loop
    assert threads[take] is threading.current_thread()


def test_a_large_body_of_a_stream_is_parsed_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop only writes its messages; an invalid body is refused as usual."""
    parse, threads = messages.lines_from, list[threading.Thread]()

    def noted(*of: Any) -> list[str]:
        threads.append(threading.current_thread())
        return parse(*of)

    monkeypatch.setattr(messages, "lines_from", noted)

    async def play() -> list[int]:
        async with hosted(tmp_path / "feed.db") as (_, app):
            client = httpx.AsyncClient(
                transport=httpx.ASGITransport(app),
                base_url="http://127.0.0.1/feeds/main/v1/stream",
                headers={"content-type": "application/json"},
            )
            body = json.dumps(["x" * (LOOP_BYTES_MAX // 100)] * 400)
            async with client:
                answers = [
                    await client.put("/s", content=body),
                    await client.post("/s", content=body),
                    await client.post("/s", content=body[:-1]),
                ]
            return [each.status_code for each in answers]

    assert asyncio.run(play()) == [201, 204, 400]
    assert len(threads) == 3
    assert threading.current_thread() not in threads


def test_a_checked_lock_refuses_to_block_the_loop() -> None:
    """It works as usual in a thread, or if it need not wait."""

    async def play(lock: Any) -> None:
        with pytest.raises(LoopWouldBlock):
            lock.acquire()
        with pytest.raises(LoopWouldBlock), lock:
            pass
        assert lock.acquire(blocking=False)
        lock.release()

    for kind in (threading.Lock, threading.Condition, threading.BoundedSemaphore):
        lock = loop_guard._check(kind)()
        asyncio.run(play(lock))
        with lock:
            pass


def test_a_backup_holds_up_no_one(tmp_path: Path) -> None:
    """Writes and reads continue during the copy, which has the pages from before it began."""
    begun, on = threading.Event(), threading.Event()

    class Slow(Database):
        def _connected_for_backup(self) -> Any:
            connection = super()._connected_for_backup()

            def look() -> bool:
                begun.set()
                assert on.wait(PATIENCE_S)
                return False

            connection.set_progress_handler(look, 1)
            return connection

    with closing(Slow(tmp_path / "feed.db")) as database:
        log = SqliteLog(database)
        log.put(FEED, Page(1, "{}", "a", 1))
        copying = threading.Thread(target=database.back_up, args=[tmp_path / "copy.db"])
        copying.start()
        assert begun.wait(PATIENCE_S)
        log.put(FEED, Page(2, "{}", "b", 1))
        assert [each.number for each in log.read(FEED, 0)] == [1, 2]
        on.set()
        copying.join()
    with closing(Database(tmp_path / "copy.db")) as copy:
        assert 1 in [each.number for each in SqliteLog(copy).read(FEED, 0)]


def test_the_end_interrupts_a_backup(tmp_path: Path) -> None:
    """It is as if it had not been begun: a server must end within seconds."""
    database, failed = Database(tmp_path / "feed.db"), []
    SqliteLog(database).put(FEED, Page(1, "x" * 10_000_000, "a", 1))
    database._closed = True  # as `close` does first

    def back_up() -> None:
        try:
            database.back_up(tmp_path / "copy.db")
        except Exception as error:  # noqa: BLE001 (looked at below)
            failed.append(str(error))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidings.server.sqlite.database.BACKUP_STEPS", 1)
        back_up()
    database.close()
    assert failed == ["the database: interrupted"]
    assert not list(tmp_path.glob("copy*"))


class Refusing:
    """A connection that fails at *statement* with SQLite's error while *refuses* is set."""

    def __init__(self, connection: Any, statement: str = "ROLLBACK") -> None:
        self._connection, self._statement, self.refuses = connection, statement, True

    def execute(self, statement: str, *arguments: Any) -> Any:
        if statement == self._statement and self.refuses:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorname = "SQLITE_IOERR"
            raise error
        return self._connection.execute(statement, *arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def test_a_rollback_that_fails_keeps_no_lock(tmp_path: Path) -> None:
    """The next transaction undoes it, and has nothing of it."""
    with closing(Database(tmp_path / "feed.db")) as database:
        log, connection = SqliteLog(database), Refusing(database._connection)
        database._connection = connection  # type: ignore[assignment]
        with pytest.raises(Unavailable, match="disk I/O error"), database.transaction():
            log.put(FEED, Page(1, "{}", "a", 1))
            raise ValueError
        connection.refuses = False
        assert database.acquire(wait=False)
        database.begin()
        database.rollback()
        log.put(FEED, Page(2, "{}", "b", 1))
        assert [each.number for each in log.read(FEED, 0)] == [2]


def test_a_reader_that_cannot_be_rolled_back_is_closed(tmp_path: Path) -> None:
    """Its transaction would keep the write-ahead log from being truncated."""
    with closing(Database(tmp_path / "feed.db")) as database:
        log = SqliteLog(database)
        log.put(FEED, Page(1, "{}", "a", 1))
        log.read(FEED, 0)  # opens a reader, which the next read uses
        reader: Any = Refusing(database._readers[-1])
        database._readers[-1] = reader
        with pytest.raises(ValueError, match="stop"), database.reading() as sql:
            sql.execute("SELECT * FROM pages").fetchall()
            raise ValueError("stop")

        assert reader not in database._readers
        log.put(FEED, Page(2, "{}", "b", 1))
        assert database.truncate_wal()


@pytest.mark.parametrize("statement", ["ROLLBACK", "SAVEPOINT part", "ROLLBACK TO part"])
def test_a_disk_that_fails_to_undo_is_unavailable(tmp_path: Path, statement: str) -> None:
    """The callers of the writer get no error of SQLite, which would be a mistake of the server."""

    def fail() -> None:
        raise ValueError

    async def play(database: Database) -> BaseException:
        writer = Writer(database, asyncio.get_running_loop())
        if statement == "ROLLBACK":  # of the whole transaction
            database.steps = replace(database.steps, write_more=lambda _: fail())
        last = int if statement == "ROLLBACK" else fail
        jobs = writer.write(int), writer.write(last)
        _, error = await asyncio.gather(*jobs, return_exceptions=True)
        await writer.stop()
        assert isinstance(error, BaseException)
        return error

    with closing(Database(tmp_path / "feed.db")) as database:
        connection = Refusing(database._connection, statement)
        database._connection = connection  # type: ignore[assignment]
        assert isinstance(asyncio.run(play(database)), Unavailable)
        connection.refuses = False


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """Yield a server with checked locks, as in all servers that tests start."""
    (tmp_path / "password").write_text(PASSWORD)
    with Server("--ingest-password-file", str(tmp_path / "password")) as running:
        yield running


def _basic(password: str) -> dict[str, str]:
    return {"authorization": f"Basic {b64encode(f':{password}'.encode()).decode()}"}


class Load:
    """Clients of *server*, and what status each kind of them was answered with."""

    def __init__(self, server: Server, folder: Path, client: httpx.AsyncClient) -> None:
        self._server, self._folder, self._client = server, folder, client
        key = make_key(server, "--role", "ingest", "--role", "read", "--parent", "a/1")
        self._key, self.bearer = key, {"authorization": f"Bearer {key}"}
        self.statuses: set[tuple[str, int]] = set()

    async def post(self, kind: str, headers: dict[str, str]) -> None:
        for number in range(ROUNDS):
            body = {"event": "update", "type": "v", "id": f"{kind}{number}", "parents": ["a/1"]}
            again = {"idempotency-key": f"{kind}{number}"} if number % 2 else {}
            answer = await self._client.post("ops", json=body, headers={**headers, **again})
            self.statuses.add((kind, answer.status_code))

    async def get(self, path: str) -> None:
        for _ in range(ROUNDS):
            answer = await self._client.get(path, headers=self.bearer)
            self.statuses.add((path, answer.status_code))

    async def append(self) -> None:
        headers = {**_basic(PASSWORD), "content-type": "text/plain"}
        for number in range(ROUNDS):
            path = f"feeds/main/v1/stream/s{number % 3}"
            await self._client.put(path, headers=headers)
            answer = await self._client.post(path, content="x", headers=headers)
            self.statuses.add(("stream", answer.status_code))

    async def listen(self) -> None:
        async with connect(self._server.ws_url) as socket:
            said = {"action": "subscribe", "feed": "main", "cursor": "0", "password": self._key}
            await socket.send(json.dumps(said))
            assert await socket.recv()

    async def back_up(self) -> None:
        for number in range(3):
            target = str(self._folder / f"copy{number}.db")
            command = ["backup", "--data", str(self._server.data), target]
            done = await asyncio.to_thread(CliRunner().invoke, main, command)
            assert done.exit_code == 0, done.output


async def _loaded(server: Server, folder: Path) -> set[tuple[str, int]]:
    client = httpx.AsyncClient(base_url=server.url, timeout=PATIENCE_S)
    async with client, asyncio.timeout(10 * PATIENCE_S), asyncio.TaskGroup() as group:
        load = Load(server, folder, client)
        for kind, headers in (
            ("basic", _basic(PASSWORD)),
            ("wrong", _basic("another")),
            ("key", load.bearer),
        ):
            group.create_task(load.post(kind, headers))
        for path in ("metrics", "status", "changes?since=0", "feeds/main/pages?after=0"):
            group.create_task(load.get(path))
        for task in (load.append, load.listen, load.back_up):
            group.create_task(task())
    return load.statuses


def test_all_kinds_of_requests_at_once(server: Server, tmp_path: Path) -> None:
    """Posts with all kinds of credentials, reads, scrapes, backups: none waits in the loop."""
    statuses = asyncio.run(_loaded(server, tmp_path))
    assert not {each for each in statuses if each[1] >= 500}, server.errors()
    wanted = {("basic", 204), ("key", 204), ("wrong", 401), ("metrics", 200), ("stream", 204)}
    assert wanted <= statuses, statuses
    assert "LoopWouldBlock" not in server.errors()
    assert server.stop() == 0


def test_a_signal_ends_a_server_whose_loop_is_stuck() -> None:
    """The server is ended by force, with a message."""
    command = [sys.executable, "-c", STUCK]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as stuck:
        assert stuck.stdout is not None and stuck.stderr is not None
        stuck.stdout.readline()
        stuck.send_signal(signal.SIGTERM)
        try:
            assert stuck.wait(PATIENCE_S) == 1
        finally:
            stuck.kill()
        assert b"not ended" in stuck.stderr.read()

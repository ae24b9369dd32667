"""Errors that pass are waited for, final ones stop a store, and the guide has the same table."""

from __future__ import annotations

import errno
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import opensearchpy
import pika  # type: ignore[import-untyped]
import psycopg
import pymongo.errors
import pymysql
import pytest
import redis
from botocore.exceptions import ClientError, EndpointConnectionError
from confluent_kafka import KafkaError, KafkaException

from tests.compat.oplog.wire import until
from tests.compat.transporter.pipe import Pipe
from tests.unit.pipelines.conftest import needing
from tests.unit.pipelines.real_stores import rows_of
from tests.unit.pipelines.test_running import TIDINGS, Running, caught_up, post
from tidings.client.retries import Backoff
from tidings.pipelines import (
    Call,
    Files,
    Message,
    MySQL,
    MySQLTable,
    Ndjson,
    Pipeline,
    Postgres,
    RabbitMQ,
    Redis,
    Search,
    Source,
)
from tidings.pipelines import running as loop
from tidings.pipelines.messages import Busy, Verdict
from tidings.pipelines.refusals import CODES, verdict
from tidings.pipelines.running import Progress, Runner

GUIDE = Path("docs/guides/PIPELINE_REFERENCE.md")
P, M, A, U = Verdict.PASSES, Verdict.MESSAGE, Verdict.ALL, Verdict.UNKNOWN


def test_the_guide_has_the_table_of_the_code() -> None:
    """Each code is in the same column; the stores of the code are the stores of the guide."""
    text = GUIDE.read_text().partition("## Refusals")[2].partition("\n\nPostgreSQL's")[0]
    found = {}
    for line in text.splitlines():
        name, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and "`" in line:
            codes = [re.findall(r"`([^`]+)`", cell) for cell in cells]
            found[name] = dict(zip(codes[0], [P] * 99, strict=False))
            found[name] |= dict.fromkeys(codes[1], M) | dict.fromkeys(codes[2], A)
    assert found == CODES


def aws(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "no"}}, "PutRecords")


class Local(OSError):
    """An error of a function of the user."""


ERRORS: list[tuple[Exception, Verdict]] = [
    (psycopg.errors.LockNotAvailable("x"), P),
    (psycopg.errors.ReadOnlySqlTransaction("x"), P),
    (psycopg.errors.DiskFull("x"), P),
    (psycopg.errors.AdminShutdown("x"), P),
    (psycopg.errors.NumericValueOutOfRange("x"), M),
    (psycopg.DataError("no NUL"), M),
    (psycopg.errors.InsufficientPrivilege("x"), A),
    (psycopg.errors.UndefinedTable("x"), U),
    (psycopg.OperationalError("FATAL:  sorry, too many clients already"), P),
    (psycopg.OperationalError("FATAL:  the database system is starting up"), P),
    (psycopg.OperationalError("connection refused"), U),
    (pymysql.OperationalError(1205, "lock wait"), P),
    (pymysql.InternalError(1114, "full"), P),
    (pymysql.OperationalError(4025, "constraint"), M),
    (pymysql.DataError(1406, "too long"), M),
    (pymysql.OperationalError(1142, "denied"), A),
    (pymysql.OperationalError(2013, "lost"), U),
    (redis.exceptions.ReadOnlyError("no", status_code="READONLY"), P),
    (redis.exceptions.ResponseError("MISCONF errors writing"), P),
    (redis.exceptions.NoPermissionError("no", status_code="NOPERM"), A),
    (redis.exceptions.ResponseError("ERR unknown"), U),
    (pika.exceptions.ConnectionClosedByBroker(320, "shutdown"), P),
    (pika.exceptions.ConnectionBlockedTimeout(), P),
    (pika.exceptions.ChannelClosedByBroker(403, "refused"), A),
    (KafkaException(KafkaError(KafkaError.NOT_ENOUGH_REPLICAS)), P),
    (KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)), M),
    (KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)), A),
    (KafkaException(KafkaError(KafkaError._TRANSPORT)), U),
    (opensearchpy.TransportError(429, "x", {}), P),
    (opensearchpy.AuthorizationException(403, "cluster_block_exception", {}), P),
    (opensearchpy.AuthorizationException(403, "security_exception", {}), A),
    (opensearchpy.TransportError(413, "x", {}), M),
    (opensearchpy.ConnectionError("N/A", "refused", Exception()), U),
    (pymongo.errors.NotPrimaryError("x", {"code": 10107}), P),
    (pymongo.errors.OperationFailure("x", 14031), P),
    (pymongo.errors.OperationFailure("x", 13), A),
    (pymongo.errors.ServerSelectionTimeoutError("x"), U),
    (aws("ProvisionedThroughputExceededException"), P),
    (EndpointConnectionError(endpoint_url="x"), P),
    (aws("AccessDeniedException"), A),
    (aws("ResourceNotFoundException"), U),
    (OSError(errno.ENOSPC, "full"), P),
    (Local(errno.ENOSPC, "full"), P),
    (PermissionError(errno.EACCES, "denied"), A),
    (ConnectionError("away"), U),
    (ValueError("x"), U),
    (Busy("x"), P),
    (Busy("x", A), A),
]


@pytest.mark.parametrize(("error", "expected"), ERRORS, ids=lambda each: repr(each)[:50])
def test_an_error_has_the_verdict_of_its_code(error: Exception, expected: Verdict) -> None:
    """The class of the client's exception says less than the code."""
    assert verdict(error) is expected


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "Backoff", partial(Backoff, 0.02, 0.05))


class Refusing(Call):
    """A store that raises *error*, if there is one, and counts how often it is opened."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__(self._keep)
        self.error, self.kept, self.opened = error, list[Any](), 0
        self.tried, self.fences = threading.Semaphore(0), set[int]()

    def open(self, consumer: str) -> None:
        self.opened += 1

    def write(self, messages: list[Message], fence: int) -> None:
        self.fences.add(fence)
        super().write(messages, fence)

    def _keep(self, batch: Sequence[Message]) -> None:
        if self.error is not None:
            self.tried.release()
            raise self.error
        self.kept += [each.data["data"] for each in batch]


def test_what_passes_is_repeated_with_the_lease_and_the_same_messages(
    pipe: Pipe, quick: None, tmp_path: Path
) -> None:
    """Nothing is parked or counted as a failure, the functions run once for each message, and
    readers and other stores continue.
    """

    def double(message: Message) -> Message:
        message.data["data"] *= 2
        return message

    (tmp_path / "in.json").write_text('{"id": "r"}\n')
    store = Refusing(OSError(errno.ENOSPC, "full"))
    pipeline = Pipeline("p", Source(pipe.url, feed=pipe.feed, start="oldest"))
    pipeline.read("in", Files(tmp_path / "in.json", type="film"))
    pipeline.save("full", store, double, namespace="video", park=True)
    pipeline.save("other", Ndjson(tmp_path / "lines"))
    post(pipe, ("insert", "a"), data=4)
    with Running(pipeline, attempts=1) as running:
        reader, progress, _ = running.runner.progress
        for _ in range(5):
            assert store.tried.acquire(timeout=60)
        until(lambda: reader.state == "done" and caught_up(pipe, "p.other"), within_s=60)
        assert (progress.state, progress.failures) == ("waiting", 0)
        assert re.fullmatch(r".*full, since 2\d{3}-.*", progress.shown)
        before = pipe.api.show("p.full")
        assert (before["failure"], before["position"]) == (None, None)
        store.error = None
        until(lambda: caught_up(pipe, "p.full"), within_s=60)
        assert (store.kept, len(store.fences)) == ([8], 1)
    assert store.opened > 5
    told = [each for each in running.events if each.get("path") == "full"]
    assert [each["kind"] for each in told if each["kind"] in ("error", "waiting")] == ["waiting"]
    assert running.well is True


def test_a_store_that_may_not_write_stops_at_once_and_the_others_go_on(
    pipe: Pipe, tmp_path: Path
) -> None:
    """With `fail_fast`, the others stop, too."""
    for is_fast in (False, True):
        store = Refusing(PermissionError(errno.EACCES, "denied"))
        pipeline = Pipeline(f"p{is_fast:d}", Source(pipe.url, feed=pipe.feed, start="oldest"))
        pipeline.save("denied", store).save("other", Ndjson(tmp_path / "lines"))
        post(pipe, ("insert", "a"), data=1)
        with Running(pipeline, fail_fast=is_fast) as running:
            until(lambda: running.runner.progress[0].state == "failed", within_s=60)
            if is_fast:
                running.thread.join(60)
                assert not running.thread.is_alive()
            else:
                until(lambda: caught_up(pipe, "p0.other"), within_s=60)
        assert (running.well, store.opened, running.runner.progress[0].failures) == (False, 1, 1)


def test_a_store_without_a_position_holds_up_readers_only_for_start_now(
    pipe: Pipe, quick: None, tmp_path: Path
) -> None:
    """It would miss what they read."""
    (tmp_path / "in.json").write_text('{"id": "r"}\n')
    for start, state in (("oldest", "done"), ("now", "standing by")):
        store = Refusing()
        store.open = raise_busy  # type: ignore[method-assign]
        pipeline = Pipeline(f"p-{start}", Source(pipe.url, feed=pipe.feed, start=start))
        pipeline.read("in", Files(tmp_path / "in.json", type="film")).save("late", store)
        with Running(pipeline) as running:
            reader, late = running.runner.progress
            until(partial(_is, late, "waiting"), within_s=60)
            until(partial(_is, reader, state), within_s=60)


def raise_busy(consumer: str) -> None:
    raise Busy("later")


def _is(progress: Progress, state: str) -> bool:
    return progress.state == state


def test_long_waits_and_retained_logs_raise_an_alarm_once() -> None:
    """It is raised again after the wait has ended in between."""
    told = list[dict[str, Any]]()
    runner = Runner(Pipeline("p", Source("http://127.0.0.1:1")), told.append)
    progress = Progress("table")
    for since_s, retained in ((1, 0), (400, 0), (400, 2 << 30), (0, 0), (400, 0)):
        progress.wait("full", lambda *_, **__: None)
        progress.since_s, progress.retained_bytes = time.monotonic() - since_s, retained
        runner._check_alarms(progress)
    assert [each["alarm"] for each in told] == ["waiting", "retained_bytes", "waiting"]


@contextmanager
def between(connection: Any, bad: str, good: str = "ROLLBACK") -> Iterator[None]:
    with connection, connection.cursor() as cursor:
        for each in bad.split(";"):
            cursor.execute(each)
        yield
        cursor.execute(good)


def table_lock(url: str, name: str) -> Any:
    return between(psycopg.connect(url), f"LOCK TABLE {name} IN SHARE MODE")


def mariadb(url: str) -> Any:
    socket = url.partition("unix_socket=")[2]
    return pymysql.connect(user="root", unix_socket=socket, database="objects")


def plain_user(url: str, name: str) -> MySQL:
    """Return a store of a user whom `read_only` concerns."""
    with mariadb(url) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE OR REPLACE USER plain@localhost")
        cursor.execute("GRANT ALL ON objects.* TO plain@localhost")
    return MySQL(url.replace("root@", "plain@"), name)


def queue(url: str, name: str) -> RabbitMQ:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        connection.channel().queue_declare(name, durable=True)
    return RabbitMQ(url, name)


@contextmanager
def memory_alarm(url: str, name: str) -> Iterator[None]:
    rabbitmqctl(url, "set_vm_memory_high_watermark", "0.0000001")
    yield
    rabbitmqctl(url, "set_vm_memory_high_watermark", "0.6")


def rabbitmqctl(url: str, *command: str) -> None:
    """Run a command of the broker at *url*; the folder and ports are in its environment."""
    node = f"tidings{url.rpartition(':')[2]}@localhost"
    for process in Path("/proc").glob("[0-9]*"):
        try:
            lines = (process / "environ").read_text().split("\0")
        except OSError:
            continue
        found = dict(line.split("=", 1) for line in lines if "=" in line)
        if found.get("RABBITMQ_NODENAME") == node:
            program = "/usr/lib/rabbitmq/bin/rabbitmqctl"
            subprocess.run([program, "-n", node, *command], env=found, check=True)
            return
    raise AssertionError(node)


@contextmanager
def replica(url: str, name: str) -> Iterator[None]:
    """A failover made the server a replica, which only reads."""
    with redis.Redis.from_url(url) as client:
        client.replicaof("127.0.0.1", 1)
        try:
            yield
        finally:
            client.replicaof("NO", "ONE")


@contextmanager
def full_memory(url: str, name: str) -> Iterator[None]:
    with redis.Redis.from_url(url) as client:
        client.config_set("maxmemory", 1)
        try:
            yield
        finally:
            client.config_set("maxmemory", 0)


@contextmanager
def full_disk(url: str, name: str) -> Iterator[None]:
    """The server blocks writes to the index, as it does on a disk that is nearly full."""
    path = f"{url}/{name}/_settings"
    for value in (True, None):
        setting = {"index.blocks.read_only_allow_delete": value}
        httpx.put(path, json=setting, timeout=60).raise_for_status()
        if value:
            yield


@contextmanager
def full_queue(url: str, name: str) -> Iterator[None]:
    """It has room for one message; the readers of the queue were away."""
    yield
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        connection.channel().queue_purge(name)


@contextmanager
def read_only(dsn: str, name: str) -> Iterator[None]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SET default_transaction_read_only = off")
        connection.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        connection.execute("SELECT pg_reload_conf()")
        try:
            yield
        finally:
            connection.execute("ALTER SYSTEM RESET ALL")
            connection.execute("SELECT pg_reload_conf()")


def small_queue(url: str, name: str) -> RabbitMQ:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        limit = {"x-max-length": 1, "x-overflow": "reject-publish"}
        connection.channel().queue_declare(name, durable=True, arguments=limit)
    return RabbitMQ(url, name)


# For each case: the fixture of a server, the store, and what makes the server refuse for a while.
BROKEN: list[tuple[str, Callable[[str, str], Any], Callable[[str, str], Any]]] = [
    ("database", Postgres, table_lock),
    (
        "mariadb_url",
        plain_user,
        lambda url, name: between(mariadb(url), f"BEGIN;SELECT * FROM {name} FOR UPDATE"),
    ),
    (
        "mariadb_url",
        plain_user,
        lambda url, name: between(mariadb(url), f"LOCK TABLES {name} WRITE", "UNLOCK TABLES"),
    ),
    (
        "mariadb_url",
        plain_user,
        lambda url, name: between(
            mariadb(url), "SET GLOBAL read_only = 1", "SET GLOBAL read_only = 0"
        ),
    ),
    ("rabbitmq_url", queue, memory_alarm),
    ("rabbitmq_url", small_queue, full_queue),
    ("redis_url", Redis, replica),
    ("redis_url", Redis, full_memory),
    ("opensearch", Search, full_disk),
    ("postgresql_url", Postgres, read_only),
]


@pytest.mark.parametrize("case", [needing(each[0], each) for each in BROKEN])
def test_a_store_waits_until_its_server_takes_writes_again(
    case: tuple[str, Any, Any], pipe: Pipe, request: pytest.FixtureRequest, quick: None
) -> None:
    """One attempt is enough, because nothing counts as one."""
    fixture, make, broken = case
    url = request.getfixturevalue(fixture)
    pipeline = Pipeline("p", Source(pipe.url, feed=pipe.feed, start="oldest"))
    pipeline.save("store", make(url, pipe.feed))
    post(pipe, ("insert", "a"), data=1)
    with Running(pipeline, attempts=1) as running:
        (progress,) = running.runner.progress
        until(lambda: caught_up(pipe, "p.store"), within_s=60)
        with broken(url, pipe.feed):
            post(pipe, ("update", "a"), data=2)
            until(lambda: progress.state == "waiting", within_s=60)
            assert not caught_up(pipe, "p.store")
        until(lambda: caught_up(pipe, "p.store"), within_s=60)
        assert (progress.state, progress.failures) == ("running", 0)
    assert running.well is True


def test_a_table_that_stays_locked_does_not_end_its_reader(
    pipe: Pipe, mariadb_url: str, quick: None
) -> None:
    """The reader waits for more lock waits than it has attempts, and then reads the row."""
    table = pipe.feed
    with mariadb(mariadb_url) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, n int)")
        cursor.execute(f"INSERT INTO {table} VALUES (1, 1)")
        connection.commit()
        pipeline = Pipeline("p", Source(pipe.url, feed=pipe.feed))
        pipeline.read("rows", MySQLTable(mariadb_url, table, type="video"))
        pipeline.save("out", Call(lambda batch: None))
        with Running(pipeline, attempts=1) as running:
            reader, _ = running.runner.progress
            until(lambda: reader.records == 1, within_s=60)
            cursor.execute(f"LOCK TABLES {table} WRITE")
            cursor.execute(f"UPDATE {table} SET n = 2")
            connection.commit()
            until(lambda: reader.state == "waiting", within_s=60)
            cursor.execute("UNLOCK TABLES")
            until(lambda: reader.records == 2, within_s=60)
    assert running.well is True


def test_a_document_that_is_too_deep_for_a_table_is_parked(
    pipe: Pipe, mariadb_url: str, quick: None
) -> None:
    """MariaDB refuses it by the constraint of the column, and the event names the object."""
    deep: Any = 1
    for _ in range(31):
        deep = [deep]
    pipeline = Pipeline("p", Source(pipe.url, feed=pipe.feed, start="oldest"))
    pipeline.save("rows", MySQL(mariadb_url, pipe.feed), park=True)
    post(pipe, ("insert", "a"), data=1)
    post(pipe, ("insert", "deep"), data=deep)
    post(pipe, ("insert", "b"), data=1)
    with Running(pipeline) as running:
        until(lambda: caught_up(pipe, "p.rows"), within_s=60)
    assert set(rows_of(mariadb_url, pipe.feed)) == {"a", "b"}
    (parked,) = [each for each in running.events if each["kind"] == "parked"]
    assert parked["object"] == "video/deep"


SLOT = """
from tidings.pipelines import Call, Pipeline, PostgresTable, Source

pipeline = Pipeline("p", Source("{url}", feed="{feed}"))
pipeline.read("rows", PostgresTable("{dsn}", "{feed}"))
pipeline.save("out", Call(lambda batch: None))
"""
WRITING = """
from pathlib import Path
from time import sleep
from tidings.pipelines import Call, Pipeline, Source

def write(batch):
    Path("{began}").touch()
    sleep(600)

pipeline = Pipeline("p", Source("{url}", feed="{feed}", start="oldest")).save("out", Call(write))
"""


@contextmanager
def process_of(file: Path, text: str) -> Iterator[subprocess.Popen[bytes]]:
    file.write_text(text)
    with subprocess.Popen([*TIDINGS, "pipeline", "run", str(file)]) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_reader_that_waits_for_its_slot_can_be_stopped(
    pipe: Pipe, database: str, tmp_path: Path
) -> None:
    """The server waits for a transaction that stays open; the request for the slot is cancelled."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%%_slot(%%' AND pid <> %s"
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {pipe.feed} (id int PRIMARY KEY)")

        def count() -> int:
            row = connection.execute(waiting, (connection.info.backend_pid,)).fetchone()
            assert row is not None
            return int(row[0])

        text = SLOT.format(url=pipe.url, feed=pipe.feed, dsn=database)
        with psycopg.connect(database) as other, process_of(tmp_path / "p.py", text) as process:
            other.execute("SELECT pg_current_xact_id()")
            until(lambda: count() == 1, within_s=60)
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
            until(lambda: count() == 0, within_s=60)


def test_a_second_signal_ends_a_store_that_writes(pipe: Pipe, tmp_path: Path) -> None:
    """The second signal need not be the same one as the first."""
    pipe.post("a")
    began = tmp_path / "began"
    text = WRITING.format(url=pipe.url, feed=pipe.feed, began=began)
    with process_of(tmp_path / "p.py", text) as process:
        until(began.exists, within_s=60)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == -signal.SIGTERM

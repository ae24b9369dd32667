"""Stores of the machine's packages, each started for the tests in a folder of its own."""

from __future__ import annotations

import getpass
import json
import os
import signal
import subprocess
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pika  # type: ignore[import-untyped]
import psycopg
import pymysql
import redis
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka import Message as KafkaMessage
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pymongo import MongoClient

from tests.unit.pipelines.installed import (
    KAFKA,
    MONGODB,
    mariadb_program,
    rabbitmq_program,
    redis_program,
)
from tidings.server.processes import free_port

PATIENCE_S = 180.0


class RealStore(NamedTuple):
    """A real store with the name *name*.

    *text* creates it in a pipeline's file; *objects* returns its objects by id. *start* avoids a
    copy for a store that is not notified when a copy starts over.
    """

    name: str
    text: str
    objects: Callable[[], dict[str, Any]]
    start: str = "copy"


@contextmanager
def daemon(
    command: Sequence[str | Path],
    log: Path,
    answers: Callable[[], object],
    environment: Mapping[str, str] = os.environ,
) -> Iterator[None]:
    """Run a server and its children until the block ends; it is up when *answers* raises
    nothing."""
    with (
        log.open("wb") as output,
        subprocess.Popen(
            command, stdout=output, stderr=output, env=environment, start_new_session=True
        ) as process,
    ):
        try:
            deadline_s = time.monotonic() + PATIENCE_S
            while True:
                try:
                    answers()
                    break
                except Exception:  # noqa: BLE001 each client has errors of its own
                    there = process.poll() is None and time.monotonic() < deadline_s
                    assert there, log.read_text()[-2000:]
                    time.sleep(0.05)
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def running_redis(folder: Path) -> Iterator[str]:
    """Yield the address of an empty Redis."""
    program, socket = redis_program(), folder / "socket"
    assert program is not None
    command: list[str | Path] = [
        program,
        "--port",
        "0",
        "--unixsocket",
        socket,
        "--save",
        "",
        "--dir",
        folder,
    ]
    with (
        redis.Redis(unix_socket_path=str(socket)) as client,
        daemon(command, folder / "log", client.ping),
    ):
        yield f"unix://{socket}"


@contextmanager
def running_mariadb(folder: Path, *options: str) -> Iterator[str]:
    """Yield the address of an empty database, which keeps no log that others follow."""
    program, socket, user = mariadb_program(), folder / "socket", getpass.getuser()
    assert program is not None
    paths = ["--no-defaults", f"--datadir={folder / 'data'}", f"--user={user}"]
    install = ["mariadb-install-db", *paths, "--auth-root-authentication-method=normal"]
    install += ["--skip-test-db"]
    subprocess.run(install, check=True, capture_output=True)
    # What fsync would take, nothing here is asked about.
    quick = ["--skip-networking", "--innodb-flush-log-at-trx-commit=0"]
    with daemon(
        [program, *paths, f"--socket={socket}", *quick, *options],
        folder / "log",
        lambda: pymysql.connect(user="root", unix_socket=str(socket)).close(),
    ):
        with pymysql.connect(user="root", unix_socket=str(socket)) as connection:
            connection.cursor().execute("CREATE DATABASE objects")
        yield f"mysql://root@localhost/objects?unix_socket={socket}"


def rows_of(url: str, table: str) -> dict[str, Any]:
    """Return the objects in *table* of a MariaDB."""
    socket = url.partition("unix_socket=")[2]
    with pymysql.connect(user="root", unix_socket=socket, database="objects") as connection:
        cursor = connection.cursor()
        cursor.execute(f"SELECT id, data FROM {table}")
        return {name.decode(): json.loads(text) for name, text in cursor.fetchall()}


def hash_of(url: str, key: str) -> dict[str, Any]:
    """Return the objects in the hash *key*."""
    with redis.Redis.from_url(url) as client:
        fields = client.hgetall(key)
    assert isinstance(fields, dict)
    return {name.decode().partition("/")[2]: json.loads(text) for name, text in fields.items()}


def table_of(dsn: str, table: str) -> dict[str, Any]:
    """Return the objects in *table* of a PostgreSQL."""
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(f"SELECT id, data FROM {table}").fetchall()
    return {str(name): data for name, data in rows}


@contextmanager
def running_rabbitmq(folder: Path) -> Iterator[str]:
    """Yield the address of an empty broker."""
    program, port, names_port = rabbitmq_program(), free_port(), str(free_port())
    assert program is not None
    settings = {
        "HOME": folder,  # the cookie of Erlang
        "ERL_EPMD_PORT": names_port,
        "RABBITMQ_MNESIA_BASE": folder / "data",
        "RABBITMQ_LOG_BASE": folder / "logs",
        "RABBITMQ_ENABLED_PLUGINS_FILE": folder / "plugins",
        "RABBITMQ_NODENAME": f"tidings{port}@localhost",
        "RABBITMQ_NODE_PORT": port,
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_DIST_PORT": free_port(),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1",
    }
    (folder / "plugins").write_text("[].")
    environment = {**os.environ, **{name: str(each) for name, each in settings.items()}}
    url = f"amqp://guest:guest@127.0.0.1:{port}"
    # Else the broker starts a daemon that knows the nodes of the machine, and outlives it.
    names = ["epmd", "-port", names_port]
    with (
        daemon(names, folder / "epmd", lambda: None),
        daemon(
            [program],
            folder / "log",
            lambda: pika.BlockingConnection(pika.URLParameters(url)).close(),
            environment,
        ),
    ):
        yield url


def queue_of(url: str, queue: str) -> dict[str, Any]:
    """Return the objects of the messages in *queue*, and remove the messages."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        told = []
        while (got := channel.basic_get(queue, auto_ack=True))[0]:
            told.append((int(got[1].headers["tidings-sequence"]), json.loads(got[2])))
    return folded(told)


@contextmanager
def running_kafka(folder: Path) -> Iterator[str]:
    """Yield the address of an empty broker, which is its own controller."""
    port, data = free_port(), folder / "data"
    data.mkdir()
    # What its own tool would write, in a Java of its own.
    formatted = {"version": 1, "cluster.id": "tests", "node.id": 1}
    formatted["directory.id"] = urlsafe_b64encode(b"tidings-tests-01").decode().rstrip("=")
    controller = f"127.0.0.1:{free_port()}"
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://{controller}",
        "log.dirs": data,
        "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": 1,
        "log.retention.check.interval.ms": 200,
    }
    for path, lines in ((data / "meta.properties", formatted), (folder / "settings", settings)):
        path.write_text("".join(f"{name}={each}\n" for name, each in lines.items()))
    servers = f"127.0.0.1:{port}"
    client = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    with daemon(
        KAFKA.java("kafka.Kafka", str(folder / "settings")),
        folder / "log",
        lambda: client.list_topics(timeout=1),
    ):
        yield servers


def make_topic(
    servers: str, topic: str, partitions: int = 1, settings: dict[str, str] | None = None
) -> str:
    client = AdminClient({"bootstrap.servers": servers})
    made = client.create_topics([NewTopic(topic, partitions, 1, config=settings or {})])
    made[topic].result(PATIENCE_S)
    deadline_s = time.monotonic() + PATIENCE_S
    while client.list_topics(topic, PATIENCE_S).topics[topic].error is not None:  # it has no leader
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    return topic


def messages_of(servers: str, topic: str) -> list[KafkaMessage]:
    """Return all messages of a topic, those of each partition in their order."""
    options = {"bootstrap.servers": servers, "group.id": "tests"}
    with Consumer(
        {**options, "enable.auto.commit": False, "enable.partition.eof": True}
    ) as consumer:
        partitions = list(consumer.list_topics(topic, PATIENCE_S).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in partitions])
        found, ended = list[KafkaMessage](), 0
        while ended < len(partitions):
            (message,) = consumer.consume(1, PATIENCE_S)
            ended += message.error() is not None
            if message.error() is None:
                found.append(message)
    return found


def headers_of(message: KafkaMessage) -> dict[str, str]:
    headers: Any = message.headers()
    return {name: value.decode() for name, value in headers}


def topic_of(servers: str, topic: str) -> dict[str, Any]:
    """Return the objects of the messages of a topic."""
    return folded(
        [
            (int(headers_of(each)["tidings-sequence"]), json.loads(each.value() or b""))
            for each in messages_of(servers, topic)
        ]
    )


_MONGODB_MAIN = """
import de.bwaldvogel.mongo.*;
import de.bwaldvogel.mongo.backend.memory.MemoryBackend;
import de.bwaldvogel.mongo.bson.*;
import io.netty.channel.Channel;
import java.time.Instant;
import java.util.List;

class Main extends MemoryBackend {
    public Document handleCommand(Channel channel, String base, String command, Document query) {
        Document answer = super.handleCommand(channel, base, command, query);
        answer.putIfAbsent("operationTime", new BsonTimestamp(Instant.now(), 1));
        if (command.equalsIgnoreCase("isMaster")) answer.put("logicalSessionTimeoutMinutes", 30);
        return answer;
    }

    public static void main(String[] arguments) {
        MongoBackend backend = new Main().version(new MongoVersion() {
            public List<Integer> getVersionArray() { return List.of(5, 0, 0); }
            public int getWireVersion() { return 13; }
        });
        MongoServer server = new MongoServer(backend);
        server.enableOplog();
        server.bind("127.0.0.1", Integer.parseInt(arguments[0]));
    }
}
"""


@contextmanager
def running_mongodb(folder: Path) -> Iterator[str]:
    """Yield the address of an empty database of a server that speaks MongoDB's protocol, in memory.

    It has neither replica sets nor transactions, and keeps no rules and no TTL. Our start-up code
    adds the time and the sessions of a replica set, which the change source needs.
    """
    port, main = free_port(), folder / "Main.java"
    main.write_text(_MONGODB_MAIN)
    url = f"mongodb://127.0.0.1:{port}/objects"
    with (
        MongoClient[Any](url, serverSelectionTimeoutMS=500) as client,
        daemon(
            MONGODB.java(str(main), str(port)), folder / "log", lambda: client.admin.command("ping")
        ),
    ):
        yield url


def collection_of(url: str, collection: str) -> dict[str, Any]:
    """Return the objects in *collection* of a MongoDB."""
    with MongoClient[Any](url) as client:
        found = client.get_default_database()[collection].find({"namespace": {"$exists": True}})
        return {each["id"]: each["data"] for each in found}


def folded(told: Sequence[tuple[int, dict[str, Any]]]) -> dict[str, Any]:
    """Return the objects of the messages: for each the message with the highest sequence counts."""
    latest = {body["data"]["id"]: body for _, body in sorted(told, key=lambda each: each[0])}
    return {name: body["data"] for name, body in latest.items() if body["op"] != "delete"}

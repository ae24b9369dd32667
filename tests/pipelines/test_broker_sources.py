"""Topics and queues of brokers as sources, real ones; what each source does when it is killed."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pika  # type: ignore[import-untyped]
import pymysql
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from pika.exceptions import ChannelClosedByBroker  # type: ignore[import-untyped]
from tidings.pipelines import KafkaTopics, RabbitMQQueue
from tidings.pipelines.errors import Busy, WrongPipeline
from tidings.pipelines.ingest_source import BATCH, Batch, Reader
from tidings.pipelines.sinks.mysql import server_of
from tidings.pipelines.sources import kafka, rabbitmq

from tests.oplog.wire import until
from tests.pipelines.real_stores import make_topic
from tests.pipelines.test_running import TIDINGS, objects_of, projected, started
from tests.transporter.pipe import Pipe

KILLS = 2
FILE = """
from tidings.pipelines import Call, {name}, Pipeline, Source

pipeline = Pipeline("copy", Source("{url}", feed="{feed}"))
pipeline.read("app", {text})
pipeline.save("out", Call(lambda batch: None))
"""


class Broker(NamedTuple):
    """
    *text* is its source in a pipeline's file; *send* has it keep objects in their order, and
    *left* says how many of their messages a reader that was stopped has not acknowledged.
    """

    text: str
    send: Callable[[list[dict[str, Any]]], None]
    left: Callable[[], int] = lambda: 0


def known(kind: str) -> Iterator[str]:
    raise AssertionError(kind)


def opened(reader: Reader, standing: Any = ()) -> Iterator[Batch]:
    """Its batches that have something."""
    reader.open("p.app", json.loads(json.dumps(dict(standing))), known)
    return (each for each in reader.read() if each.operations or each.standing)


def taken(batches: Iterator[Batch], count: int) -> tuple[list[dict[str, Any]], Any]:
    """At least *count* operations, and where the reader stands then."""
    found, standing = list[dict[str, Any]](), None
    while len(found) < count:
        batch = next(batches)
        found += batch.operations
        standing = batch.standing or standing
    return found, standing


def send(servers: str, topic: str, *objects: dict[str, Any]) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for each in objects:
        producer.produce(topic, json.dumps(each), each["id"])
    assert producer.flush(60) == 0


def add_partitions(servers: str, topic: str, count: int) -> None:
    client = AdminClient({"bootstrap.servers": servers})
    client.create_partitions([NewPartitions(topic, count)])[topic].result(60)
    until(lambda: len(client.list_topics(topic, 60).topics[topic].partitions) == count)


def numbered(*numbers: int) -> list[dict[str, Any]]:
    return [{"id": str(each), "n": each} for each in numbers]


def test_a_topic_goes_on_where_it_was_left(kafka_servers: str) -> None:
    """In each partition, also in those that were added; nothing is committed to Kafka."""
    topic = make_topic(kafka_servers, "left", 2)
    send(kafka_servers, topic, *numbered(*range(BATCH + 20)))
    reader = KafkaTopics(kafka_servers, topic, type="video")
    found, left = taken(opened(reader), 1)
    reader.close()
    assert (len(found), left[topic]["mode"]) == (BATCH, "complete")
    assert sum(left[topic]["offsets"].values()) == BATCH

    add_partitions(kafka_servers, topic, 5)
    send(kafka_servers, topic, *numbered(*range(BATCH, BATCH + 100)))
    reader = KafkaTopics(kafka_servers, topic, type="video")
    rest, left = taken(opened(reader, left), 120)
    reader.close()
    assert {each["id"] for each in found + rest} == {str(n) for n in range(BATCH + 100)}
    assert (len(rest), len(left[topic]["offsets"])) == (120, 5)


def test_partitions_that_are_added_are_found(
    kafka_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it reads; what it has read already does not come again."""
    monkeypatch.setattr(kafka, "PARTITIONS_S", 0)
    topic = make_topic(kafka_servers, "added")
    reader = KafkaTopics(kafka_servers, topic, type="video")
    batches = opened(reader)
    send(kafka_servers, topic, *numbered(1))
    assert len(taken(batches, 1)[0]) == 1
    add_partitions(kafka_servers, topic, 3)
    send(kafka_servers, topic, *numbered(*range(30)))
    found, left = taken(batches, 30)
    reader.close()
    assert (len(found), len(left[topic]["offsets"])) == (30, 3)


def test_messages_that_are_no_longer_there_are_told(kafka_servers: str) -> None:
    """Those that were removed before they were read, and a topic that was made anew."""
    topic = make_topic(kafka_servers, "removed")
    send(kafka_servers, topic, *numbered(1, 2, 3))
    admin = AdminClient({"bootstrap.servers": kafka_servers})
    admin.delete_records([TopicPartition(topic, 0, 2)])[TopicPartition(topic, 0)].result(60)
    for offset in (1, 9):
        reader = KafkaTopics(kafka_servers, topic, type="video")
        with pytest.raises(WrongPipeline, match=f"removed, partition 0, offset {offset}: is no"):
            next(opened(reader, {topic: {"offsets": {"0": offset}}}))
        reader.close()
    reader = KafkaTopics(kafka_servers, topic, type="video")
    assert taken(opened(reader), 1)[0][0]["id"] == "3"
    reader.close()


def test_a_message_that_is_none_is_named(kafka_servers: str) -> None:
    """By its place."""
    topic = make_topic(kafka_servers, "poison")
    send(kafka_servers, topic, *numbered(1), {"id": "2" * 2000})
    reader = KafkaTopics(kafka_servers, topic, type="video")
    with pytest.raises(WrongPipeline, match="poison, partition 0, offset 1: id: holds at most"):
        next(opened(reader))
    reader.close()


class Queue:
    """A queue of a RabbitMQ, and what its owner does."""

    def __init__(self, url: str, name: str) -> None:
        self.url, self.name = url, name
        self.channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
        self.channel.confirm_delivery()

    def make(self, name: str, **arguments: Any) -> None:
        self.channel.queue_declare(name, durable=True, arguments=arguments)

    def send(self, *objects: dict[str, Any], ids: bool = True) -> None:
        for each in objects:
            options = {"message_id": f"{each['id']} {each['n']}"} if ids else {}
            body = json.dumps(each).encode()
            self.channel.basic_publish("", self.name, body, pika.BasicProperties(**options))

    def left(self, name: str) -> int:
        """How many messages nobody has acknowledged, once nobody reads."""
        return int(self.channel.queue_declare(name, passive=True).method.message_count)

    def reader(self, **options: Any) -> RabbitMQQueue:
        return RabbitMQQueue(self.url, self.name, type="video", **options)


@pytest.fixture
def queue(rabbitmq_url: str, request: pytest.FixtureRequest) -> Iterator[Queue]:
    made = Queue(rabbitmq_url, request.node.name)
    made.make(made.name, **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    yield made
    made.channel.connection.close()


def test_a_queue_is_acknowledged_behind_what_the_feed_has(queue: Queue) -> None:
    """What was not, comes again, and is left out where the feed has it."""
    queue.send(*numbered(*range(BATCH + 20)))
    reader = queue.reader()
    batches = opened(reader)
    first, left = taken(batches, 1)  # in the feed, and its reader is killed
    reader.close()
    assert (len(first), len(left[queue.name]["taken"])) == (BATCH, BATCH)
    until(lambda: queue.left(queue.name) == BATCH + 20)

    reader = queue.reader()
    batches = opened(reader, left)
    found, left = taken(batches, 20)
    assert [each["data"]["n"] for each in found] == list(range(BATCH, BATCH + 20))
    queue.send(*numbered(7))
    found, left = taken(batches, 1)
    assert (found[0]["data"]["n"], len(left[queue.name]["taken"])) == (7, 1)
    reader.close()
    until(lambda: queue.left(queue.name) == 1)


def test_what_comes_again_behind_something_older(queue: Queue) -> None:
    """Killed while half of it had come again: the rest is still known."""
    queue.send(*numbered(1, 2, 3))
    standing = {"mode": "complete", "taken": [identity(2), identity(3), identity(9)]}
    reader = queue.reader()
    reader.open("p.app", {queue.name: standing}, known)
    received = reader._received(reader._channel.consume(queue.name, inactivity_timeout=0.1))
    for each in received:
        each.method.redelivered = True
    assert [len(reader._told(each)) for each in received] == [1, 0, 0]
    assert reader._again == [identity(9)]
    received[0].method.redelivered = False
    assert (len(reader._told(received[0])), reader._again) == (1, [])
    reader.close()


def identity(number: int) -> str:
    body = json.dumps(numbered(number)[0]).encode()
    properties = pika.BasicProperties(message_id=f"{number} {number}")
    return rabbitmq._Delivery(None, properties, body).identity


def test_messages_without_an_id_come_again(queue: Queue) -> None:
    """All of them, in their order: of each object the last one counts, as before."""
    queue.send(*numbered(1, 2), ids=False)
    for _ in range(2):
        reader = queue.reader()
        found, left = taken(opened(reader), 2)
        assert [each["id"] for each in found] == ["1", "2"]
        assert left[queue.name]["taken"] == []
        reader.close()


def test_what_is_no_message_ends_the_reader_or_is_rejected(queue: Queue) -> None:
    """Where its queue has a dead letter exchange, it is there."""
    queue.make("dead")
    queue.send({"id": "", "n": 0}, *numbered(1), {"id": "", "n": 2})
    reader = queue.reader()
    with pytest.raises(WrongPipeline, match=f"{queue.name}, message  0: a document has no 'id'"):
        next(opened(reader))
    reader.close()
    reader = queue.reader(rejects=True)
    batches = opened(reader)
    assert [each["id"] for each in taken(batches, 1)[0]] == ["1"]
    queue.send(*numbered(3))
    taken(batches, 1)
    reader.close()
    until(lambda: queue.left(queue.name) == 1)
    assert queue.left("dead") == 2


def test_a_queue_that_is_not_there(queue: Queue) -> None:
    """At the start, or later; no secret is shown."""
    with pytest.raises(ChannelClosedByBroker, match="no queue 'missing'"):
        opened(RabbitMQQueue(queue.url, "missing"))
    with pytest.raises(WrongPipeline, match="queue must be that of a queue"):
        RabbitMQQueue(queue.url, "")
    assert str(RabbitMQQueue("amqp://me:s3cret@host/x", "in")) == "rabbitmq in at host"
    reader = queue.reader()
    batches = opened(reader)
    queue.send(*numbered(1))
    taken(batches, 1)
    queue.channel.queue_delete(queue.name)
    with pytest.raises(Busy, match="the queue was deleted"):
        next(batches)
    reader.close()


@pytest.fixture
def rabbitmq_broker(rabbitmq_url: str, pipe: Pipe) -> Iterator[Broker]:
    made = Queue(rabbitmq_url, pipe.feed)
    made.make(made.name)
    text = f"RabbitMQQueue({rabbitmq_url!r}, {pipe.feed!r}, type='video')"
    yield Broker(text, lambda objects: made.send(*objects), lambda: made.left(made.name))
    made.channel.connection.close()


@pytest.fixture
def mysql_broker(mariadb_url: str, pipe: Pipe) -> Iterator[Broker]:
    put = f"INSERT INTO {pipe.feed} VALUES (%s, %s) ON DUPLICATE KEY UPDATE n = VALUES(n)"
    with pymysql.connect(**server_of(mariadb_url)[0]) as connection:
        cursor = connection.cursor()
        cursor.execute(f"CREATE TABLE {pipe.feed} (id varchar(9) PRIMARY KEY, n int)")

        def send(objects: list[dict[str, Any]]) -> None:
            cursor.executemany(put, [(each["id"], each["n"]) for each in objects])

        text = f"MySQLTable({mariadb_url!r}, {pipe.feed!r}, type='video')"
        yield Broker(text, send)


@pytest.fixture
def kafka_broker(kafka_servers: str, pipe: Pipe) -> Broker:
    topic = make_topic(kafka_servers, pipe.feed, 3)
    text = f"KafkaTopics({kafka_servers!r}, {topic!r}, type='video')"
    return Broker(text, lambda objects: send(kafka_servers, topic, *objects))


@pytest.mark.parametrize("fixture", ["kafka_broker", "rabbitmq_broker", "mysql_broker"])
def test_a_killed_reader_loses_no_message(
    pipe: Pipe, fixture: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """SIGKILL while messages come: the feed ends with the last one of each object."""
    broker: Broker = request.getfixturevalue(fixture)
    file = tmp_path / "pipeline.py"
    name = broker.text.partition("(")[0]
    file.write_text(FILE.format(name=name, text=broker.text, url=pipe.url, feed=pipe.feed))
    command = [*TIDINGS, "pipeline", "run", str(file), "--json", "--worker", "w"]
    sender = Sender(broker)
    with sender:
        for _ in range(KILLS):
            end = pipe.api.log()["current"]
            with started(command, subprocess.DEVNULL):
                until(partial(grown, pipe, end), within_s=90)
                threading.Event().wait(0.3)
    with started(command, subprocess.DEVNULL) as process:
        until(partial(holds, pipe, sender.latest), within_s=90)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    until(lambda: projected(pipe), within_s=60)
    assert holds(pipe, sender.latest)
    assert broker.left() == 0


def grown(pipe: Pipe, end: str) -> bool:
    """Whether the feed has more than up to *end*."""
    return bool(pipe.api.log()["current"] != end)


def holds(pipe: Pipe, latest: dict[str, int]) -> bool:
    found = objects_of(pipe)
    found.pop("copy.app", None)
    return {name: each["data"]["n"] for name, each in found.items()} == latest


class Sender:
    """Until the block ends objects change, in a thread of its own; *latest* is what they are."""

    def __init__(self, broker: Broker) -> None:
        self.latest: dict[str, int] = {}
        self._broker, self._enough = broker, threading.Event()
        self._thread = threading.Thread(target=self._send)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *failure: object) -> None:
        self._enough.set()
        self._thread.join()

    def _send(self) -> None:
        chance, number = random.Random(7), 0
        while not self._enough.wait(0.05):
            objects = []
            for _ in range(20):
                number += 1
                name = f"x{chance.randrange(200)}"
                objects.append({"id": name, "n": number})
                self.latest[name] = number
            self._broker.send(objects)

"""Real topics and queues of brokers as sources, and each source's recovery when it is killed."""

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
import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from pika.exceptions import ChannelClosedByBroker  # type: ignore[import-untyped]

from tests.compat.oplog.wire import until
from tests.compat.transporter.pipe import Pipe
from tests.unit.pipelines.followed import Followed, known
from tests.unit.pipelines.real_stores import make_topic
from tests.unit.pipelines.test_running import (
    KILLS,
    TIDINGS,
    objects_of,
    projected,
    repeated,
    started,
)
from tidings.pipelines import KafkaTopics, RabbitMQQueue, kafka, rabbitmq
from tidings.pipelines.ingest_source import BATCH, Batch, Reader
from tidings.pipelines.messages import READER, Busy, WrongPipeline

FEW_KILLS = 2
FILE = """
from tidings.pipelines import Call, {names}, Pipeline, Source

pipeline = Pipeline("copy", Source("{url}", feed="{feed}"))
pipeline.save("out", Call(lambda batch: None))
"""


class Broker(NamedTuple):
    """*text* is its source in a pipeline's file; *send* has it keep objects in their order, and
    *left* says how many of their messages a reader that was stopped has not acknowledged.
    """

    name: str
    text: str
    send: Callable[[list[dict[str, Any]]], None]
    left: Callable[[], int] = lambda: 0


def opened(reader: Reader, state: Any = ()) -> Iterator[Batch]:
    """Return the batches with operations or a position."""
    reader.open("p.app", json.loads(json.dumps(dict(state))), known)
    return (each for each in reader.read() if each.operations or each.state)


def take_operations(batches: Iterator[Batch], count: int) -> tuple[list[dict[str, Any]], Any]:
    """Return at least *count* operations, and the reader's position after them."""
    found, state = list[dict[str, Any]](), None
    while len(found) < count:
        batch = next(batches)
        found += batch.operations
        state = batch.state or state
    return found, state


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
    """This holds for each partition, also for added ones; nothing is committed to Kafka."""
    topic = make_topic(kafka_servers, "left", 2)
    send(kafka_servers, topic, *numbered(*range(BATCH + 20)))
    reader = KafkaTopics(kafka_servers, topic, type="video")
    found, left = take_operations(opened(reader), 1)
    reader.close()
    count = len(found)  # Kafka sends what it has, so a batch may be smaller
    assert (count <= BATCH, left[topic]["mode"]) == (True, "complete")
    assert sum(left[topic]["offsets"].values()) == count

    add_partitions(kafka_servers, topic, 5)
    send(kafka_servers, topic, *numbered(*range(BATCH, BATCH + 100)))
    reader = KafkaTopics(kafka_servers, topic, type="video")
    rest, left = take_operations(opened(reader, left), BATCH + 120 - count)
    reader.close()
    assert {each["id"] for each in found + rest} == {str(n) for n in range(BATCH + 100)}
    assert (len(rest), len(left[topic]["offsets"])) == (BATCH + 120 - count, 5)


def test_partitions_that_are_added_are_found(
    kafka_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are found while it reads; messages that it has read are not repeated."""
    monkeypatch.setattr(kafka, "PARTITIONS_S", 0)
    topic = make_topic(kafka_servers, "added")
    reader = KafkaTopics(kafka_servers, topic, type="video")
    batches = opened(reader)
    send(kafka_servers, topic, *numbered(1))
    assert len(take_operations(batches, 1)[0]) == 1
    add_partitions(kafka_servers, topic, 3)
    send(kafka_servers, topic, *numbered(*range(30)))
    found, left = take_operations(batches, 30)
    reader.close()
    assert (len(found), len(left[topic]["offsets"])) == (30, 3)


def test_messages_that_are_no_longer_there_are_told(kafka_servers: str) -> None:
    """It is an error if messages were removed before they were read, or a topic was recreated."""
    topic = make_topic(kafka_servers, "removed")
    send(kafka_servers, topic, *numbered(1, 2, 3))
    admin = AdminClient({"bootstrap.servers": kafka_servers})
    admin.delete_records([TopicPartition(topic, 0, 2)])[TopicPartition(topic, 0)].result(60)
    for offset in (1, 9):
        reader = KafkaTopics(kafka_servers, topic, type="video")
        with pytest.raises(WrongPipeline, match=f"partition 0, offset {offset}: was removed"):
            next(opened(reader, {topic: {"offsets": {"0": offset}}}))
        reader.close()
    reader = KafkaTopics(kafka_servers, topic, type="video")
    assert take_operations(opened(reader), 1)[0][0]["id"] == "3"
    reader.close()


@pytest.mark.parametrize("runs", [False, True])
@pytest.mark.parametrize("count", [2, 3, 5])
def test_a_topic_that_was_created_again_is_read_from_its_beginning(
    kafka_servers: str, monkeypatch: pytest.MonkeyPatch, count: int, runs: bool
) -> None:
    """Offsets of the earlier topic do not count, however many messages the new one has."""
    monkeypatch.setattr(kafka, "PARTITIONS_S", 0)
    topic = make_topic(kafka_servers, f"again{count}{runs}")
    send(kafka_servers, topic, *numbered(1, 2, 3))
    followed = Followed(lambda: KafkaTopics(kafka_servers, topic, type="video"), "p.r")
    followed.start().until_ids("1", "2", "3")
    if not runs:
        followed.close()
    admin = AdminClient({"bootstrap.servers": kafka_servers})
    admin.delete_topics([topic])[topic].result(60)
    until(lambda: topic not in admin.list_topics(timeout=60).topics)
    make_topic(kafka_servers, topic)
    new = [str(each) for each in range(11, 11 + count)]
    send(kafka_servers, topic, *numbered(*map(int, new)))
    if not runs:
        followed.start()
    while set(new) - followed.objects.keys():
        try:
            followed.until(lambda: set(new) <= followed.objects.keys())
        except (WrongPipeline, KafkaException):  # the pipeline opens the reader again
            followed.start()
    followed.close()


def test_a_position_in_kafka_of_an_earlier_release_is_kept(kafka_servers: str) -> None:
    """It has no id of its topic, and gets it."""
    topic = make_topic(kafka_servers, "earlier")
    send(kafka_servers, topic, *numbered(1, 2))
    left = {topic: {"mode": "complete", "offsets": {"0": 1}}}
    reader = KafkaTopics(kafka_servers, topic, type="video")
    found, state = take_operations(opened(reader, left), 1)
    reader.close()
    assert ([each["id"] for each in found], len(state[topic]["topic"])) == (["2"], 22)


def test_a_message_that_is_none_is_named(kafka_servers: str) -> None:
    """The error has its position; the messages before it are in the feed."""
    topic = make_topic(kafka_servers, "poison")
    send(kafka_servers, topic, *numbered(1), {"id": "2" * 2000}, *numbered(3))
    reader = KafkaTopics(kafka_servers, topic, type="video")
    batches = opened(reader)
    found, left = take_operations(batches, 1)
    assert ([each["id"] for each in found], left[topic]["offsets"]) == (["1"], {"0": 1})
    with pytest.raises(WrongPipeline, match="poison, partition 0, offset 1: id: holds at most"):
        next(batches)
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
        """Return the number of unacknowledged messages, when no reader is connected."""
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
    """Messages that were not acknowledged are delivered again, and skipped if the feed has them."""
    queue.send(*numbered(*range(BATCH + 20)))
    reader = queue.reader()
    batches = opened(reader)
    first, left = take_operations(batches, 1)  # in the feed, and its reader is killed
    reader.close()
    assert (len(first), len(left[queue.name]["taken"])) == (BATCH, BATCH)
    until(lambda: queue.left(queue.name) == BATCH + 20)

    reader = queue.reader()
    batches = opened(reader, left)
    found, left = take_operations(batches, 20)
    assert [each["data"]["n"] for each in found] == list(range(BATCH, BATCH + 20))
    queue.send(*numbered(7))
    found, left = take_operations(batches, 1)
    assert (found[0]["data"]["n"], len(left[queue.name]["taken"])) == (7, 1)
    reader.close()
    until(lambda: queue.left(queue.name) == 1)


def test_what_comes_again_behind_something_older(queue: Queue) -> None:
    """A reader is killed when half of the messages were redelivered: the rest is still known."""
    queue.send(*numbered(1, 2, 3))
    state = {"mode": "complete", "taken": [identity(2), identity(3), identity(9)]}
    reader = queue.reader()
    reader.open("p.app", {queue.name: state}, known)
    received = reader._receive(reader._channel.consume(queue.name, inactivity_timeout=0.1))
    for each in received:
        each.method.redelivered = True
    assert [len(reader._operations_of(each)) for each in received] == [1, 0, 0]
    assert reader._again == [identity(9)]
    received[0].method.redelivered = False
    assert (len(reader._operations_of(received[0])), reader._again) == (1, [])
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
        found, left = take_operations(opened(reader), 2)
        assert [each["id"] for each in found] == ["1", "2"]
        assert left[queue.name]["taken"] == []
        reader.close()


def test_what_is_no_message_ends_the_reader_or_is_rejected(queue: Queue) -> None:
    """The messages before it are read; with a dead letter exchange a rejected message goes
    there."""
    queue.make("dead")
    queue.send(*numbered(0), {"id": "", "n": 0}, *numbered(1), {"id": "", "n": 2})
    reader = queue.reader()
    batches = opened(reader)
    assert [each["id"] for each in take_operations(batches, 1)[0]] == ["0"]
    with pytest.raises(WrongPipeline, match=f"{queue.name}, message  0: a document has no 'id'"):
        next(batches)
    reader.close()
    until(lambda: queue.left(queue.name) == 3)
    reader = queue.reader(rejects=True)
    found, left = take_operations(opened(reader), 1)  # in the feed, and its reader is killed
    reader.close()
    assert ([each["id"] for each in found], len(left[queue.name]["taken"])) == (["1"], 1)
    reader = queue.reader(rejects=True)
    batches = opened(reader, left)
    for number in (3, 4):
        queue.send(*numbered(number))
        assert [each["data"]["n"] for each in take_operations(batches, 1)[0]] == [number]
    reader.close()
    until(lambda: queue.left(queue.name) == 1)
    assert queue.left("dead") == 2


def test_what_was_rejected_is_of_its_connection(queue: Queue) -> None:
    """The feed did not take its batch: the same number is another message's next time."""
    queue.make("dead")
    queue.channel.queue_purge("dead")
    queue.send({"id": "", "n": 0}, *numbered(1))
    reader = queue.reader(rejects=True)
    assert len(take_operations(opened(reader), 1)[0]) == 1
    reader.close()
    until(lambda: queue.left(queue.name) == 2)
    queue.channel.basic_get(queue.name, auto_ack=True)
    batches = opened(reader)
    assert [each["id"] for each in take_operations(batches, 1)[0]] == ["1"]
    queue.send(*numbered(2))
    take_operations(batches, 1)
    reader.close()
    assert queue.left("dead") == 0


def test_a_queue_is_of_one_reader(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another reader waits, then starts over; a redelivered message comes before newer ones."""
    queue.send(*numbered(1))
    first, second = queue.reader(), queue.reader()
    take_operations(opened(first), 1)
    second.open("p.app", {}, known)
    batches = second.read()
    assert next(batches) == Batch()
    queue.send(*numbered(2))
    assert next(batches) == Batch()
    first.close()
    with pytest.raises(Busy, match="another reader uses the queue, or used it"):
        list(batches)
    second.close()
    assert [each["id"] for each in take_operations(opened(second), 2)[0]] == ["1", "2"]
    monkeypatch.setattr(rabbitmq, "HELD_S", 0)
    with pytest.raises(Busy, match="another reader uses the queue"):
        next(opened(first))
    for each in (first, second):
        each.close()


def test_a_queue_that_is_not_there(queue: Queue) -> None:
    """It may be missing at the start, or later; no secret is shown."""
    with pytest.raises(ChannelClosedByBroker, match="no queue 'missing'"):
        opened(RabbitMQQueue(queue.url, "missing"))
    with pytest.raises(WrongPipeline, match="queue must be the name of a queue"):
        RabbitMQQueue(queue.url, "")
    assert str(RabbitMQQueue("amqp://me:s3cret@host/x", "in")) == "rabbitmq in at host"
    reader = queue.reader()
    batches = opened(reader)
    queue.send(*numbered(1))
    take_operations(batches, 1)
    queue.channel.queue_delete(queue.name)
    with pytest.raises(Busy, match="the queue was deleted"):
        next(batches)
    reader.close()


def _rabbitmq(url: str, name: str) -> Broker:
    made = Queue(url, name)
    made.make(name)
    text = f"RabbitMQQueue({url!r}, {name!r}, type='video')"
    return Broker("rabbitmq", text, lambda sent: made.send(*sent), lambda: made.left(name))


def _kafka(servers: str, name: str) -> Broker:
    make_topic(servers, name, 3)
    text = f"KafkaTopics({servers!r}, {name!r}, type='video')"
    return Broker("kafka", text, lambda sent: send(servers, name, *sent))


def _files(path: Path) -> Broker:
    def send(objects: list[dict[str, Any]]) -> None:
        with path.open("a") as file:
            file.writelines(f"{json.dumps(each)}\n" for each in objects)

    return Broker("files", f"Files({str(path)!r}, type='video', follow=True)", send)


@pytest.fixture
def brokers(pipe: Pipe, kafka_servers: str, rabbitmq_url: str, tmp_path: Path) -> list[Broker]:
    """Return one broker of each kind, and a file that grows."""
    made = [_kafka(kafka_servers, pipe.feed), _rabbitmq(rabbitmq_url, pipe.feed)]
    return [*made, _files(tmp_path / "in.json")]


@pytest.mark.timeout(60 * (KILLS + 10))
def test_killed_at_any_time_no_source_loses_a_change(
    pipe: Pipe, brokers: list[Broker], tmp_path: Path
) -> None:
    """SIGKILL while objects change in each of them: the feed ends with the last of each."""
    file = tmp_path / "pipeline.py"
    names = ", ".join(each.text.partition("(")[0] for each in brokers)
    reads = [f'pipeline.read("{each.name}", {each.text})\n' for each in brokers]
    file.write_text(FILE.format(names=names, url=pipe.url, feed=pipe.feed) + "".join(reads))
    command = [*TIDINGS, "pipeline", "run", str(file), "--json", "--worker", "w"]
    owner = Owner(brokers)
    with repeated(owner.change_some, every_s=0.05):
        for _ in range(KILLS or FEW_KILLS):
            before = sources_of(pipe)
            with started(command, subprocess.DEVNULL):
                until(partial(grown, pipe, before, brokers), within_s=90)
                threading.Event().wait(owner.chance.random() / 2)
    with started(command, subprocess.DEVNULL) as process:
        owner.change_some()  # this process alone can have read it
        until(lambda: holds(pipe, owner.latest), within_s=90)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    until(lambda: projected(pipe), within_s=60)
    assert holds(pipe, owner.latest)
    assert [each.left() for each in brokers] == [0] * len(brokers)


def sources_of(pipe: Pipe) -> dict[str, Any]:
    """Return the position of each source."""
    found = objects_of(pipe)
    return {name: each for name, each in found.items() if each["type"] == READER}


def grown(pipe: Pipe, before: dict[str, Any], brokers: list[Broker]) -> bool:
    """Return True if the feed has more of each source than *before*."""
    after = sources_of(pipe)
    names = [f"copy.{each.name}" for each in brokers]
    return all(name in after and after[name] != before.get(name) for name in names)


def holds(pipe: Pipe, latest: dict[str, int]) -> bool:
    found = objects_of(pipe)
    rows = {name: each["data"] for name, each in found.items() if each["type"] != READER}
    return {name: each["n"] for name, each in rows.items()} == latest


class Owner:
    """Changes objects of all *brokers*; *latest* is what they are."""

    def __init__(self, brokers: list[Broker]) -> None:
        self.latest: dict[str, int] = {}
        self._brokers, self.chance, self._number = brokers, random.Random(7), 0

    def change_some(self) -> None:
        for broker in self._brokers:
            sent: list[dict[str, Any]] = []
            for _ in range(20):
                self._number += 1
                name = f"{broker.name}{self.chance.randrange(100)}"
                sent.append({"id": name, "n": self._number})
            self.latest |= {each["id"]: each["n"] for each in sent}
            broker.send(sent)

"""Topics and queues of brokers as sources, real ones."""

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

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from tidings.pipelines import KafkaTopics
from tidings.pipelines.errors import WrongPipeline
from tidings.pipelines.ingest_source import BATCH, Batch, Reader
from tidings.pipelines.sources import kafka

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
    """*text* is its source in a pipeline's file; *send* has it keep objects in their order."""

    text: str
    send: Callable[[list[dict[str, Any]]], None]


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


@pytest.fixture
def kafka_broker(kafka_servers: str, pipe: Pipe) -> Broker:
    topic = make_topic(kafka_servers, pipe.feed, 3)
    text = f"KafkaTopics({kafka_servers!r}, {topic!r}, type='video')"
    return Broker(text, lambda objects: send(kafka_servers, topic, *objects))


@pytest.mark.parametrize("fixture", ["kafka_broker"])
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

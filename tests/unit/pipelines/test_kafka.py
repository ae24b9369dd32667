"""Kafka as a store, a real one."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import KafkaException

from tests.unit.pipelines.messages import RESET, video
from tests.unit.pipelines.real_stores import headers_of, make_topic, messages_of
from tidings.client.errors import Unwritten
from tidings.pipelines import Kafka, kafka
from tidings.pipelines.messages import Busy, WrongPipeline

# A topic that is not there is known at once.
SOON: dict[str, str | int] = {"topic.metadata.propagation.max.ms": 200}


def opened(servers: str, topic: str, **options: str | int) -> Kafka:
    sink = Kafka(servers, topic, options=options)
    sink.open("p.topic")
    return sink


def test_a_partition_has_the_messages_of_an_object_in_their_order(kafka_servers: str) -> None:
    """They have headers to compare them by; a repeated message has the same id and partition."""
    sink = opened(kafka_servers, make_topic(kafka_servers, "ordered", 3))
    batch = [video("update", name, page) for page, name in enumerate("abcd" * 40)]
    sink.write([RESET], 1)
    for _ in range(2):
        sink.write(batch, 1)
    sink.close()
    found = messages_of(kafka_servers, "ordered")
    assert len({each.partition() for each in found}) > 1
    for name in "abcd":
        of_object = [each for each in found if each.key() == f"video/{name}".encode()]
        assert len({each.partition() for each in of_object}) == 1
        told = [json.loads(each.value() or b"")["id"] for each in of_object]
        assert told == [each.id for each in batch if each.key == name] * 2
        first, again = of_object[0], of_object[40]
        assert first.headers() == again.headers()
    headers = next(headers_of(each) for each in found if each.key() == b"video/b")
    assert len(headers.pop("tidings-id")) == 57
    assert headers == {
        "tidings-op": "update",
        "tidings-object": "video/b",
        "tidings-place": batch[1].id,
        "tidings-sequence": str(1 << 23),
    }
    assert len({headers_of(each)["tidings-id"] for each in found}) == len(batch)


def test_an_object_has_the_partition_that_java_gives_it(kafka_servers: str) -> None:
    """Kafka's own clients use murmur2 of the key; here it gives partition 2 of 3."""
    sink = opened(kafka_servers, make_topic(kafka_servers, "partitioned", 3))
    sink.write([video("insert", "a")], 1)
    sink.close()
    (found,) = messages_of(kafka_servers, "partitioned")
    assert found.partition() == (murmur2(b"video/a") & 0x7FFFFFFF) % 3


def murmur2(data: bytes) -> int:
    """Compute the hash as org.apache.kafka.common.utils.Utils does."""
    many, mask = 0x5BD1E995, 0xFFFFFFFF
    mixed, rest = 0x9747B28C ^ len(data), len(data) % 4
    for at in range(0, len(data) - rest, 4):
        part = int.from_bytes(data[at : at + 4], "little") * many & mask
        mixed = mixed * many & mask ^ (part ^ part >> 24) * many & mask
    if rest:
        mixed = (mixed ^ int.from_bytes(data[-rest:], "little")) * many & mask
    mixed = (mixed ^ mixed >> 13) * many & mask
    return mixed ^ mixed >> 15


def test_topics_by_type(kafka_servers: str) -> None:
    """The error for a type without a topic has its index; the messages before it are written."""
    make_topic(kafka_servers, "feed.video")
    sink = opened(kafka_servers, "feed.{namespace}", **SOON)
    batch = [video("update", name, page) for page, name in enumerate("abc")]
    batch[1].namespace = "user"
    with pytest.raises(Unwritten, match="Unknown topic") as raised:
        sink.write(batch, 1)
    assert raised.value.index == 1
    sink.close()
    assert messages_of(kafka_servers, "feed.video")[0].key() == b"video/a"


def test_what_is_too_large(kafka_servers: str) -> None:
    """A message above the client's limit is reported by its index; a refusal by a topic fails the
    whole batch.
    """
    topic = make_topic(kafka_servers, "small", settings={"max.message.bytes": "5000"})
    sink = opened(kafka_servers, topic, **{"message.max.bytes": 20_000})
    noise = "".join(map(chr, range(200, 6200)))
    batch = [video("insert", "a"), video("insert", "b", 1, noise * 2), video("insert", "c")]
    with pytest.raises(Unwritten, match="Message size too large") as raised:
        sink.write(batch, 1)
    assert raised.value.index == 1
    batch[1].data["data"] = noise
    with pytest.raises(Busy, match="size too large"):
        sink.write(batch, 1)
    with pytest.raises(Unwritten, match="size too large"):
        sink.write(batch[1:2], 1)  # alone it is known to be at fault
    sink.write(batch[2:], 1)
    sink.close()
    assert {each.key() for each in messages_of(kafka_servers, "small")} == {b"video/a", b"video/c"}


def test_a_broker_that_is_away_blames_no_message(
    kafka_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that cannot be opened, and one that was."""
    monkeypatch.setattr(kafka, "ANSWER_S", 1)
    with pytest.raises(KafkaException, match="_TRANSPORT"):
        Kafka("127.0.0.1:1").open("p.topic")
    sink = Kafka("127.0.0.1:1", "{namespace}")
    sink.open("p.topic")
    with pytest.raises(Busy, match=r"kafka \{namespace\} at 127\.0\.0\.1:1: "):
        sink.write([video("insert", "a")], 1)
    sink.close()


def test_what_kafka_needs(kafka_servers: str) -> None:
    """It needs servers and an existing topic; other options are librdkafka's."""
    with pytest.raises(WrongPipeline, match="servers must be host:port"):
        Kafka("")
    with pytest.raises(WrongPipeline, match="at least one topic"):
        Kafka("host:9092", "")
    secret: dict[str, str | int] = {"sasl.password": "s3cret"}
    assert str(Kafka("host:9092", "video", options=secret)) == "kafka video at host:9092"
    with pytest.raises(KafkaException, match="Unknown topic"):
        opened(kafka_servers, "missing")
    with pytest.raises(KafkaException, match="No such configuration property"):
        opened(kafka_servers, "missing", cofnig=1)

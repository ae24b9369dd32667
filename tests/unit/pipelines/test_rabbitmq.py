"""RabbitMQ as a store, a real one."""

from __future__ import annotations

import json
from typing import Any

import pika  # type: ignore[import-untyped]
import pytest
from pika.exceptions import (  # type: ignore[import-untyped]
    AMQPConnectionError,
    AMQPError,
    ChannelClosedByBroker,
)

from tests.unit.pipelines.messages import RESET
from tidings.client.errors import Unwritten
from tidings.pipelines import Message, RabbitMQ
from tidings.pipelines.messages import Busy, WrongPipeline


def message(name: str, page: int, op: str = "update", kind: str = "video", **more: Any) -> Message:
    data = {"type": kind, "id": name, **more}
    return Message(op, kind, "", data, f"65650000{page:010x}000000")


class Broker:
    """The operations of the owner of a queue, and of its readers."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.channel = pika.BlockingConnection(pika.URLParameters(url)).channel()

    def queue(self, name: str, **arguments: Any) -> str:
        self.channel.queue_declare(name, durable=True, arguments=arguments)
        return name

    def taken(self, queue: str) -> list[tuple[Any, dict[str, Any]]]:
        """Properties and body of each message, taken out."""
        found = []
        while (got := self.channel.basic_get(queue, auto_ack=True))[0]:
            found.append((got[1], json.loads(got[2])))
        return found


@pytest.fixture
def broker(rabbitmq_url: str) -> Any:
    found = Broker(rabbitmq_url)
    yield found
    found.channel.connection.close()


def opened(url: str, key: str, **options: Any) -> RabbitMQ:
    sink = RabbitMQ(url, key, **options)
    sink.open("p.queue")
    return sink


def test_a_queue_has_the_messages_in_their_order(broker: Broker) -> None:
    """They are persistent, with headers to sort and compare by; a repeated message has the same
    id."""
    sink = opened(broker.url, broker.queue("ordered"))
    batch = [message(name, page) for page, name in enumerate("aba" * 40)]
    sink.write([RESET], 1)
    for _ in range(2):
        sink.write(batch, 1)
    sink.close()
    found = broker.taken("ordered")
    assert [body["id"] for _, body in found] == [each.id for each in batch] * 2
    first, again = found[1][0], found[1 + len(batch)][0]
    assert (first.message_id, first.headers) == (again.message_id, again.headers)
    assert (first.delivery_mode, first.content_type, first.type) == (
        2,
        "application/json",
        "update",
    )
    assert first.headers == {
        "tidings-op": "update",
        "tidings-object": "video/b",
        "tidings-place": batch[1].id,
        "tidings-sequence": str(1 << 23),
    }
    assert len({properties.message_id for properties, _ in found}) == len(batch)


def test_an_exchange_routes_by_type(broker: Broker) -> None:
    """The error for a type without a bound queue has its index; the messages before it are
    written."""
    broker.channel.exchange_declare("objects", "topic", durable=True)
    broker.channel.queue_bind(broker.queue("videos"), "objects", "feed.video")
    sink = opened(broker.url, "feed.{namespace}", exchange="objects")
    batch = [message("a", 1), message("b", 2, kind="user"), message("c", 3)]
    with pytest.raises(Unwritten, match=r"no queue is bound for the key 'feed\.user'") as raised:
        sink.write(batch, 1)
    assert raised.value.index == 1
    sink.write(batch[2:], 1)
    sink.close()
    assert "c" in {body["data"]["id"] for _, body in broker.taken("videos")}


def test_a_queue_that_is_deleted_blames_no_message(broker: Broker) -> None:
    """The same holds for a full queue."""
    sink = opened(broker.url, broker.queue("deleted"))
    broker.channel.queue_delete("deleted")
    with pytest.raises(Busy, match=r"rabbitmq deleted at 127\.0\.0\.1: no queue is bound"):
        sink.write([message("a", 1)], 1)
    sink.close()
    full = {"x-max-length": 1, "x-overflow": "reject-publish"}
    sink = opened(broker.url, broker.queue("full", **full))
    with pytest.raises(Busy, match="rejected a message"):
        sink.write([message("a", page) for page in range(3)], 1)
    sink.close()


def test_a_channel_that_was_closed_is_opened_again(broker: Broker) -> None:
    """The batch fails, and the store that is opened again writes it."""
    broker.channel.exchange_declare("gone", "fanout")
    sink = opened(broker.url, "key", exchange="gone")
    broker.channel.exchange_delete("gone")
    for _ in range(2):
        with pytest.raises(AMQPError):
            sink.write([message("a", 1)], 1)
    broker.channel.exchange_declare("gone", "fanout")
    broker.channel.queue_bind(broker.queue("back"), "gone")
    sink.open("p.queue")
    sink.write([message("a", 1)], 1)
    sink.close()
    assert len(broker.taken("back")) == 1


def test_what_json_cannot_hold_is_told_by_its_place(broker: Broker) -> None:
    """The messages before it are written, and none after it."""
    sink = opened(broker.url, broker.queue("refused"))
    with pytest.raises(Unwritten, match="TypeError") as raised:
        sink.write([message("a", 1), message("b", 2, tags={1}), message("c", 3)], 1)
    sink.close()
    assert raised.value.index == 1
    assert [body["data"]["id"] for _, body in broker.taken("refused")] == ["a"]


def test_what_rabbitmq_needs(rabbitmq_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """It needs an address and a key; a missing queue is an error at once, and no secret is
    shown."""
    for address in ("host", "http://host", "amqp://", "amqp://host?heartbeat=x"):
        with pytest.raises(WrongPipeline, match="url must be amqp://"):
            RabbitMQ(address)
    with pytest.raises(WrongPipeline, match="key must be the name of a queue or"):
        RabbitMQ("amqp://host", "")
    shown = str(RabbitMQ("amqp://me:secret@host/x", "video", exchange="feed"))
    assert shown == "rabbitmq exchange feed by video at host"
    with pytest.raises(ChannelClosedByBroker, match="no queue 'missing'"):
        opened(rabbitmq_url, "missing")
    with pytest.raises(ChannelClosedByBroker, match="no exchange 'missing'"):
        opened(rabbitmq_url, "key", exchange="missing")
    for address in ("amqp://me:secret@127.0.0.1:1", rabbitmq_url.replace(":guest", ":secret")):
        with pytest.raises(AMQPConnectionError) as raised:
            opened(address, "x")
        assert "secret" not in f"{raised.value!r} {caplog.text}"

"""Read a queue of RabbitMQ."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pika  # type: ignore[import-untyped]

from tidings.lineage.datasets import Dataset
from tidings.pipelines.errors import Busy, WrongPipeline
from tidings.pipelines.ingest_source import BATCH, COMPLETE, Batch, Known, Standing, batches
from tidings.pipelines.sinks.rabbitmq import broker_of, parameters_of
from tidings.pipelines.sources.envelopes import PLAIN, Messages, Read, until_wrong

LOOK_S = 0.3  # how long to wait for a batch: a message is in the feed within a second
HELD_S = 180.0  # how long to wait for another reader: a dead one keeps the queue for two heartbeats
_IDENTITY_CHARS = 16  # 64 bits: unique within a batch


class _Delivery(NamedTuple):
    method: Any
    properties: Any
    body: bytes

    @property
    def identity(self) -> str:
        """Return an id that is equal for each delivery; "" if the publisher set no message id."""
        if not self.properties.message_id:
            return ""
        told = self.properties.message_id.encode() + b"\0" + self.body
        return hashlib.sha256(told).hexdigest()[:_IDENTITY_CHARS]


class RabbitMQQueue:
    """
    A source of the messages of *queue* of the broker at *url*.

    Each is acknowledged when the feed has it. A redelivered message is recognized by its message id
    and skipped. A message that cannot be read ends the reader. With *rejects* it is rejected
    instead: a queue with a dead letter exchange forwards it there, and another one drops it.
    *envelope*, *type* and *key* are those of `Messages`; a RabbitMQ message has no key.

    Raises:
        WrongPipeline: *url* is not an AMQP address, *queue* is empty, or the envelope is unknown.
    """

    def __init__(
        self,
        url: str,
        queue: str,
        *,
        envelope: str | Read = PLAIN,
        type: str = "",
        key: str = "id",
        rejects: bool = False,
    ) -> None:
        if not queue:
            raise WrongPipeline("queue must be that of a queue, not ''")
        self._parameters, self._queue, self._rejects = parameters_of(url), queue, rejects
        self._messages = Messages(envelope, type, key)
        self._connection: pika.BlockingConnection | None = None
        self._again = list[str]()  # in the feed, but possibly not acknowledged
        self._rejected = set[int]()  # delivery tags, until the batch is in the feed

    def open(self, name: str, standing: Standing, known: Known) -> None:
        """
        Connect, and resume at *standing*.

        Raises:
            pika.exceptions.AMQPError: the broker is not available, rejects the user, or does not
                have the queue.
        """
        self._again = list(standing.get(self._queue, {}).get("taken", ()))
        self._rejected.clear()  # a tag is valid only in its channel
        self._connection = pika.BlockingConnection(self._parameters)
        self._channel = self._connection.channel()
        self._channel.basic_qos(prefetch_count=BATCH)
        self._channel.queue_declare(self._queue, passive=True)

    def read(self) -> Iterator[Batch]:
        """
        Yield batches of operations, and an empty one if nothing is new.

        Raises:
            WrongPipeline: a message cannot be read; those before it were read.
            pika.exceptions.AMQPError: the connection broke.
            Busy: the queue was deleted, or another reader uses or used it.
        """
        yield from self._until_free()
        waiting = self._channel.consume(self._queue, inactivity_timeout=LOOK_S)
        while True:
            deliveries = self._received(waiting)
            if not deliveries:
                yield Batch()
                continue
            told, wrong = until_wrong(self._told, deliveries)
            if told:
                handled = deliveries[: len(told)]
                read = [each for each in handled if each.method.delivery_tag not in self._rejected]
                taken = [*self._again, *(each.identity for each in read if each.identity)]
                operations = [each for some in told for each in some]
                yield from batches(operations, {self._queue: {"mode": COMPLETE, "taken": taken}})
                self._settle(read)
            if wrong is not None:
                raise wrong

    def close(self) -> None:
        if self._connection is not None and self._connection.is_open:
            self._connection.close()

    def datasets(self) -> list[Dataset]:
        """Return the datasets of this source, for lineage."""
        return [Dataset(broker_of(self._parameters), self._queue)]

    def __str__(self) -> str:
        return f"rabbitmq {self._queue} at {self._parameters.host}"

    def _until_free(self) -> Iterator[Batch]:
        """
        Wait while the queue has another reader; raise `Busy` afterwards.

        If the host of a reader dies, the queue keeps it until it misses heartbeats. Its
        unacknowledged messages would arrive after newer ones.
        """
        assert self._connection is not None
        if not self._is_held():
            return
        began_s = time.monotonic()
        while self._is_held() and time.monotonic() - began_s < HELD_S:
            yield Batch()
            self._connection.sleep(LOOK_S)
        # It may have appended messages after this reader loaded the ids in the feed.
        raise Busy(f"{self}: another reader has the queue, or had it until now")

    def _is_held(self) -> bool:
        found = self._channel.queue_declare(self._queue, passive=True).method
        return bool(found.consumer_count)

    def _received(self, waiting: Iterator[tuple[Any, Any, bytes]]) -> Sequence[_Delivery]:
        """Return up to one batch; fewer if no more arrive within `LOOK_S`."""
        received, began_s = list[_Delivery](), time.monotonic()
        for each in waiting:
            if each[0] is not None:
                received.append(_Delivery(*each))
            if len(received) == BATCH or time.monotonic() - began_s >= LOOK_S:
                return received
        raise Busy(f"{self}: the queue was deleted")

    def _told(self, delivery: _Delivery) -> list[dict[str, Any]]:
        if not delivery.method.redelivered:
            self._again = []  # redelivered messages come before new ones
        elif delivery.identity in self._again:
            self._again.remove(delivery.identity)
            return []
        place = f"{self._queue}, message {delivery.properties.message_id or 'without an id'}"
        try:
            return self._messages.operations(place, None, delivery.body)
        except WrongPipeline:
            if not self._rejects:
                raise
            self._rejected.add(delivery.method.delivery_tag)
            return []

    def _settle(self, read: Sequence[_Delivery]) -> None:
        """
        Acknowledge *read*, reject the others, and wait for the broker, which responds in order.
        """
        for tag in self._rejected:
            self._channel.basic_reject(tag, requeue=False)
        if read:
            self._channel.basic_ack(read[-1].method.delivery_tag, multiple=True)
        self._rejected.clear()
        self._channel.basic_qos(prefetch_count=BATCH)

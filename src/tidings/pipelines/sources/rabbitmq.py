"""A queue of RabbitMQ as a source."""

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

LOOK_S = 0.3  # how long a batch is waited for: a message is in the feed within a second
HELD_S = 180.0  # how long the queue's reader is waited for: a dead one has it for two heartbeats
_IDENTITY_CHARS = 16  # 64 bits: no two of a batch share them


class _Delivery(NamedTuple):
    method: Any
    properties: Any
    body: bytes

    @property
    def identity(self) -> str:
        """The same when it comes again; "" where its publisher gave it no id."""
        if not self.properties.message_id:
            return ""
        told = self.properties.message_id.encode() + b"\0" + self.body
        return hashlib.sha256(told).hexdigest()[:_IDENTITY_CHARS]


class RabbitMQQueue:
    """
    The messages of *queue* of the broker at *url*, each acknowledged when the feed has it.

    What comes again, because it was not yet acknowledged, is left out by its message id. A message
    that cannot be read ends the reader; with *rejects* it is rejected instead, which a queue with
    a dead letter exchange puts there, and another one loses. *envelope*, *type* and *key* are
    those of `Messages`, to which a message of RabbitMQ has no key.

    Raises:
        WrongPipeline: *url* is no address of AMQP, *queue* is empty, or there is no such envelope.
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
        self._again = list[str]()  # in the feed, and perhaps not acknowledged
        self._rejected = set[int]()  # by their delivery tags, until the batch is in the feed

    def open(self, name: str, standing: Standing, known: Known) -> None:
        """
        Raises:
            pika.exceptions.AMQPError: the broker is away, refuses the user, or has no such queue.
        """
        self._again = list(standing.get(self._queue, {}).get("taken", ()))
        self._rejected.clear()  # a tag is of its channel
        self._connection = pika.BlockingConnection(self._parameters)
        self._channel = self._connection.channel()
        self._channel.basic_qos(prefetch_count=BATCH)
        self._channel.queue_declare(self._queue, passive=True)

    def read(self) -> Iterator[Batch]:
        """
        Raises:
            WrongPipeline: a message cannot be read; those before it were.
            pika.exceptions.AMQPError: the connection broke.
            Busy: the queue was deleted, or another reader has or had it.
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
        """As lineage names it."""
        return [Dataset(broker_of(self._parameters), self._queue)]

    def __str__(self) -> str:
        return f"rabbitmq {self._queue} at {self._parameters.host}"

    def _until_free(self) -> Iterator[Batch]:
        """
        Nothing while the queue has a reader, as it has one whose host died until a heartbeat is
        missed: what that one holds would come behind what is newer.
        """
        assert self._connection is not None
        if not self._is_held():
            return
        began_s = time.monotonic()
        while self._is_held() and time.monotonic() - began_s < HELD_S:
            yield Batch()
            self._connection.sleep(LOOK_S)
        # It may have appended since this one was told what the feed has.
        raise Busy(f"{self}: another reader has the queue, or had it until now")

    def _is_held(self) -> bool:
        found = self._channel.queue_declare(self._queue, passive=True).method
        return bool(found.consumer_count)

    def _received(self, waiting: Iterator[tuple[Any, Any, bytes]]) -> Sequence[_Delivery]:
        """Up to a batch; fewer when they do not come at once."""
        received, began_s = list[_Delivery](), time.monotonic()
        for each in waiting:
            if each[0] is not None:
                received.append(_Delivery(*each))
            if len(received) == BATCH or time.monotonic() - began_s >= LOOK_S:
                return received
        raise Busy(f"{self}: the queue was deleted")

    def _told(self, delivery: _Delivery) -> list[dict[str, Any]]:
        if not delivery.method.redelivered:
            self._again = []  # what comes again comes before anything new
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
        """Acknowledge them, reject the others, and wait for the broker: it answers in order."""
        for tag in self._rejected:
            self._channel.basic_reject(tag, requeue=False)
        if read:
            self._channel.basic_ack(read[-1].method.delivery_tag, multiple=True)
        self._rejected.clear()
        self._channel.basic_qos(prefetch_count=BATCH)

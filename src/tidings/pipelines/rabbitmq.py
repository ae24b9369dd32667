"""Write to exchanges and queues of RabbitMQ; read queues."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pika  # type: ignore[import-untyped]

from tidings.client.errors import Unwritten
from tidings.lineage import datasets
from tidings.lineage.datasets import Dataset
from tidings.pipelines.bodies import Entry, EntryStore
from tidings.pipelines.documents import PLAIN, Messages, Read, until_wrong
from tidings.pipelines.ingest_source import BATCH, COMPLETE, Batch, Known, ReaderState, batches
from tidings.pipelines.messages import Busy, WrongPipeline

ANSWER_S = 60  # a batch fails if the broker does not confirm it within this time
BLOCKED_S = 0.5  # the time between two looks at a blocked connection; a stop is noticed at once
CLOSE_S = 0.5  # a broker with an alarm does not answer that a connection is closed
_NAMESPACE = "{namespace}"
_RULE = "url must be amqp://user:password@host:5672/vhost, or amqps://"


class RabbitMQ(EntryStore):
    """A sink that publishes each message to *exchange* with the routing *key*.

    `{namespace}` in *key* is replaced by the type of the object. If *exchange* is empty, messages
    are delivered to the queue *key*. The sink creates no exchanges and queues, because their owner
    configures them. Messages are persistent. A batch counts as written when the broker has
    confirmed all of its messages. A repeated message has the same `message_id`. *envelope* is
    `tidings`, `cloudevents` or `debezium`. Messages in the last two envelopes contain the name of
    the feed, *feed*.

    Raises:
        WrongPipeline: *url* is not an AMQP address, *key* is empty, or the envelope is unknown.
    """

    def __init__(
        self,
        url: str,
        key: str = "objects",
        *,
        exchange: str = "",
        envelope: str = "tidings",
        feed: str = "main",
    ) -> None:
        super().__init__(envelope, feed)
        self._parameters = parameters_of(url)
        if not key:
            raise WrongPipeline("key must be the name of a queue or the key of a binding, not ''")
        self._key, self._exchange = key, exchange
        self._publisher: _Publisher | None = None

    def open(self, consumer: str) -> None:
        """Connect to the broker.

        Raises:
            pika.exceptions.AMQPError: the broker is not available, rejects the user, or does not
                have the exchange or queue.
        """
        self._consumer = consumer
        self.close()
        self._publisher = _Publisher(self._parameters, self.wait)
        if self._exchange or _NAMESPACE not in self._key:
            self._publisher.look_at(self._exchange, self._key)

    def close(self) -> None:
        if self._publisher is not None:
            self._publisher.close()
            self._publisher = None

    def datasets(self) -> list[Dataset]:
        """Return the datasets of this store, for lineage."""
        return [Dataset(broker_of(self._parameters), self._exchange or self._key)]

    def __str__(self) -> str:
        target = f"exchange {self._exchange} by {self._key}" if self._exchange else self._key
        return f"rabbitmq {target} at {self._parameters.host}"

    def _put(self, entries: Sequence[Entry]) -> None:
        assert self._publisher is not None
        keys = [self._key.replace(_NAMESPACE, each.namespace) for each in entries]
        returned = self._publisher.publish(self._exchange, list(zip(keys, entries, strict=True)))
        for key, entry in zip(keys, entries, strict=True):
            if entry.identity in returned:
                reason = f"{self}: no queue is bound for the key {key!r}"
                # If all messages have the same key, the queue is missing for all of them, so this
                # message is not the cause.
                raise Unwritten(entry.index, reason) if key != self._key else Busy(reason)


def parameters_of(url: str) -> pika.URLParameters:
    """Return pika's parameters for the broker at *url*.

    Raises:
        WrongPipeline: *url* is not an AMQP address.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("amqp", "amqps") or not parts.hostname:
        raise WrongPipeline(_RULE)
    try:
        parameters = pika.URLParameters(url)
    except (TypeError, ValueError):
        raise WrongPipeline(f"{_RULE}; an option after '?' is invalid") from None
    parameters.blocked_connection_timeout = ANSWER_S
    return parameters


def broker_of(parameters: pika.ConnectionParameters) -> str:
    """Return the lineage namespace of a broker: its address, with the virtual host as the path."""
    where = datasets.server(f"//{parameters.host}", "amqp", parameters.port)
    return f"{where}/{parameters.virtual_host.strip('/')}".rstrip("/")


class _Publisher:
    """A channel with publisher confirms.

    The event loop of the connection runs only while the publisher waits for the broker. The channel
    does not block, because pika's blocking channel would wait for the confirmation of each message
    before it sends the next message.
    """

    def __init__(self, parameters: pika.URLParameters, wait: Callable[[float, str], None]) -> None:
        """Connect and open the channel.

        Raises:
            pika.exceptions.AMQPError: see `RabbitMQ.open`.
        """
        # Disable heartbeats. Between batches the event loop does not run and could not answer them.
        parameters.heartbeat = 0
        parameters.blocked_connection_timeout = None  # `publish` waits
        self._wait, self._blocked = wait, ""
        self._channel: Any = None
        self._error: BaseException | None = None
        self._last = 0  # the delivery tag of the last published message
        self._unconfirmed = set[int]()
        self._returned = set[str]()
        self._connection = pika.SelectConnection(
            parameters,
            on_open_callback=lambda connection: connection.channel(on_open_callback=self._on_open),
            on_open_error_callback=self._on_failure,
            on_close_callback=self._on_failure,
        )
        self._connection.add_on_connection_blocked_callback(self._on_blocked)
        self._connection.add_on_connection_unblocked_callback(self._on_blocked)
        self._await()

    def look_at(self, exchange: str, queue: str) -> None:
        """Check that *exchange* exists, or if *exchange* is empty, that *queue* exists.

        Raises:
            pika.exceptions.ChannelClosedByBroker: the exchange or queue does not exist.
        """
        if exchange:
            self._channel.exchange_declare(exchange, passive=True, callback=self._on_answer)
        else:
            self._channel.queue_declare(queue, passive=True, callback=self._on_answer)
        self._await()

    def publish(self, exchange: str, entries: Sequence[tuple[str, Entry]]) -> set[str]:
        """Publish each entry with its key; return the identities of entries that reached no queue.

        Raises:
            Busy: the broker rejected an entry, or took longer than `ANSWER_S`.
            pika.exceptions.AMQPError: the channel or the connection broke.
        """
        self._returned = set()
        for key, entry in entries:
            properties = pika.BasicProperties(
                content_type="application/json",
                delivery_mode=pika.DeliveryMode.Persistent.value,
                message_id=entry.identity,
                type=entry.op,
                headers=entry.headers(),
            )
            self._channel.basic_publish(exchange, key, entry.body, properties, mandatory=True)
            self._last += 1
            self._unconfirmed.add(self._last)
        self._await()
        while self._unconfirmed:
            # The broker has an alarm. It keeps the messages, so they must not be sent again.
            self._wait(BLOCKED_S, f"the broker blocks the connection: {self._blocked}")
            self._await()
        return self._returned

    def close(self) -> None:
        if self._connection.is_open:
            self._connection.close()
            self._connection.ioloop.call_later(CLOSE_S, self._connection.ioloop.stop)
            self._connection.ioloop.start()

    def _await(self) -> None:
        loop = self._connection.ioloop
        late = partial(self._on_failure, None, Busy(f"the broker did not respond for {ANSWER_S} s"))
        timer = (
            loop.call_later(BLOCKED_S, loop.stop)
            if self._blocked
            else loop.call_later(ANSWER_S, late)
        )
        loop.start()
        loop.remove_timeout(timer)
        if self._error is not None:
            raise self._error

    def _on_open(self, channel: Any) -> None:
        self._channel = channel
        channel.add_on_close_callback(self._on_failure)
        channel.add_on_return_callback(self._came_back)
        channel.confirm_delivery(self._on_confirm, callback=self._on_answer)

    def _on_blocked(self, connection: Any, frame: Any) -> None:
        self._blocked = getattr(frame.method, "reason", "")
        self._connection.ioloop.stop()

    def _on_answer(self, frame: Any) -> None:
        self._connection.ioloop.stop()

    def _came_back(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self._returned.add(properties.message_id)

    def _on_confirm(self, frame: Any) -> None:
        if isinstance(frame.method, pika.spec.Basic.Nack):
            self._on_failure(None, Busy("the broker rejected a message"))
            return
        tag = frame.method.delivery_tag
        if frame.method.multiple:
            self._unconfirmed = {each for each in self._unconfirmed if each > tag}
        else:
            self._unconfirmed.discard(tag)
        if not self._unconfirmed:
            self._connection.ioloop.stop()

    def _on_failure(self, where: Any, error: BaseException) -> None:
        self._error = self._error or error
        self._connection.ioloop.stop()


LOOK_S = 0.3  # the time to collect a batch; it is short, so that a message is soon in the feed
# The longest wait for another reader. The broker notices after two missing heartbeats that the host
# of the other reader died.
HELD_S = 180.0
_IDENTITY_CHARS = 16  # 64 bits, so that identities are unique within a batch


class _Delivery(NamedTuple):
    method: Any
    properties: Any
    body: bytes

    @property
    def identity(self) -> str:
        """Return an id that is the same for each delivery; "" if the message has no message id."""
        if not self.properties.message_id:
            return ""
        identity_bytes = self.properties.message_id.encode() + b"\0" + self.body
        return hashlib.sha256(identity_bytes).hexdigest()[:_IDENTITY_CHARS]


class RabbitMQQueue:
    """A source that reads the messages of *queue* of the broker at *url*.

    Each message is acknowledged when the feed has it. A message that is delivered again is
    recognized by its message id, and skipped. A message that cannot be read ends the reader. If
    *rejects*, such a message is rejected instead. A queue with a dead letter exchange forwards a
    rejected message to this exchange; any other queue drops the message. *envelope*, *type* and
    *key* are those of `Messages`. *key* is the name of a field; a RabbitMQ message itself has no
    key.

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
            raise WrongPipeline("queue must be the name of a queue, not ''")
        self._parameters, self._queue, self._rejects = parameters_of(url), queue, rejects
        self._messages = Messages(envelope, type, key)
        self._connection: pika.BlockingConnection | None = None
        # The identities of messages that are in the feed, and perhaps not acknowledged.
        self._again = list[str]()
        # The delivery tags of messages to reject as soon as the batch is in the feed.
        self._rejected = set[int]()

    def open(self, name: str, state: ReaderState, known: Known) -> None:
        """Connect, and resume at *state*.

        Raises:
            pika.exceptions.AMQPError: the broker is not available, rejects the user, or does not
                have the queue.
        """
        self._again = list(state.get(self._queue, {}).get("taken", ()))
        self._rejected.clear()  # a delivery tag is valid only in the channel of the delivery
        self._connection = pika.BlockingConnection(self._parameters)
        self._channel = self._connection.channel()
        self._channel.basic_qos(prefetch_count=BATCH)
        self._channel.queue_declare(self._queue, passive=True)

    def read(self) -> Iterator[Batch]:
        """Yield batches of operations, and an empty one if nothing is new.

        Raises:
            WrongPipeline: a message cannot be read. All messages before it were read.
            pika.exceptions.AMQPError: the connection broke.
            Busy: the queue was deleted, or another reader uses it, or used it until now.
        """
        yield from self._until_free()
        waiting = self._channel.consume(self._queue, inactivity_timeout=LOOK_S)
        while True:
            deliveries = self._receive(waiting)
            if not deliveries:
                yield Batch()
                continue
            parsed, wrong = until_wrong(self._operations_of, deliveries)
            if parsed:
                handled = deliveries[: len(parsed)]
                read = [each for each in handled if each.method.delivery_tag not in self._rejected]
                identities = [*self._again, *(each.identity for each in read if each.identity)]
                operations = [each for some in parsed for each in some]
                yield from batches(
                    operations, {self._queue: {"mode": COMPLETE, "taken": identities}}
                )
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
        """If the queue has another reader, wait for up to `HELD_S` until it is free; raise `Busy`.

        If the host of the other reader dies, the broker keeps the connection of that reader until
        heartbeats are missing. Only then does the broker deliver that reader's unacknowledged
        messages again. If this reader did not wait, it would receive these messages after newer
        messages.
        """
        assert self._connection is not None
        if not self._is_held():
            return
        began_s = time.monotonic()
        while self._is_held() and time.monotonic() - began_s < HELD_S:
            yield Batch()
            self._connection.sleep(LOOK_S)
        # This reader must load its state again, because the other reader may have appended messages
        # after the state was loaded.
        raise Busy(f"{self}: another reader uses the queue, or used it until now")

    def _is_held(self) -> bool:
        found = self._channel.queue_declare(self._queue, passive=True).method
        return bool(found.consumer_count)

    def _receive(self, waiting: Iterator[tuple[Any, Any, bytes]]) -> Sequence[_Delivery]:
        """Return the messages that arrive within `LOOK_S`, but at most `BATCH` messages."""
        received, began_s = list[_Delivery](), time.monotonic()
        for each in waiting:
            if each[0] is not None:
                received.append(_Delivery(*each))
            if len(received) == BATCH or time.monotonic() - began_s >= LOOK_S:
                return received
        raise Busy(f"{self}: the queue was deleted")

    def _operations_of(self, delivery: _Delivery) -> list[dict[str, Any]]:
        if not delivery.method.redelivered:
            self._again = []  # a new message: no redelivered message follows it
        elif delivery.identity in self._again:
            self._again.remove(delivery.identity)
            return []
        origin = f"{self._queue}, message {delivery.properties.message_id or 'without an id'}"
        try:
            return self._messages.operations(origin, None, delivery.body)
        except WrongPipeline:
            if not self._rejects:
                raise
            self._rejected.add(delivery.method.delivery_tag)
            return []

    def _settle(self, read: Sequence[_Delivery]) -> None:
        """Acknowledge *read*, reject the messages in `_rejected`, wait until the broker did both.

        The broker handles requests in order, so its answer to the last request is sufficient.
        """
        for tag in self._rejected:
            self._channel.basic_reject(tag, requeue=False)
        if read:
            self._channel.basic_ack(read[-1].method.delivery_tag, multiple=True)
        self._rejected.clear()
        self._channel.basic_qos(prefetch_count=BATCH)

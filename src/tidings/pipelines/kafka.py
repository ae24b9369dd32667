"""Read and write topics of Kafka."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
    Uuid,
)
from confluent_kafka.admin import AdminClient

from tidings.client.errors import Unwritten
from tidings.lineage import datasets
from tidings.lineage.datasets import Dataset
from tidings.pipelines.bodies import Entry, EntryStore
from tidings.pipelines.documents import PLAIN, Messages, Read, until_wrong
from tidings.pipelines.ingest_source import BATCH, COMPLETE, Batch, Known, ReaderState, batches
from tidings.pipelines.messages import Busy, WrongPipeline
from tidings.pipelines.refusals import of_code

PORT = 9092
ANSWER_S = 60  # a batch fails if the broker does not confirm it within this time
_NAMESPACE = "{namespace}"
_NO_ID = str(Uuid(0, 0))
_log = logging.getLogger(__name__)
_NO_TOPIC = frozenset(
    (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError.TOPIC_EXCEPTION)
)


def namespace_of(servers: str) -> str:
    """Return the lineage namespace of the brokers at *servers*: the address of the first one."""
    return datasets.server(f"kafka://{servers.split(',')[0].strip()}", port=PORT)


class _Failure(NamedTuple):
    """An entry that was not written; *alone* if no other entry may have caused the error."""

    entry: Entry
    error: KafkaError
    alone: bool


class Kafka(EntryStore):
    """A sink that sends each message to *topic* of the brokers at *servers*.

    `{namespace}` in *topic* is replaced by the type of the object. The key of a message names its
    object, so all messages of an object are in one partition, in order. The sink creates no topics,
    because their owner decides the number of partitions. A batch counts as written when all in-sync
    replicas have it. *options* are options of librdkafka, for example for passwords and TLS.
    *envelope* is `tidings`, `cloudevents` or `debezium`. Messages in the last two envelopes
    contain the name of the feed, *feed*.

    Raises:
        WrongPipeline: no server or topic is given, or the envelope is unknown.
    """

    def __init__(
        self,
        servers: str,
        topic: str = "objects",
        *,
        options: Mapping[str, str | int] | None = None,
        envelope: str = "tidings",
        feed: str = "main",
    ) -> None:
        super().__init__(envelope, feed)
        self._servers, self._topic = servers, checked_names(servers, topic)[0]
        self._options = connecting(servers, options) | {
            "enable.idempotence": True,  # implies acks=all; retries keep the order
            "partitioner": "murmur2_random",  # chooses the same partitions as Java's client
            "delivery.timeout.ms": ANSWER_S * 1000,
            "queue.buffering.max.messages": 0,  # no limit, because only one batch is in flight
        }
        self._producer: Producer | None = None
        self._is_away = False

    def open(self, consumer: str) -> None:
        """Connect to the brokers.

        Raises:
            KafkaException: no broker responds, the topic does not exist, or an option is unknown.
        """
        self._consumer = consumer
        self._producer = Producer({**self._options, "error_cb": self._on_error})
        if _NAMESPACE not in self._topic:
            partitions_of(self._producer, self._topic)

    def close(self) -> None:
        self._producer = None

    def datasets(self) -> list[Dataset]:
        """Return the datasets of this store, for lineage."""
        return [Dataset(namespace_of(self._servers), self._topic)]

    def __str__(self) -> str:
        return f"kafka {self._topic} at {self._servers}"

    def _put(self, entries: Sequence[Entry]) -> None:
        assert self._producer is not None
        failures: list[_Failure] = []
        for entry in entries:
            try:
                self._producer.produce(
                    self._topic.replace(_NAMESPACE, entry.namespace),
                    entry.body,
                    entry.object.encode(),
                    on_delivery=partial(_note, failures, entry, len(entries) == 1),
                    headers={"tidings-id": entry.identity, **entry.headers()},
                )
            except KafkaException as error:
                failures.append(_Failure(entry, error.args[0], True))
                break
        self._flush(self._producer)
        if failures:
            self._refuse(min(failures, key=lambda each: each.entry.index))

    def _flush(self, producer: Producer) -> None:
        """Wait until the broker has confirmed or refused all entries."""
        self._is_away = False
        for _ in range(ANSWER_S + 1):
            if not producer.flush(1):
                return
            if self._is_away:
                raise Busy(f"{self}: no broker answers")
            self.wait(0)
        raise Busy(f"{self}: no answer within {ANSWER_S} s")

    def _on_error(self, error: KafkaError) -> None:
        self._is_away |= error.code() == KafkaError._ALL_BROKERS_DOWN

    def _refuse(self, failure: _Failure) -> None:
        entry, error, alone = failure
        reason = f"{self}: {error.str()}"
        too_large = error.code() == KafkaError.MSG_SIZE_TOO_LARGE and alone
        if too_large or (error.code() in _NO_TOPIC and _NAMESPACE in self._topic):
            raise Unwritten(entry.index, reason)
        raise Busy(reason, of_code("Kafka", error.name()))


def _note(
    failures: list[_Failure], entry: Entry, alone: bool, error: KafkaError | None, _: Message
) -> None:
    if error is not None:
        failures.append(_Failure(entry, error, alone))


def checked_names(servers: str, *topics: str) -> tuple[str, ...]:
    """Return *topics*.

    Raises:
        WrongPipeline: no topic is given, a topic is empty, or no server is given.
    """
    if not servers:
        raise WrongPipeline("servers must be host:port,host:port, not ''")
    if not topics or not all(topics):
        raise WrongPipeline("at least one topic must be named")
    return topics


def connecting(servers: str, options: Mapping[str, str | int] | None) -> dict[str, str | int]:
    """Return librdkafka's settings for the brokers at *servers*, with the user's *options*."""
    # `log_level` suppresses output on stderr, because exceptions have the same information.
    return {"log_level": 2, **(options or {}), "bootstrap.servers": servers}


def partitions_of(client: Producer | Consumer, topic: str) -> list[int]:
    """Return the numbers of the partitions of *topic*.

    Raises:
        KafkaException: no broker responds, or the topic does not exist.
    """
    found = client.list_topics(topic, timeout=ANSWER_S).topics[topic]
    if found.error is not None:
        raise KafkaException(found.error)
    return sorted(found.partitions)


LOOK_S = 0.3  # the time to collect a batch; it is short, so that a message is soon in the feed
PARTITIONS_S = 60.0  # the time between two searches for new partitions


class KafkaTopics:
    """A source that reads the messages of *topics* of the brokers at *servers*, the oldest first.

    The offset of each partition and the id of each topic are stored in the feed. A topic that was
    created again is read from its beginning. No consumer group is created, and no offset
    is committed to Kafka. *options* are options of librdkafka. *envelope*, *type* and *key* are
    those of `Messages`.

    Raises:
        WrongPipeline: no server or topic is given, or the envelope is unknown.
    """

    def __init__(
        self,
        servers: str,
        *topics: str,
        envelope: str | Read = PLAIN,
        type: str = "",
        key: str = "id",
        options: Mapping[str, str | int] | None = None,
    ) -> None:
        self._servers, self._topics = servers, checked_names(servers, *topics)
        self._messages = Messages(envelope, type, key)
        self._server: dict[str, str | int | float | bool] = {**connecting(servers, options)}
        self._options = self._server | {
            "enable.auto.commit": False,
            "auto.offset.reset": "error",  # if messages were lost, fail, and do not skip them
        }
        self._state: dict[str, dict[str, Any]] = {}
        self._assigned = list[tuple[str, int, str]]()  # topics, partitions, ids of the topics
        self._consumer: Consumer | None = None

    def open(self, name: str, state: ReaderState, known: Known) -> None:
        """Connect to the brokers, and resume at *state*.

        Raises:
            KafkaException: no broker responds, a topic does not exist, or an option is unknown.
        """
        self._state = {
            topic: {**found, "mode": COMPLETE, "offsets": dict(found.get("offsets", {}))}
            for topic, found in ((each, state.get(each, {})) for each in self._topics)
        }
        self._consumer, self._assigned = Consumer({"group.id": name, **self._options}), []
        self._admin = AdminClient(self._server)
        self._assign()

    def read(self) -> Iterator[Batch]:
        """Yield batches of operations, and an empty one if nothing is new.

        Raises:
            WrongPipeline: a message cannot be read, or the message at a stored offset no longer
                exists. All messages before it were read.
        """
        assert self._consumer is not None
        polled_s = time.monotonic()
        while True:
            parsed, wrong = until_wrong(self._operations_of, self._consumer.consume(BATCH, LOOK_S))
            if parsed:
                yield from batches([each for some in parsed for each in some], self._state)
            if wrong is not None:
                raise wrong
            if not parsed:
                yield Batch()
            if time.monotonic() - polled_s > PARTITIONS_S:
                polled_s = time.monotonic()
                self._assign()

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def datasets(self) -> list[Dataset]:
        """Return the datasets of this source, for lineage."""
        return [Dataset(namespace_of(self._servers), topic) for topic in self._topics]

    def __str__(self) -> str:
        return f"kafka {', '.join(self._topics)} at {self._servers}"

    def _assign(self) -> None:
        """Assign each partition at its stored offset, or at its beginning if none is stored."""
        assert self._consumer is not None
        found = self._admin.describe_topics(TopicCollection(list(self._topics)))
        described = {topic: future.result(ANSWER_S) for topic, future in found.items()}
        for topic, each in described.items():
            identity = str(each.topic_id)  # a broker before Kafka 2.8 gives none
            state = self._state[topic]
            before = state.setdefault("topic", identity)
            if _NO_ID not in (before, identity) and before != identity:
                _log.warning("the topic %s was created again; it is read from its beginning", topic)
                self._state[topic] = {"mode": COMPLETE, "offsets": {}, "topic": identity}
        partitions = [
            (topic, each.id, str(about.topic_id))
            for topic, about in described.items()
            for each in about.partitions
        ]
        if partitions != self._assigned:
            offsets = {topic: each["offsets"] for topic, each in self._state.items()}
            self._consumer.assign(
                [
                    TopicPartition(topic, each, offsets[topic].get(str(each), OFFSET_BEGINNING))
                    for topic, each, _ in partitions
                ]
            )
            self._assigned = partitions

    def _operations_of(self, message: Message) -> list[dict[str, Any]]:
        """Return the operations of *message*, and advance the offset of its partition."""
        topic, partition, offset = message.topic() or "", message.partition(), message.offset() or 0
        origin = f"{topic}, partition {partition}, offset {offset}"
        if error := message.error():
            if error.code() != KafkaError._AUTO_OFFSET_RESET:
                raise KafkaException(error)
            rule = "was removed, or the topic was created again"
            raise WrongPipeline(f"{origin}: {rule}; rename the reader to read all topics again")
        operations = self._messages.operations(origin, message.key(), message.value())
        self._state[topic]["offsets"][str(partition)] = offset + 1
        return operations

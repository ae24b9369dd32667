"""Read topics of Kafka."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from tidings.lineage.datasets import Dataset
from tidings.pipelines.errors import WrongPipeline
from tidings.pipelines.ingest_source import BATCH, COMPLETE, Batch, Known, Standing, batches
from tidings.pipelines.sinks.kafka import checked_names, connecting, namespace_of, partitions_of
from tidings.pipelines.sources.envelopes import PLAIN, Messages, Read, until_wrong

LOOK_S = 0.3  # how long to wait for a batch: a message is in the feed within a second
PARTITIONS_S = 60.0  # how often to look for added partitions


class KafkaTopics:
    """
    A source of the messages of *topics* of the brokers at *servers*, from the oldest on.

    The offset of each partition is stored in the feed; no consumer group is created and nothing is
    committed to Kafka. *options* are those of librdkafka. *envelope*, *type* and *key* are those of
    `Messages`.

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
        self._options = connecting(servers, options) | {
            "enable.auto.commit": False,
            "auto.offset.reset": "error",  # lost messages are an error, not skipped
        }
        self._standing: dict[str, dict[str, Any]] = {}
        self._assigned = 0
        self._consumer: Consumer | None = None

    def open(self, name: str, standing: Standing, known: Known) -> None:
        """
        Connect to the brokers, and resume at *standing*.

        Raises:
            KafkaException: no broker responds, a topic does not exist, or an option is unknown.
        """
        self._standing = {
            topic: {"mode": COMPLETE, "offsets": dict(standing.get(topic, {}).get("offsets", {}))}
            for topic in self._topics
        }
        self._consumer, self._assigned = Consumer({"group.id": name, **self._options}), 0
        self._assign()

    def read(self) -> Iterator[Batch]:
        """
        Yield batches of operations, and an empty one if nothing is new.

        Raises:
            WrongPipeline: a message cannot be read or no longer exists; those before it were read.
        """
        assert self._consumer is not None
        looked_s = time.monotonic()
        while True:
            told, wrong = until_wrong(self._told, self._consumer.consume(BATCH, LOOK_S))
            if told:
                yield from batches([each for some in told for each in some], self._standing)
            if wrong is not None:
                raise wrong
            if not told:
                yield Batch()
            if time.monotonic() - looked_s > PARTITIONS_S:
                looked_s = time.monotonic()
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
        """Assign all partitions, each at its last offset."""
        assert self._consumer is not None
        partitions = [
            TopicPartition(
                topic, each, self._standing[topic]["offsets"].get(str(each), OFFSET_BEGINNING)
            )
            for topic in self._topics
            for each in partitions_of(self._consumer, topic)
        ]
        if len(partitions) != self._assigned:
            self._consumer.assign(partitions)
            self._assigned = len(partitions)

    def _told(self, message: Message) -> list[dict[str, Any]]:
        """Return the operations of *message*, and advance the offset of its partition."""
        topic, partition, offset = message.topic() or "", message.partition(), message.offset() or 0
        place = f"{topic}, partition {partition}, offset {offset}"
        if error := message.error():
            if error.code() != KafkaError._AUTO_OFFSET_RESET:
                raise KafkaException(error)
            rule = "is no longer there, or the topic was made anew"
            raise WrongPipeline(f"{place}: {rule}: a reader with a new name reads on")
        operations = self._messages.operations(place, message.key(), message.value())
        self._standing[topic]["offsets"][str(partition)] = offset + 1
        return operations

"""Topics of Kafka as a source."""

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

LOOK_S = 0.3  # how long a batch is waited for: a message is in the feed within a second
PARTITIONS_S = 60.0  # how often partitions are looked for that were added


class KafkaTopics:
    """
    The messages of *topics* of the brokers at *servers*, from the oldest one on.

    How far each partition was read stands in the feed: no group is made, nothing committed to
    Kafka. *options* are those of librdkafka; *envelope*, *type* and *key* are those of `Messages`.

    Raises:
        WrongPipeline: no server or topic is named, or there is no such envelope.
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
            "auto.offset.reset": "error",  # what is no longer there is told, not left out
        }
        self._standing: dict[str, dict[str, Any]] = {}
        self._assigned = 0
        self._consumer: Consumer | None = None

    def open(self, name: str, standing: Standing, known: Known) -> None:
        """
        Raises:
            KafkaException: no broker answers, it has no such topic, or there is no such option.
        """
        self._standing = {
            topic: {"mode": COMPLETE, "offsets": dict(standing.get(topic, {}).get("offsets", {}))}
            for topic in self._topics
        }
        self._consumer, self._assigned = Consumer({"group.id": name, **self._options}), 0
        self._assign()

    def read(self) -> Iterator[Batch]:
        """
        Raises:
            WrongPipeline: a message cannot be read, or is no longer there; those before it were.
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
        """As lineage names it."""
        return [Dataset(namespace_of(self._servers), topic) for topic in self._topics]

    def __str__(self) -> str:
        return f"kafka {', '.join(self._topics)} at {self._servers}"

    def _assign(self) -> None:
        """Every partition there is, from where it was left."""
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
        """The operations of *message*, behind which the reader then stands."""
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

"""Read a queue of SQS."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from tidings.lineage.datasets import Dataset
from tidings.pipelines.errors import WrongPipeline
from tidings.pipelines.ingest_source import BATCH, COMPLETE, Batch, Known, Standing, batches
from tidings.pipelines.sinks.aws import QUEUE_RULE, checked_target, connected, target_of
from tidings.pipelines.sources.envelopes import PLAIN, Messages, Read

WAIT_S = 5  # how long one request waits for a message
FILL_S = 0.3  # how long to request more messages after the first
HIDDEN_S = 300  # visibility timeout; a post may take two minutes
KNOWN = 1500  # messages that may be delivered again, by ids of 36 bytes: they fit in one operation
_CALL = 10  # maximum number of messages in a request

Received = dict[str, Any]


class SqsQueue:
    """
    A source of the messages of the queue at *url*, each deleted when the feed has it.

    A message that is delivered again is recognized by its message id and skipped. A message that
    cannot be read ends the reader. With *rejects* it stays in the queue, for its redrive policy.
    *envelope*, *type* and *key* are those of `Messages`; an SQS message has no key. *client* is a
    boto3 client for SQS, if the default AWS settings do not apply.

    Raises:
        WrongPipeline: *url* is not a URL, or the envelope is unknown.
    """

    def __init__(
        self,
        url: str,
        *,
        envelope: str | Read = PLAIN,
        type: str = "",
        key: str = "id",
        rejects: bool = False,
        client: Any = None,
    ) -> None:
        self._url, self._rejects, self._given = checked_target(url, *QUEUE_RULE), rejects, client
        self._messages = Messages(envelope, type, key)
        self._client: Any = None
        self._again = dict[str, None]()  # in the feed, but possibly not deleted; oldest first
        self._held = list[Received]()  # received, but not deleted
        self._all_shown_s = 0.0  # when all of them must have been delivered again, if at all

    def open(self, name: str, standing: Standing, known: Known) -> None:
        self._again = dict.fromkeys(standing.get(self._url, {}).get("taken", ()))
        self._all_shown_s = time.monotonic() + HIDDEN_S
        self._client = self._given or connected("sqs")

    def read(self) -> Iterator[Batch]:
        """
        Yield batches of operations, and an empty one if nothing is new.

        Raises:
            WrongPipeline: a message cannot be read; all others that do not follow it in its group
                were read.
            ClientError: the queue does not exist, or access is denied.
        """
        while True:
            asked_s, received = time.monotonic(), self._received()
            if not received:
                if asked_s > self._all_shown_s:
                    self._again.clear()  # the queue is empty
                yield Batch()
                continue
            self._held = list(received)
            told, wrong = self._read(received)
            if told or wrong is None:
                read = [message for message, _ in told]
                ids = self._again | dict.fromkeys(message["MessageId"] for message in read)
                operations = [each for _, operations in told for each in operations]
                standing = {self._url: {"mode": COMPLETE, "taken": list(ids)[-KNOWN:]}}
                yield from batches(operations, standing)
                self._delete(read)
            if wrong is not None:
                raise wrong
            self._held = []

    def close(self) -> None:
        """Make messages that are not in the feed visible at once; if that fails, they time out."""
        with suppress(Exception):
            for call in _calls(self._held):
                entries = [{**each, "VisibilityTimeout": 0} for each in _entries(call)]
                self._client.change_message_visibility_batch(QueueUrl=self._url, Entries=entries)
        self._held = []
        if self._client is not None and self._given is None:
            self._client.close()

    def datasets(self) -> list[Dataset]:
        """Return the datasets of this source, for lineage."""
        return [target_of(self._url, "sqs")]

    def __str__(self) -> str:
        name = self._url.rpartition("/")[2]
        return f"sqs {name}" + ("" if name.endswith(".fifo") else " (standard: in any order)")

    def _received(self) -> Sequence[Received]:
        """Return up to one batch without duplicates; fewer if no more arrive within `FILL_S`."""
        received = self._asked(WAIT_S)
        began_s = time.monotonic()
        while received and len(received) <= BATCH - _CALL and time.monotonic() - began_s < FILL_S:
            more = self._asked(0)
            if not more:
                break
            received |= more
        return list(received.values())

    def _asked(self, wait_s: int) -> dict[str, Received]:
        """Return messages by id; if one was delivered twice, the later receipt is valid."""
        answer = self._client.receive_message(
            QueueUrl=self._url,
            MaxNumberOfMessages=_CALL,
            VisibilityTimeout=HIDDEN_S,
            WaitTimeSeconds=wait_s,
            MessageSystemAttributeNames=["MessageGroupId"],
        )
        return {each["MessageId"]: each for each in answer.get("Messages", ())}

    def _read(
        self, received: Sequence[Received]
    ) -> tuple[list[tuple[Received, list[dict[str, Any]]]], WrongPipeline | None]:
        """
        Return the readable messages with their operations, and the first error.

        Only the messages that follow an unreadable one in its group are skipped. SQS counts a
        skipped message as received once more, so its redrive policy might move a message because of
        another one in the same batch.
        """
        told, wrong, groups = [], None, set[str]()
        for message in received:
            group = message.get("Attributes", {}).get("MessageGroupId", "")
            if group in groups:
                continue
            try:
                told.append((message, self._told(message)))
            except WrongPipeline as error:
                if not self._rejects:
                    wrong = wrong or error
                    groups |= {group} - {""}
        return told, wrong

    def _told(self, message: Received) -> list[dict[str, Any]]:
        """Return the operations of *message*; an empty list if the feed has them."""
        if message["MessageId"] in self._again:
            return []
        place = f"{self._url.rpartition('/')[2]}, message {message['MessageId']}"
        return self._messages.operations(place, None, message["Body"].encode())

    def _delete(self, messages: Sequence[Received]) -> None:
        """Delete the messages; one that is not deleted is delivered again and then recognized."""
        self._again |= dict.fromkeys(message["MessageId"] for message in messages)
        for call in _calls(messages):
            answer = self._client.delete_message_batch(QueueUrl=self._url, Entries=_entries(call))
            deleted = {call[int(each["Id"])]["MessageId"] for each in answer.get("Successful", ())}
            self._held = [each for each in self._held if each["MessageId"] not in deleted]
            for each in deleted:
                self._again.pop(each, None)
            if len(deleted) < len(call):
                self._all_shown_s = time.monotonic() + HIDDEN_S


def _calls(messages: Sequence[Received]) -> Iterator[Sequence[Received]]:
    return (messages[at : at + _CALL] for at in range(0, len(messages), _CALL))


def _entries(call: Sequence[Received]) -> list[dict[str, Any]]:
    return [
        {"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]}
        for number, message in enumerate(call)
    ]

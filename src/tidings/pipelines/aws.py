"""Write to SQS, SNS, EventBridge and Kinesis; read queues of SQS."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.session import Session

from tidings.client.errors import Unwritten
from tidings.client.retries import Backoff
from tidings.lineage.datasets import Dataset
from tidings.pipelines.bodies import Entry, EntryStore
from tidings.pipelines.documents import PLAIN, Messages, Read
from tidings.pipelines.files import S3, SOME, is_part, name_of
from tidings.pipelines.ingest_source import BATCH, COMPLETE, Batch, Known, ReaderState, batches
from tidings.pipelines.messages import Busy, Message, Overtaken, Verdict, WrongPipeline
from tidings.pipelines.refusals import of_code

SOURCE = "tidings.feed"  # the field `Source` of the feed's events on a bus
STATUS_SOURCE = "tidings.pipeline"  # the field `Source` of events about a pipeline
TRIES = 4  # attempts to send an entry that the service throttles, within about 15 s
_PATIENCE = Config(connect_timeout=5, read_timeout=30, retries={"mode": "standard"})
_STATUS_PATIENCE = Config(connect_timeout=5, read_timeout=5, retries={"total_max_attempts": 2})
_MISSING, _THERE = 404, 412
QUEUE_RULE = ("url must be that of a queue, https://...", re.compile(r"https?://[^/]+/.+"))
_GROUP = re.compile(r"[!-~]{1,128}")  # matches valid group ids of SQS and SNS

_log = logging.getLogger("tidings.pipelines")


@dataclass(frozen=True, slots=True)
class _Limits:
    """The limits of one call: the number of entries, and the sizes of an entry and of the call."""

    entries: int
    entry_bytes: int
    call_bytes: int


class _Failure(NamedTuple):
    entry: Entry
    reason: str
    is_busy: bool


class _Store(EntryStore):
    """The common part of the AWS sinks.

    A *call* is one request to the service with several entries; the response lists the entries that
    failed. A service may process the entries of a call in any order. So that the entries of an
    object keep their order, a call contains at most one entry of each object.
    """

    _service: str
    _limits: _Limits
    _target_rule = ("name must be that of a bus or stream", re.compile(r"[\w./:-]+", re.ASCII))

    def __init__(
        self, target: str, *, envelope: str = "tidings", feed: str = "main", client: Any = None
    ) -> None:
        super().__init__(envelope, feed)
        self._target, self._given = checked_target(target, *self._target_rule), client
        self._client: Any = None

    def open(self, consumer: str) -> None:
        self._consumer = consumer
        self._client = self._given or connect(self._service)

    def close(self) -> None:
        if self._client is not None and self._given is None:
            self._client.close()

    def datasets(self) -> list[Dataset]:
        """Return the datasets of this store, for lineage."""
        return [target_of(self._target, self._service)]

    def __str__(self) -> str:
        return f"{self._service} {re.split('[:/]', self._target)[-1]}"

    def _send(self, call: Sequence[Entry]) -> list[_Failure]:
        raise NotImplementedError

    def _entry(self, index: int, message: Message) -> Entry | None:
        entry = super()._entry(index, message)
        if entry and (size := _size_of(entry)) > self._limits.entry_bytes:
            rule = f"{self._service} accepts at most {self._limits.entry_bytes:,} bytes"
            raise Unwritten(index, f"{rule}, not {size:,}")
        return entry

    def _put(self, entries: Sequence[Entry]) -> None:
        for call in _calls(entries, self._limits):
            self._send_call(call)

    def _send_call(self, call: Sequence[Entry]) -> None:
        """Send the entries of one call, and retry the entries that the service throttled."""
        backoff, refused = Backoff(), list[_Failure]()
        for left in range(TRIES, 0, -1):
            failures = self._send(call)
            refused += [each for each in failures if not each.is_busy]
            busy = [each for each in failures if each.is_busy]
            if not busy:
                break
            if left == 1:
                raise Busy(f"{self}: {busy[0].reason}")
            call = [each.entry for each in busy]
            self.wait(backoff.next_s(), busy[0].reason)
        if refused:
            first = min(refused, key=lambda each: each.entry.index)
            raise Unwritten(first.entry.index, first.reason)


class _Messages(_Store):
    """The common part of the sinks for SQS and SNS, which have similar APIs.

    A queue or topic with the suffix `.fifo` keeps the order and drops repeated messages.
    """

    @property
    def _is_fifo(self) -> bool:
        return self._target.endswith(".fifo")

    def __str__(self) -> str:
        return super().__str__() + ("" if self._is_fifo else " (standard: in any order)")

    def _with_body(self, call: Sequence[Entry], body: str) -> list[dict[str, str]]:
        return [
            {"Id": str(at), body: entry.body.decode(), **(_fifo(entry) if self._is_fifo else {})}
            for at, entry in enumerate(call)
        ]

    def _failures(self, call: Sequence[Entry], answer: dict[str, Any]) -> list[_Failure]:
        failed = {int(each["Id"]): each for each in answer.get("Failed", ())}
        written = {int(each["Id"]) for each in answer.get("Successful", ())}
        return [
            _Failure(entry, _reason(each, "Code", "Message"), not each["SenderFault"])
            if (each := failed.get(at))
            else _Failure(entry, "the answer has no result for the message", is_busy=True)
            for at, entry in enumerate(call)
            if at not in written
        ]


class Sqs(_Messages):
    """A sink that sends each message to the queue at the URL *target*.

    In a FIFO queue (`.fifo`) the messages of an object keep their order, and a message that is
    repeated within five minutes is dropped. A standard queue does neither. *envelope* is `tidings`,
    `cloudevents` or `debezium`. Messages in the last two envelopes contain the name of the feed,
    *feed*. *client* is a boto3 client for SQS; by default, a client with the default AWS settings
    is created.

    Raises:
        WrongPipeline: *target* is not a URL, or the envelope is unknown.
    """

    _service = "sqs"
    # A request has at most 10 entries and 1 MiB, which is also the limit of one message.
    _limits = _Limits(entries=10, entry_bytes=1_048_576, call_bytes=1_048_576)

    _target_rule = QUEUE_RULE

    def _send(self, call: Sequence[Entry]) -> list[_Failure]:
        entries = self._with_body(call, "MessageBody")
        answer = self._client.send_message_batch(QueueUrl=self._target, Entries=entries)
        return self._failures(call, answer)


class Sns(_Messages):
    """A sink that publishes each message to the topic with the ARN *target*.

    A FIFO topic behaves like a FIFO queue. *envelope* and *feed* are those of `Sqs`. *client* is a
    boto3 client for SNS.

    Raises:
        WrongPipeline: *target* is not an ARN, or the envelope is unknown.
    """

    _service = "sns"
    # A request has at most 10 entries and 256 KiB, which is also the limit of one message.
    _limits = _Limits(entries=10, entry_bytes=262_144, call_bytes=262_144)

    _target_rule = ("arn must be that of a topic, arn:...", re.compile(r"arn:.+"))

    def _send(self, call: Sequence[Entry]) -> list[_Failure]:
        entries = self._with_body(call, "Message")
        answer = self._client.publish_batch(
            TopicArn=self._target, PublishBatchRequestEntries=entries
        )
        return self._failures(call, answer)


class _Aligned(_Store):
    """The common part of the sinks for EventBridge and Kinesis.

    These services return one result for each entry of a call.
    """

    def _failures(self, call: Sequence[Entry], results: list[dict[str, Any]]) -> list[_Failure]:
        return [
            _Failure(
                entry,
                _reason(each, "ErrorCode", "ErrorMessage"),
                of_code("AWS", each["ErrorCode"]) is Verdict.PASSES,
            )
            for entry, each in zip(call, results, strict=True)
            if each.get("ErrorCode")
        ]


class EventBridge(_Aligned):
    """A sink that puts each message on the event bus *target*.

    The event's `Source` is `tidings.feed`, and its `DetailType` is the op of the message. Rules
    receive events in any order, and sometimes twice. *envelope* and *feed* are those of `Sqs`.
    *client* is a boto3 client for EventBridge.

    Raises:
        WrongPipeline: *target* is not a name, or the envelope is unknown.
    """

    _service = "events"
    # A request has at most 10 entries and 256 KiB, including `Source` and `DetailType`.
    _limits = _Limits(entries=10, entry_bytes=262_144, call_bytes=262_144)

    def _send(self, call: Sequence[Entry]) -> list[_Failure]:
        fixed = {"Source": SOURCE, "EventBusName": self._target}
        entries = [{**fixed, "DetailType": each.op, "Detail": each.body.decode()} for each in call]
        return self._failures(call, self._client.put_events(Entries=entries)["Entries"])


class EventBus:
    """The event bus *name*, to which the events about a pipeline are sent.

    The `DetailType` is the kind of the event. A failed request is only logged, because a pipeline
    must not wait for the receivers of its events.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._client: Any = Session().create_client("events", config=_STATUS_PATIENCE)

    def send(self, event: dict[str, Any]) -> None:
        entry = {
            "Source": STATUS_SOURCE,
            "DetailType": event["kind"],
            "Detail": json.dumps(event, separators=(",", ":")),
            "EventBusName": self._name,
        }
        try:
            answer = self._client.put_events(Entries=[entry])
        except (BotoCoreError, ClientError) as error:
            _log.warning("an event was not accepted: %s", error)
            return
        if answer["FailedEntryCount"]:
            _log.warning("an event was not accepted: %s", answer["Entries"][0].get("ErrorMessage"))


class Kinesis(_Aligned):
    """A sink that puts each message into the data stream *target*.

    The partition key names the object, so the records of an object keep their order. A message that
    is written again appears twice, with the same `id`. *envelope* and *feed* are those of `Sqs`.
    *client* is a boto3 client for Kinesis.

    Raises:
        WrongPipeline: *target* is not a name, or the envelope is unknown.
    """

    _service = "kinesis"
    # The limits of a request: 500 records, 1 MiB for a record with its key, and 5 MiB in total.
    _limits = _Limits(entries=500, entry_bytes=1_048_576, call_bytes=5_242_880)

    def _send(self, call: Sequence[Entry]) -> list[_Failure]:
        records = [{"Data": each.body, "PartitionKey": _group_of(each)} for each in call]
        answer = self._client.put_records(StreamName=self._target, Records=records)
        return self._failures(call, answer["Records"])


class OnS3:
    """Files below an S3 prefix. Implements `Parts`.

    Raises:
        WrongPipeline: *address* is not `s3://BUCKET/PREFIX`.
    """

    def __init__(self, address: str, suffix: str) -> None:
        parts = urlsplit(address)
        self._bucket, prefix = parts.netloc, parts.path.strip("/")
        if not self._bucket or not prefix:
            raise WrongPipeline(f"folder must be s3://BUCKET/PREFIX, not {address!r}")
        self._prefix, self._suffix = f"{prefix}/", suffix
        self._client: Any = None

    def open(self, *, create: bool = True) -> int:
        """Return the number of the last file, which is found by binary search.

        A listing would return all files, 1,000 at a time, beginning with the first.
        """
        self._client = connect("s3")
        self._client.head_bucket(Bucket=self._bucket)  # fail if the bucket is missing
        there, absent = 0, 1
        while self._has(absent):
            there, absent = absent, 2 * absent
        while absent - there > 1:
            middle = (there + absent) // 2
            there, absent = (middle, absent) if self._has(middle) else (there, middle)
        return there

    def others(self) -> int:
        listed = self._client.list_objects_v2(
            Bucket=self._bucket, Prefix=self._prefix, Delimiter="/", MaxKeys=SOME
        )
        names = [each["Key"].removeprefix(self._prefix) for each in listed.get("Contents", ())]
        return sum(name.endswith(self._suffix) and not is_part(name) for name in names)

    def read(self, number: int) -> io.BytesIO:
        answer = self._client.get_object(Bucket=self._bucket, Key=self._key(number))
        return io.BytesIO(answer["Body"].read())

    def put(self, number: int, body: bytes) -> None:
        """Write the file with this number.

        Raises:
            Overtaken: a file with this number exists. This worker may itself have written that
                file, if the response to a successful request was lost and the request was repeated.
        """
        key = self._key(number)
        try:
            self._client.put_object(Bucket=self._bucket, Key=key, Body=body, IfNoneMatch="*")
        except ClientError as error:
            if _status(error) != _THERE:
                raise
            raise Overtaken(f"another worker has written {S3}{self._bucket}/{key}") from None

    def __str__(self) -> str:
        return f"{S3}{self._bucket}/{self._prefix.rstrip('/')}"

    def _has(self, number: int) -> bool:
        try:
            self._client.head_object(Bucket=self._bucket, Key=self._key(number))
        except ClientError as error:
            if _status(error) != _MISSING:
                raise
            return False
        return True

    def _key(self, number: int) -> str:
        return self._prefix + name_of(number, self._suffix)


def connect(service: str) -> Any:
    """Return a client for *service* with the default AWS settings."""
    return Session().create_client(service, config=_PATIENCE)


def target_of(target: str, service: str) -> Dataset:
    """Return the lineage dataset of *target*: a topic's ARN, a queue's URL, or a bus or stream."""
    where, _, name = target.rpartition(":" if target.startswith("arn:") else "/")
    return Dataset(where or service, name)


def checked_target(target: str, rule: str, pattern: re.Pattern[str]) -> str:
    """Return *target* if it matches *pattern*.

    Raises:
        WrongPipeline: *target* does not match. The message begins with *rule*.
    """
    if not isinstance(target, str) or not pattern.fullmatch(target):
        raise WrongPipeline(f"{rule}, not {target!r}")
    return target


def _calls(entries: Sequence[Entry], limits: _Limits) -> Iterator[list[Entry]]:
    call, objects, size = list[Entry](), set[str](), 0
    for entry in entries:
        too_large = size + _size_of(entry) > limits.call_bytes or len(call) == limits.entries
        if call and (too_large or entry.object in objects):
            yield call
            call, objects, size = [], set(), 0
        call.append(entry)
        objects.add(entry.object)
        size += _size_of(entry)
    if call:
        yield call


def _size_of(entry: Entry) -> int:
    """Return the size of *entry* in bytes, including all fields that any of the services counts."""
    return len(entry.body) + len(_group_of(entry)) + len(entry.op) + len(SOURCE)


def _group_of(entry: Entry) -> str:
    """Return the group id of an entry: the name of its object, or a hash if the name is invalid."""
    if _GROUP.fullmatch(entry.object):
        return entry.object
    return hashlib.sha256(entry.object.encode(errors="surrogatepass")).hexdigest()


def _fifo(entry: Entry) -> dict[str, str]:
    return {"MessageGroupId": _group_of(entry), "MessageDeduplicationId": entry.identity}


def _reason(failure: dict[str, Any], code: str, text: str) -> str:
    return f"{failure[code]}: {failure.get(text, '')}"


def _status(error: ClientError) -> int:
    return int(error.response["ResponseMetadata"]["HTTPStatusCode"])


WAIT_S = 1  # the time that one request waits for a message; a stop of the run waits for it
FILL_S = 0.3  # the time limit for requesting more messages after the first messages of a batch
HIDDEN_S = 300  # the visibility timeout; it is long, because a post may take two minutes
# The reader's state has the ids of messages that may be delivered again, at most this many. The
# state is one operation in the feed. An id has 36 bytes, so all ids fit into an operation.
KNOWN = 1500
_CALL = 10  # maximum number of messages in a request

Received = dict[str, Any]


class SqsQueue:
    """A source that reads the messages of the queue at *url*.

    Each message is deleted from the queue when the feed has it. A message that is delivered again
    is recognized by its message id, and skipped. A message that cannot be read ends the reader. If
    *rejects*, the reader instead leaves such a message in the queue, and the redrive policy of the
    queue applies to it.

    *envelope*, *type* and *key* are those of `Messages`. *key* is the name of a field; an SQS
    message itself has no key. *client* is a boto3 client for SQS; by default, a client with the
    default AWS settings is created.

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
        # The ids of messages that are in the feed, but perhaps still in the queue, the oldest
        # first.
        self._again = dict[str, None]()
        self._held = list[Received]()  # messages that were received and not deleted yet
        # At this time, all messages of `_again` are visible again, unless they were deleted.
        self._all_shown_s = 0.0

    def open(self, name: str, state: ReaderState, known: Known) -> None:
        self._again = dict.fromkeys(state.get(self._url, {}).get("taken", ()))
        self._all_shown_s = time.monotonic() + HIDDEN_S
        self._client = self._given or connect("sqs")

    def read(self) -> Iterator[Batch]:
        """Yield batches of operations, and an empty one if nothing is new.

        Raises:
            WrongPipeline: a message cannot be read. The other messages of its batch were read,
                except for later messages of the same group.
            ClientError: the queue does not exist, or access is denied.
        """
        while True:
            requested_s, received = time.monotonic(), self._receive()
            if not received:
                if requested_s > self._all_shown_s:
                    self._again.clear()  # the queue is empty, so these were deleted from it
                yield Batch()
                continue
            self._held = list(received)
            readable, wrong = self._read(received)
            if readable or wrong is None:
                read = [message for message, _ in readable]
                ids = self._again | dict.fromkeys(message["MessageId"] for message in read)
                operations = [each for _, operations in readable for each in operations]
                state = {self._url: {"mode": COMPLETE, "taken": list(ids)[-KNOWN:]}}
                yield from batches(operations, state)
                self._delete(read)
            if wrong is not None:
                raise wrong
            self._held = []

    def close(self) -> None:
        """Make the messages visible again that were received and not deleted.

        If this request fails, the messages become visible after `HIDDEN_S`.
        """
        with suppress(Exception):
            for call in _calls_of(self._held):
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

    def _receive(self) -> Sequence[Received]:
        """Return the messages of a batch without duplicates, collected for up to `FILL_S`."""
        received = self._request(WAIT_S)
        began_s = time.monotonic()
        while received and len(received) <= BATCH - _CALL and time.monotonic() - began_s < FILL_S:
            more = self._request(0)
            if not more:
                break
            received |= more
        return list(received.values())

    def _request(self, wait_s: int) -> dict[str, Received]:
        """Return the messages of one request by id. Of a message twice, keep the later receipt."""
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
        """Return the readable messages with their operations, and the first error.

        Skip a readable message only if it follows an unreadable message in the same group.
        SQS counts each delivery of a skipped message. If more messages were skipped, the redrive
        policy could remove readable messages because of this count.
        """
        readable, wrong, groups = [], None, set[str]()
        for message in received:
            group = message.get("Attributes", {}).get("MessageGroupId", "")
            if group in groups:
                continue
            try:
                readable.append((message, self._operations_of(message)))
            except WrongPipeline as error:
                if not self._rejects:
                    wrong = wrong or error
                    groups |= {group} - {""}
        return readable, wrong

    def _operations_of(self, message: Received) -> list[dict[str, Any]]:
        """Return the operations of *message*, or an empty list if they are already in the feed."""
        if message["MessageId"] in self._again:
            return []
        origin = f"{self._url.rpartition('/')[2]}, message {message['MessageId']}"
        return self._messages.operations(origin, None, message["Body"].encode())

    def _delete(self, messages: Sequence[Received]) -> None:
        """Delete *messages*. If a message remains, it is delivered again, and then skipped."""
        self._again |= dict.fromkeys(message["MessageId"] for message in messages)
        for call in _calls_of(messages):
            answer = self._client.delete_message_batch(QueueUrl=self._url, Entries=_entries(call))
            deleted = {call[int(each["Id"])]["MessageId"] for each in answer.get("Successful", ())}
            self._held = [each for each in self._held if each["MessageId"] not in deleted]
            for each in deleted:
                self._again.pop(each, None)
            if len(deleted) < len(call):
                self._all_shown_s = time.monotonic() + HIDDEN_S


def _calls_of(messages: Sequence[Received]) -> Iterator[Sequence[Received]]:
    return (messages[at : at + _CALL] for at in range(0, len(messages), _CALL))


def _entries(call: Sequence[Received]) -> list[dict[str, Any]]:
    return [
        {"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]}
        for number, message in enumerate(call)
    ]

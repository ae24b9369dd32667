"""Queues, topics, buses and streams of AWS as stores, an entry a message; files on S3."""

from __future__ import annotations

import hashlib
import io
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from botocore.config import Config
from botocore.exceptions import ClientError
from botocore.session import Session
from tidings.client.backoff import Backoff
from tidings.client.errors import Unwritten
from tidings.lineage.datasets import Dataset
from tidings.pipelines.entries import Entry, EntryStore
from tidings.pipelines.errors import Busy, Overtaken, WrongPipeline
from tidings.pipelines.message import Message
from tidings.pipelines.parts import S3, name_of

SOURCE = "tidings.feed"  # of events on a bus; a pipeline's own events have another one
TRIES = 4  # of entries that a service was too busy for, within some 15 s
_PATIENCE = Config(connect_timeout=5, read_timeout=30, retries={"mode": "standard"})
_BUSY = frozenset(
    (
        "InternalException",
        "InternalFailure",
        "KMSThrottlingException",
        "ProvisionedThroughputExceededException",
        "ThrottlingException",
    )
)
_MISSING, _THERE = 404, 412
QUEUE_RULE = ("url must be that of a queue, https://...", re.compile(r"https?://[^/]+/.+"))
_GROUP = re.compile(r"[!-~]{1,128}")  # what SQS and SNS take as a group


@dataclass(frozen=True, slots=True)
class _Limits:
    """Of one call: how many entries, the bytes of one and of all."""

    entries: int
    entry_bytes: int
    call_bytes: int


class _Failure(NamedTuple):
    entry: Entry
    reason: str
    is_busy: bool


class _Store(EntryStore):
    """
    What the services share: a call takes several entries, and answers which of them failed.

    A call holds an object once at most, so the entries of one object keep their order whatever
    a service does with those of one call.
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
        self._client = self._given or connected(self._service)

    def close(self) -> None:
        if self._client is not None and self._given is None:
            self._client.close()

    def datasets(self) -> list[Dataset]:
        """As lineage names it."""
        return [target_of(self._target, self._service)]

    def __str__(self) -> str:
        return f"{self._service} {re.split('[:/]', self._target)[-1]}"

    def _send(self, call: Sequence[Entry]) -> list[_Failure]:
        raise NotImplementedError

    def _entry(self, index: int, message: Message) -> Entry | None:
        entry = super()._entry(index, message)
        if entry and (size := _size_of(entry)) > self._limits.entry_bytes:
            rule = f"{self._service} takes at most {self._limits.entry_bytes:,} bytes"
            raise Unwritten(index, f"{rule}, not {size:,}")
        return entry

    def _put(self, entries: Sequence[Entry]) -> None:
        for call in _calls(entries, self._limits):
            self._sent(call)

    def _sent(self, call: Sequence[Entry]) -> None:
        """What the service is too busy for is sent again, before anything behind it is."""
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
            time.sleep(backoff.next_s())
        if refused:
            first = min(refused, key=lambda each: each.entry.index)
            raise Unwritten(first.entry.index, first.reason)


class _Messages(_Store):
    """SQS and SNS, whose calls are alike. What ends with `.fifo` keeps order and drops repeats."""

    @property
    def _is_fifo(self) -> bool:
        return self._target.endswith(".fifo")

    def __str__(self) -> str:
        return super().__str__() + ("" if self._is_fifo else " (standard: in any order)")

    def _named(self, call: Sequence[Entry], body: str) -> list[dict[str, str]]:
        return [
            {"Id": str(at), body: entry.body.decode(), **(_fifo(entry) if self._is_fifo else {})}
            for at, entry in enumerate(call)
        ]

    def _failures(self, call: Sequence[Entry], answer: dict[str, Any]) -> list[_Failure]:
        return [
            _Failure(
                call[int(each["Id"])], _reason(each, "Code", "Message"), not each["SenderFault"]
            )
            for each in answer.get("Failed", ())
        ]


class Sqs(_Messages):
    """
    Sends each message to the queue at the URL *target*.

    In a FIFO queue (`.fifo`) the messages of an object keep their order, and what comes again
    within five minutes is dropped; a standard queue may do neither. *envelope* is `tidings`,
    `cloudevents` or `debezium`; the last two name the *feed*. *client* is one of boto3 for SQS,
    where the usual settings of AWS do not say which.

    Raises:
        WrongPipeline: *target* is no URL, or there is no such envelope.
    """

    _service = "sqs"
    # A request holds 10 entries and 1 MiB, whether in one message or in all.
    _limits = _Limits(entries=10, entry_bytes=1_048_576, call_bytes=1_048_576)

    _target_rule = QUEUE_RULE

    def _send(self, call: Sequence[Entry]) -> list[_Failure]:
        entries = self._named(call, "MessageBody")
        answer = self._client.send_message_batch(QueueUrl=self._target, Entries=entries)
        return self._failures(call, answer)


class Sns(_Messages):
    """
    Publishes each message to the topic with the ARN *target*; a FIFO topic as a FIFO queue.

    *envelope*, *feed* and *client* are those of `Sqs`.

    Raises:
        WrongPipeline: *target* is no ARN, or there is no such envelope.
    """

    _service = "sns"
    # A request holds 10 entries and 256 KB, whether in one message or in all.
    _limits = _Limits(entries=10, entry_bytes=262_144, call_bytes=262_144)

    _target_rule = ("arn must be that of a topic, arn:...", re.compile(r"arn:.+"))

    def _send(self, call: Sequence[Entry]) -> list[_Failure]:
        entries = self._named(call, "Message")
        answer = self._client.publish_batch(
            TopicArn=self._target, PublishBatchRequestEntries=entries
        )
        return self._failures(call, answer)


class _Aligned(_Store):
    """EventBridge and Kinesis, whose answers have an entry for each one of the call."""

    def _failures(self, call: Sequence[Entry], results: list[dict[str, Any]]) -> list[_Failure]:
        return [
            _Failure(entry, _reason(each, "ErrorCode", "ErrorMessage"), each["ErrorCode"] in _BUSY)
            for entry, each in zip(call, results, strict=True)
            if each.get("ErrorCode")
        ]


class EventBridge(_Aligned):
    """
    Puts each message on the event bus *target*: source `tidings.feed`, the op as detail type.

    Rules are told events in any order, now and then twice. *envelope*, *feed* and *client* are
    those of `Sqs`.

    Raises:
        WrongPipeline: *target* is no name, or there is no such envelope.
    """

    _service = "events"
    # A request holds 10 entries and 256 KB, with source and detail type.
    _limits = _Limits(entries=10, entry_bytes=262_144, call_bytes=262_144)

    def _send(self, call: Sequence[Entry]) -> list[_Failure]:
        fixed = {"Source": SOURCE, "EventBusName": self._target}
        entries = [{**fixed, "DetailType": each.op, "Detail": each.body.decode()} for each in call]
        return self._failures(call, self._client.put_events(Entries=entries)["Entries"])


class Kinesis(_Aligned):
    """
    Puts each message into the data stream *target*; an object is a partition key.

    The records of an object keep their order. What is written again is there twice, with the
    same `id`. *envelope*, *feed* and *client* are those of `Sqs`.

    Raises:
        WrongPipeline: *target* is no name, or there is no such envelope.
    """

    _service = "kinesis"
    # What every stream takes: 500 records, 1 MiB in one with its key, 5 MiB in all.
    _limits = _Limits(entries=500, entry_bytes=1_048_576, call_bytes=5_242_880)

    def _send(self, call: Sequence[Entry]) -> list[_Failure]:
        records = [{"Data": each.body, "PartitionKey": _group_of(each)} for each in call]
        answer = self._client.put_records(StreamName=self._target, Records=records)
        return self._failures(call, answer["Records"])


class OnS3:
    """
    Implements `Parts` below a prefix.

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

    def open(self) -> int:
        """Numbers are looked for, because names are listed from the first on, 1,000 at a time."""
        self._client = connected("s3")
        self._client.head_bucket(Bucket=self._bucket)  # without one every number is absent
        there, absent = 0, 1
        while self._has(absent):
            there, absent = absent, 2 * absent
        while absent - there > 1:
            middle = (there + absent) // 2
            there, absent = (middle, absent) if self._has(middle) else (there, middle)
        return there

    def read(self, number: int) -> io.BytesIO:
        answer = self._client.get_object(Bucket=self._bucket, Key=self._key(number))
        return io.BytesIO(answer["Body"].read())

    def put(self, number: int, body: bytes) -> None:
        """Sent again where its answer was lost, it finds itself there, and counts as overtaken."""
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


def connected(service: str) -> Any:
    """A client for *service*, as the usual settings of AWS say."""
    return Session().create_client(service, config=_PATIENCE)


def target_of(target: str, service: str) -> Dataset:
    """A topic by its ARN, a queue by its address, a bus or a stream by its name, in lineage."""
    where, _, name = target.rpartition(":" if target.startswith("arn:") else "/")
    return Dataset(where or service, name)


def checked_target(target: str, rule: str, pattern: re.Pattern[str]) -> str:
    """
    *target*.

    Raises:
        WrongPipeline: it breaks the *rule*, which is *pattern*.
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
    """In bytes, with all that a service counts."""
    return len(entry.body) + len(_group_of(entry)) + len(entry.op) + len(SOURCE)


def _group_of(entry: Entry) -> str:
    """The object, by its name where the services take that."""
    if _GROUP.fullmatch(entry.object):
        return entry.object
    return hashlib.sha256(entry.object.encode(errors="surrogatepass")).hexdigest()


def _fifo(entry: Entry) -> dict[str, str]:
    return {"MessageGroupId": _group_of(entry), "MessageDeduplicationId": entry.identity}


def _reason(failure: dict[str, Any], code: str, text: str) -> str:
    return f"{failure[code]}: {failure.get(text, '')}"


def _status(error: ClientError) -> int:
    return int(error.response["ResponseMetadata"]["HTTPStatusCode"])

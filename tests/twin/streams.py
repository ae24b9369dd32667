"""Event source mappings: they invoke a function with records of a DynamoDB stream, as Lambda does.

Reading starts at TRIM_HORIZON. Records are delivered at least once, by one invocation at a time per
shard, and a shard is read only after its parent.

GetRecords is called without boto3, because it is called often and mostly returns nothing. For an
empty answer, boto3 takes 3 ms of CPU and this module 0.3 ms. The engine (DynamoDB Local) also
answers this module in half the time. The records are kept as JSON, because Lambda's events consist
of this JSON.

After an invocation, this module follows the rules that Lambda documents for DynamoDB streams, if a
mapping splits failing batches and reports single items:

* a batch that fails as a whole is split in two; this does not use up a retry of either half;
* if an item is reported, the records before that item are done, and the others are retried;
* a single record is retried until its retries are used up, then it is discarded;
* a record that has become too old is discarded before it is tried.

Records stay in order: a batch is only tried when all earlier records are done or discarded.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
)

from tests.twin import clock
from tests.twin.clock import PollInterval
from tests.twin.options import REGION
from tests.twin.runtime_api import Answer
from tidings.aws.config import twin_keys
from tidings.aws.config.deployment import StreamSource

if TYPE_CHECKING:
    from mypy_boto3_dynamodbstreams import DynamoDBStreamsClient
    from mypy_boto3_dynamodbstreams.type_defs import GetShardIteratorInputTypeDef, ShardTypeDef

TIMEOUT_S = 10.0  # the engine answers within milliseconds; a loaded machine may need seconds
READ_MAX = 1000  # the limit of GetRecords
_OK = 200
_DATE = "20260101"  # any date is accepted, because the engine does not check the signature
SHARDS_EVERY_S = 5.0  # the interval at which shards are listed; they only change every few hours
RETRY_FIRST_S, RETRY_MAX_S = 0.2, 5.0  # exponential delays, as on Lambda (undocumented)
TROUBLE_S = 0.5  # the pause after the engine did not answer, because it is starting or has ended
Deliver = Callable[[bytes], Awaitable[Answer]]


class NotRead(Exception):
    """The engine refused the request or did not answer."""


@dataclass(frozen=True, slots=True)
class Page:
    """Records, and the iterator *after* them, which is None at the end of the shard."""

    records: Sequence[Mapping[str, Any]]
    after: str | None


class StreamReader:
    """One connection to the engine, for one thread at a time; it is opened again when needed."""

    def __init__(self, endpoint_url: str) -> None:
        parts = urlsplit(endpoint_url)
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._connection = kind(parts.netloc, timeout=TIMEOUT_S)
        self._path = parts.path or "/"
        self._headers = _signed_headers(endpoint_url)

    def read(self, iterator: str) -> Page:
        """Return the records at *iterator*.

        Raises:
            NotRead: the engine does not answer, or *iterator* has expired.
        """
        body = json.dumps({"ShardIterator": iterator, "Limit": READ_MAX}).encode()
        try:
            status, text = self._answer_with_retry(body)
            answer = json.loads(text) if status == _OK else None
        except (OSError, HTTPException, ValueError) as error:
            self.close()
            raise NotRead(str(error)) from None
        if answer is None:
            raise NotRead(f"status {status}")
        return Page(answer["Records"], answer.get("NextShardIterator"))

    def close(self) -> None:
        self._connection.close()

    def _answer_with_retry(self, body: bytes) -> tuple[int, bytes]:
        try:
            return self._answer(body)
        except (BrokenPipeError, ConnectionResetError):  # the connection was closed while idle
            self.close()
            return self._answer(body)

    def _answer(self, body: bytes) -> tuple[int, bytes]:
        self._connection.request("POST", self._path, body, self._headers)
        answer = self._connection.getresponse()
        return answer.status, answer.read()


def _signed_headers(endpoint_url: str) -> dict[str, str]:
    shown = twin_keys.credentials(endpoint_url)
    scope = f"{shown['aws_access_key_id']}/{_DATE}/{shown['region_name']}/dynamodb/aws4_request"
    return {
        "Content-Type": "application/x-amz-json-1.0",
        "X-Amz-Target": "DynamoDBStreams_20120810.GetRecords",
        "X-Amz-Date": f"{_DATE}T000000Z",
        "Authorization": f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0",
    }


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a stream: *event* is passed to the function."""

    sequence: str
    created_ms: int
    event: dict[str, object]


@dataclass(frozen=True, slots=True)
class Batch:
    """Records to be tried together; *failures* counts the attempts that used up a retry."""

    records: tuple[Record, ...]
    failures: int = 0


class DiscardReason(Enum):
    """The reason why records were discarded, as sent to the failure destination."""

    RETRIES = "RetryAttemptsExhausted"
    AGE = "RecordAgeExceeded"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an attempt: *todo* has to be tried next, *given_up* has to be discarded."""

    todo: tuple[Batch, ...] = ()
    given_up: Batch | None = None


def first_failure(answer: Answer, batch: Batch) -> int | None:
    """Return the index of the first record that is not done; None if all records are done."""
    if answer.error is not None:
        return 0
    try:
        response = json.loads(answer.payload or b"null")
    except ValueError:
        return 0
    reported = response.get("batchItemFailures") if isinstance(response, dict) else None
    if not reported:
        return None
    if not isinstance(reported, list):
        return 0
    places = {record.sequence: index for index, record in enumerate(batch.records)}
    # An identifier that is empty, missing or unknown fails the whole batch.
    return min(places.get(_identifier(item), 0) for item in reported)


def settle(batch: Batch, failed_at: int | None, *, retries_max: int) -> Outcome:
    """Return the next batches after *batch* was tried and all records from *failed_at* failed."""
    if failed_at is None:
        return Outcome()
    if failed_at > 0:
        return Outcome((Batch(batch.records[failed_at:], batch.failures),))
    if len(batch.records) > 1:
        half = len(batch.records) // 2
        return Outcome(
            (
                Batch(batch.records[:half], batch.failures),
                Batch(batch.records[half:], batch.failures),
            )
        )
    failed = Batch(batch.records, batch.failures + 1)
    if failed.failures > retries_max:
        return Outcome(given_up=failed)
    return Outcome((failed,))


def drop_old(batch: Batch, *, now_ms: int, age_max_s: int) -> tuple[Batch | None, Batch | None]:
    """Split *batch* into the records that are too old and the others; None for an empty part."""
    oldest_ms = now_ms - age_max_s * 1000
    old = tuple(record for record in batch.records if record.created_ms < oldest_ms)
    young = tuple(record for record in batch.records if record.created_ms >= oldest_ms)
    return _batch(old, batch), _batch(young, batch)


def chunks(records: Sequence[Record], size: int) -> list[Batch]:
    return [Batch(tuple(records[i : i + size])) for i in range(0, len(records), size)]


def _batch(records: tuple[Record, ...], of: Batch) -> Batch | None:
    return Batch(records, of.failures) if records else None


def _identifier(item: object) -> str:
    identifier = item.get("itemIdentifier") if isinstance(item, dict) else None
    return identifier if isinstance(identifier, str) else ""


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard of a stream, from which records are read."""

    stream_arn: str
    shard_id: str


def from_stream(record: Mapping[str, Any], stream_arn: str) -> Record:
    """Convert a record of the DynamoDB Streams API to the format of records in a Lambda event."""
    change = record["dynamodb"]
    event: dict[str, object] = {
        "eventID": record["eventID"],
        "eventName": record["eventName"],
        "eventVersion": record["eventVersion"],
        "eventSource": "aws:dynamodb",
        "awsRegion": REGION,
        "dynamodb": change,
        "eventSourceARN": stream_arn,
    }
    if "userIdentity" in record:
        event["userIdentity"] = record["userIdentity"]
    created_ms = int(change["ApproximateCreationDateTime"] * 1000)
    return Record(change["SequenceNumber"], created_ms, event)


def event_of(records: Sequence[Record]) -> bytes:
    return json.dumps({"Records": [record.event for record in records]}).encode()


def save_given_up(
    folder: Path, function_arn: str, shard: Shard, batch: Batch, condition: DiscardReason
) -> Path:
    """Write the document that Lambda would store in the failure destination; return its file."""
    now_ms = clock.now_ms()
    moment = clock.moment(now_ms)
    name = f"{moment:%Y-%m-%dT%H.%M.%S}-{clock.new_uuid()}.json"
    file = folder / function_arn.rpartition(":")[2] / shard.shard_id / f"{moment:%Y/%m/%d}" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(_given_up(shard, function_arn, batch, condition, now_ms), indent=1))
    return file


def _given_up(
    shard: Shard, function_arn: str, batch: Batch, condition: DiscardReason, now_ms: int
) -> Mapping[str, object]:
    first, last = batch.records[0], batch.records[-1]
    return {
        "requestContext": {
            "requestId": clock.new_uuid(),
            "functionArn": function_arn,
            "condition": condition.value,
            "approximateInvokeCount": batch.failures,
        },
        "responseContext": {
            "statusCode": 200,
            "executedVersion": "$LATEST",
            "functionError": "Unhandled",
        },
        "version": "1.0",
        "timestamp": clock.iso(now_ms),
        "DDBStreamBatchInfo": {
            "shardId": shard.shard_id,
            "startSequenceNumber": first.sequence,
            "endSequenceNumber": last.sequence,
            "approximateArrivalOfFirstRecord": clock.iso(first.created_ms),
            "approximateArrivalOfLastRecord": clock.iso(last.created_ms),
            "batchSize": len(batch.records),
            "streamArn": shard.stream_arn,
        },
        "payload": event_of(batch.records).decode(),
    }


GiveUp = Callable[[Shard, Batch, DiscardReason], object]


@dataclass(slots=True)
class _Reading:
    """The position in a shard; if *iterator* is None, request a new one after *sequence*."""

    shard: Shard
    reader: StreamReader
    iterator: str | None = None
    sequence: str | None = None
    closed: bool = False


def ready_shards(
    parents: Mapping[str, str | None], *, followed: Collection[str], finished: Collection[str]
) -> list[str]:
    """Return the shards that may be read now: not *followed*, with a *finished* parent.

    *parents* contains the parent of each shard of the stream. A parent that was trimmed from the
    stream does not block its children.
    """
    return [
        shard
        for shard, parent in parents.items()
        if shard not in followed and (parent not in parents or parent in finished)
    ]


class StreamPoller:
    """One event source mapping, which passes the records of the stream of *source* to *deliver*."""

    def __init__(
        self,
        *,
        source: StreamSource,
        client: DynamoDBStreamsClient,
        stream_arn: str,
        deliver: Deliver,
        give_up: GiveUp,
        interval: PollInterval,
        retry_first_s: float = RETRY_FIRST_S,
    ) -> None:
        self._source = source
        self._client = client
        self._stream_arn = stream_arn
        self._deliver = deliver
        self._give_up = give_up
        self._interval = interval
        self._retry_first_s = retry_first_s
        self._shards: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Poll until cancelled."""
        try:
            while True:
                for shard in await self._ready_shards():
                    self._shards[shard.shard_id] = asyncio.ensure_future(self._follow(shard))
                # When a shard has been read to its end, its children become ready.
                running = [task for task in self._shards.values() if not task.done()]
                if running:
                    await asyncio.wait(
                        running, timeout=SHARDS_EVERY_S, return_when=asyncio.FIRST_COMPLETED
                    )
                else:
                    await asyncio.sleep(TROUBLE_S)
        finally:
            for task in self._shards.values():
                task.cancel()
            await asyncio.gather(*self._shards.values(), return_exceptions=True)

    async def process(self, shard: Shard, batch: Batch) -> None:
        """Try *batch* until each of its records is done or discarded."""
        todo = deque([batch])
        while todo:
            tried = todo.popleft()
            old, left = drop_old(tried, now_ms=clock.now_ms(), age_max_s=self._source.age_max_s)
            if old is not None:
                self._give_up(shard, old, DiscardReason.AGE)
            if left is not None:
                todo.extendleft(reversed(await self._try(shard, left)))

    async def _try(self, shard: Shard, batch: Batch) -> tuple[Batch, ...]:
        if batch.failures:
            pause_s = self._retry_first_s * 2 ** (batch.failures - 1)
            await asyncio.sleep(min(pause_s, RETRY_MAX_S))
        answer = await self._deliver(event_of(batch.records))
        failed_at = first_failure(answer, batch)
        outcome = settle(batch, failed_at, retries_max=self._source.retries_max)
        if outcome.given_up is not None:
            self._give_up(shard, outcome.given_up, DiscardReason.RETRIES)
        return outcome.todo

    async def _ready_shards(self) -> list[Shard]:
        """List the shards of the stream; return those that may be read now, see `ready_shards`."""
        try:
            listed = await asyncio.to_thread(self._list_shards)
        except (BotoCoreError, ClientError):
            return []
        finished = {name for name, task in self._shards.items() if task.done()}
        parents = {shard["ShardId"]: shard.get("ParentShardId") for shard in listed}
        names = ready_shards(parents, followed=self._shards, finished=finished)
        return [Shard(self._stream_arn, name) for name in names]

    def _list_shards(self) -> list[ShardTypeDef]:
        shards: list[ShardTypeDef] = []
        page = self._client.describe_stream(StreamArn=self._stream_arn)["StreamDescription"]
        shards += page["Shards"]
        while last := page.get("LastEvaluatedShardId"):
            page = self._client.describe_stream(
                StreamArn=self._stream_arn, ExclusiveStartShardId=last
            )["StreamDescription"]
            shards += page["Shards"]
        return shards

    async def _follow(self, shard: Shard) -> None:
        reader = StreamReader(self._client.meta.endpoint_url)
        reading = _Reading(shard, reader)
        try:
            while not reading.closed:
                records = await self._gather(reading)
                for batch in chunks(records, self._source.batch_size):
                    await self.process(shard, batch)
        finally:
            reader.close()

    async def _gather(self, reading: _Reading) -> list[Record]:
        """Read until a batch is complete, or the window after its first record has passed."""
        records: list[Record] = []
        until_s: float | None = None
        loop = asyncio.get_running_loop()
        while not reading.closed and len(records) < self._source.batch_size:
            page = await asyncio.to_thread(self._read, reading)
            records += page
            if records and until_s is None:
                until_s = loop.time() + self._source.window_s
            if until_s is not None and loop.time() >= until_s:
                break
            if not page:
                await (self._interval.pause() if reading.iterator else asyncio.sleep(TROUBLE_S))
        return records

    def _read(self, reading: _Reading) -> list[Record]:
        try:
            iterator = reading.iterator or self._iterator(reading)
            page = reading.reader.read(iterator)
        except (BotoCoreError, ClientError, NotRead):
            # An iterator expires after 15 minutes; a new iterator continues at the same position.
            reading.iterator = None
            return []
        return self._take(reading, page)

    def _take(self, reading: _Reading, page: Page) -> list[Record]:
        reading.iterator = page.after
        reading.closed = page.after is None
        records = [from_stream(record, self._stream_arn) for record in page.records]
        if records:
            reading.sequence = records[-1].sequence
        return [each for each in records if each.event["eventName"] in self._source.kinds]

    def _iterator(self, reading: _Reading) -> str:
        request: GetShardIteratorInputTypeDef = {
            "StreamArn": self._stream_arn,
            "ShardId": reading.shard.shard_id,
            "ShardIteratorType": "TRIM_HORIZON",
        }
        if reading.sequence is not None:
            request["ShardIteratorType"] = "AFTER_SEQUENCE_NUMBER"
            request["SequenceNumber"] = reading.sequence
        return self._client.get_shard_iterator(**request)["ShardIterator"]

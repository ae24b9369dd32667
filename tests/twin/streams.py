"""Event source mappings: they invoke a function with records of a DynamoDB stream, as Lambda does.

Reading starts at TRIM_HORIZON. Records are delivered at least once, by one invocation at a time per
shard, and a shard is read only after its parent.

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
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from botocore.exceptions import BotoCoreError, ClientError

from tests.twin.environment import REGION
from tests.twin.lambda_api import Answer
from tidings.aws.config.deployment import StreamSource
from tidings.aws.effects import now_ms

if TYPE_CHECKING:
    from mypy_boto3_dynamodbstreams import DynamoDBStreamsClient
    from mypy_boto3_dynamodbstreams.type_defs import GetShardIteratorInputTypeDef

# AWS polls a shard 4 times a second. A test waits for every wake-up, so the twin polls more often
# while functions run.
IDLE_S = 0.25  # interval while no function runs, as on AWS; writes of other programs wait for it
BUSY_S = 0.05  # the interval while functions run
STIRRED_S = 1.0  # polling stays frequent for this time after a function began or ended
TIMEOUT_S = 10.0  # the engine answers within milliseconds; a loaded machine may need seconds
READ_MAX = 1000  # the limit of GetRecords
SHARDS_EVERY_S = 5.0  # the interval at which shards are listed; they only change every few hours
RETRY_FIRST_S, RETRY_MAX_S = 0.2, 5.0  # exponential delays, as on Lambda (undocumented)
TROUBLE_S = 0.5  # the pause after the engine did not answer, because it is starting or has ended
# The engine checks no signature, but needs the header.
_HEADERS = {
    "Content-Type": "application/x-amz-json-1.0",
    "X-Amz-Target": "DynamoDBStreams_20120810.GetRecords",
    "X-Amz-Date": "20260101T000000Z",
    "Authorization": f"AWS4-HMAC-SHA256 Credential=local/20260101/{REGION}/dynamodb/aws4_request,"
    " SignedHeaders=host, Signature=0",
}
Deliver = Callable[[bytes], Awaitable[Answer]]
log = logging.getLogger(__name__)


class PollInterval:
    """The pause between polls, which is shorter while functions run."""

    def __init__(self, *, idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        self._stirred_at: float | None = None
        self._stirring = asyncio.Event()

    def stir(self) -> None:
        """Make the paused pollers poll at once, and all pollers more often for `STIRRED_S`."""
        self._stirred_at = asyncio.get_running_loop().time()
        self._stirring.set()
        self._stirring = asyncio.Event()

    async def pause(self) -> None:
        try:
            now = asyncio.get_running_loop().time()
            stirred = self._stirred_at is not None and now - self._stirred_at < STIRRED_S
            await asyncio.wait_for(self._stirring.wait(), BUSY_S if stirred else self._idle_s)
        except TimeoutError:
            return


class NotRead(Exception):
    """The engine refused the request or did not answer."""


class StreamReader:
    """One connection to the engine, for one thread at a time; it is opened again when needed.

    It does not use boto3, because GetRecords is called often and mostly returns nothing. For an
    empty answer, boto3 takes 3 ms of CPU and this class 0.3 ms. Lambda's events consist of the JSON
    of the answer.
    """

    def __init__(self, endpoint_url: str) -> None:
        self._connection = HTTPConnection(urlsplit(endpoint_url).netloc, timeout=TIMEOUT_S)

    def read(self, iterator: str) -> tuple[list[Mapping[str, Any]], str | None]:
        """Return the records at *iterator*, and the iterator after them, None at the shard's end.

        Raises:
            NotRead: the engine does not answer, or *iterator* has expired.
        """
        body = json.dumps({"ShardIterator": iterator, "Limit": READ_MAX}).encode()
        try:
            self._connection.request("POST", "/", body, _HEADERS)
            answer = self._connection.getresponse()
            found = json.loads(answer.read())
            return found["Records"], found.get("NextShardIterator")
        except (OSError, HTTPException, ValueError, KeyError) as error:
            self.close()
            raise NotRead(repr(error)) from None

    def close(self) -> None:
        self._connection.close()


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
    return min(places.get(item.get("itemIdentifier"), 0) for item in reported)


def settle(batch: Batch, failed_at: int | None, *, retries_max: int) -> Outcome:
    """Return the next batches after *batch* was tried and all records from *failed_at* failed."""
    if failed_at is None:
        return Outcome()
    if failed_at > 0:
        return Outcome((Batch(batch.records[failed_at:], batch.failures),))
    if len(batch.records) > 1:
        half = len(batch.records) // 2
        halves = batch.records[:half], batch.records[half:]
        return Outcome(tuple(Batch(each, batch.failures) for each in halves))
    failed = Batch(batch.records, batch.failures + 1)
    return Outcome(given_up=failed) if failed.failures > retries_max else Outcome((failed,))


def drop_old(batch: Batch, *, now_ms: int, age_max_s: int) -> tuple[Batch | None, Batch | None]:
    """Split *batch* into the records that are too old and the others; None for an empty part."""
    oldest_ms = now_ms - age_max_s * 1000
    old = tuple(record for record in batch.records if record.created_ms < oldest_ms)
    young = tuple(record for record in batch.records if record.created_ms >= oldest_ms)
    return tuple(Batch(each, batch.failures) if each else None for each in (old, young))  # type: ignore[return-value]


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


def report_given_up(batch: Batch, reason: DiscardReason) -> None:
    """Log the records that Lambda would store in the failure destination."""
    log.error("discarded (%s): %s", reason.value, event_of(batch.records).decode())


@dataclass(slots=True)
class _Reading:
    """The position in a shard; if *iterator* is None, request a new one after *sequence*."""

    shard: str
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
        interval: PollInterval,
        give_up: Callable[[Batch, DiscardReason], object] = report_given_up,
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
                    self._shards[shard] = asyncio.ensure_future(self._follow(shard))
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

    async def process(self, batch: Batch) -> None:
        """Try *batch* until each of its records is done or discarded."""
        todo = deque([batch])
        while todo:
            tried = todo.popleft()
            old, left = drop_old(tried, now_ms=now_ms(), age_max_s=self._source.age_max_s)
            if old is not None:
                self._give_up(old, DiscardReason.AGE)
            if left is not None:
                todo.extendleft(reversed(await self._try(left)))

    async def _try(self, batch: Batch) -> tuple[Batch, ...]:
        if batch.failures:
            pause_s = self._retry_first_s * 2 ** (batch.failures - 1)
            await asyncio.sleep(min(pause_s, RETRY_MAX_S))
        answer = await self._deliver(event_of(batch.records))
        failed_at = first_failure(answer, batch)
        outcome = settle(batch, failed_at, retries_max=self._source.retries_max)
        if outcome.given_up is not None:
            self._give_up(outcome.given_up, DiscardReason.RETRIES)
        return outcome.todo

    async def _ready_shards(self) -> list[str]:
        """List the shards of the stream; return those that may be read now, see `ready_shards`."""
        try:
            answer = await asyncio.to_thread(
                self._client.describe_stream, StreamArn=self._stream_arn
            )
        except (BotoCoreError, ClientError):
            return []
        finished = {name for name, task in self._shards.items() if task.done()}
        listed = answer["StreamDescription"]["Shards"]
        parents = {shard["ShardId"]: shard.get("ParentShardId") for shard in listed}
        return ready_shards(parents, followed=self._shards, finished=finished)

    async def _follow(self, shard: str) -> None:
        reading = _Reading(shard, StreamReader(self._client.meta.endpoint_url))
        size = self._source.batch_size
        try:
            while not reading.closed:
                records = await self._gather(reading)
                for first in range(0, len(records), size):
                    await self.process(Batch(tuple(records[first : first + size])))
        finally:
            reading.reader.close()

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
            found, after = reading.reader.read(reading.iterator or self._iterator(reading))
        except (BotoCoreError, ClientError, NotRead):
            # An iterator expires after 15 minutes; a new iterator continues at the same position.
            reading.iterator = None
            return []
        reading.iterator, reading.closed = after, after is None
        records = [from_stream(record, self._stream_arn) for record in found]
        if records:
            reading.sequence = records[-1].sequence
        return [each for each in records if each.event["eventName"] in self._source.kinds]

    def _iterator(self, reading: _Reading) -> str:
        request: GetShardIteratorInputTypeDef = {
            "StreamArn": self._stream_arn,
            "ShardId": reading.shard,
            "ShardIteratorType": "TRIM_HORIZON",
        }
        if reading.sequence is not None:
            request["ShardIteratorType"] = "AFTER_SEQUENCE_NUMBER"
            request["SequenceNumber"] = reading.sequence
        return self._client.get_shard_iterator(**request)["ShardIterator"]

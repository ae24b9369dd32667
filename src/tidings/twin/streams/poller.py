"""
Event source mappings: a DynamoDB stream invokes a function, like Lambda's own pollers.

Reading starts at TRIM_HORIZON. Records are delivered at least once, by one invocation at a time per
shard, and a shard is read only after its parent. `batches` decides what follows a failure.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError  # noqa: TID251 see engine.py

from tidings.aws.config.deployment import StreamSource
from tidings.twin import clock
from tidings.twin.lambdas.runtime_api import Answer
from tidings.twin.pace import Pace
from tidings.twin.streams import batches
from tidings.twin.streams.batches import Batch, Condition, Record
from tidings.twin.streams.reader import NotRead, Page, StreamReader
from tidings.twin.streams.records import Shard, event_of, from_stream

if TYPE_CHECKING:
    from mypy_boto3_dynamodbstreams import DynamoDBStreamsClient
    from mypy_boto3_dynamodbstreams.type_defs import (
        GetShardIteratorInputTypeDef,
        ShardTypeDef,
    )

SHARDS_EVERY_S = 5.0  # a shard is split or closed every few hours
RETRY_FIRST_S, RETRY_MAX_S = 0.2, 5.0  # Lambda backs off exponentially, by undocumented times
TROUBLE_S = 0.5  # the engine does not answer: it is starting, or gone

Deliver = Callable[[bytes], Awaitable[Answer]]
GiveUp = Callable[[Shard, Batch, Condition], object]


@dataclass(slots=True)
class _Reading:
    """The position in a shard. *iterator* None: request a new one after *sequence*."""

    shard: Shard
    reader: StreamReader
    iterator: str | None = None
    sequence: str | None = None
    closed: bool = False


def ready_shards(
    parents: Mapping[str, str | None], *, followed: Collection[str], finished: Collection[str]
) -> list[str]:
    """
    Return the shards that may be read now: not yet *followed*, and the parent *finished*.

    *parents* contains the parent of each shard of the stream; a parent that has been trimmed does
    not block its children.
    """
    return [
        shard
        for shard, parent in parents.items()
        if shard not in followed and (parent not in parents or parent in finished)
    ]


class StreamPoller:
    """One event source mapping: from the stream of *source* to *deliver*."""

    def __init__(
        self,
        source: StreamSource,
        client: DynamoDBStreamsClient,
        stream_arn: str,
        deliver: Deliver,
        give_up: GiveUp,
        pace: Pace,
        *,
        retry_first_s: float = RETRY_FIRST_S,
    ) -> None:
        self._source = source
        self._client = client
        self._stream_arn = stream_arn
        self._deliver = deliver
        self._give_up = give_up
        self._pace = pace
        self._retry_first_s = retry_first_s
        self._shards: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Poll until cancelled."""
        try:
            while True:
                for shard in await self._ready_shards():
                    self._shards[shard.shard_id] = asyncio.ensure_future(self._follow(shard))
                # A shard that has been read to its end lets its children start.
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
            old, left = batches.drop_old(
                tried, now_ms=clock.now_ms(), age_max_s=self._source.age_max_s
            )
            if old is not None:
                self._give_up(shard, old, Condition.AGE)
            if left is not None:
                todo.extendleft(reversed(await self._try(shard, left)))

    async def _try(self, shard: Shard, batch: Batch) -> tuple[Batch, ...]:
        if batch.failures:
            pause_s = self._retry_first_s * 2 ** (batch.failures - 1)
            await asyncio.sleep(min(pause_s, RETRY_MAX_S))
        answer = await self._deliver(event_of(batch.records))
        failed_at = batches.first_failure(answer, batch)
        outcome = batches.settle(batch, failed_at, retries_max=self._source.retries_max)
        if outcome.given_up is not None:
            self._give_up(shard, outcome.given_up, Condition.RETRIES)
        return outcome.todo

    async def _ready_shards(self) -> list[Shard]:
        """
        Return the shards that are not yet followed and have a parent that was read to its end.
        """
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
                for batch in batches.chunks(records, self._source.batch_size):
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
                await (self._pace.pause() if reading.iterator else asyncio.sleep(TROUBLE_S))
        return records

    def _read(self, reading: _Reading) -> list[Record]:
        try:
            iterator = reading.iterator or self._iterator(reading)
            page = reading.reader.read(iterator)
        except (BotoCoreError, ClientError, NotRead):
            # An iterator expires after 15 minutes; a new one continues at the same position.
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

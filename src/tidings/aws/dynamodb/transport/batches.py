"""
Batch writes and reads of many items, in concurrent requests, repeated until all are processed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tidings.aws.dynamodb.attributes import Item
from tidings.aws.runtime.aws_errors import translated
from tidings.aws.runtime.thread_pool import Threads
from tidings.core.effects import Sleep
from tidings.core.errors import Unavailable

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_PUTS = 25  # maximum of BatchWriteItem
_GETS = 100  # maximum of BatchGetItem
_THREADS = 4  # 8 gain nothing (measured)
_ATTEMPTS_MAX = 8  # six seconds of refusals, within a follower's time limit
_FIRST_WAIT_MS = 50  # doubled after each attempt


class Batches:
    """Items of one table. *client* must not retry requests: puts have no condition."""

    def __init__(self, client: DynamoDBClient, table: str, sleep: Sleep) -> None:
        self._client, self._table, self._sleep = client, table, sleep
        self._threads = Threads(_THREADS)

    def put(self, items: Sequence[Item]) -> None:
        self._spread(self._put, [{"PutRequest": {"Item": item}} for item in items], _PUTS)

    def get(self, keys: Sequence[Item]) -> list[Item]:
        """
        Return the existing items, strongly consistent, in any order. The keys must be distinct.
        """
        items: list[Item] = []

        def get(batch: list[Item]) -> None:
            self._repeat(lambda left: self._get(left, items), batch)

        self._spread(get, keys, _GETS)
        return items

    def _spread(self, task: Callable[[list[Item]], None], items: Sequence[Item], size: int) -> None:
        batches = [list(items[at : at + size]) for at in range(0, len(items), size)]
        if len(batches) == 1:
            task(batches[0])
        else:
            self._threads(task, batches)

    def _put(self, batch: list[Item]) -> None:
        self._repeat(self._put_once, batch)

    def _repeat(self, call: Callable[[list[Item]], list[Item]], batch: list[Item]) -> None:
        """Call *call* with the unprocessed rest of *batch* again, after increasing pauses."""
        left = batch
        for attempt in range(_ATTEMPTS_MAX):
            if attempt:
                self._sleep(_FIRST_WAIT_MS << (attempt - 1))
            left = call(left)
            if not left:
                return
        raise Unavailable(f"{len(left)} items of a batch were refused {_ATTEMPTS_MAX} times")

    def _put_once(self, puts: list[Item]) -> list[Item]:
        with translated():
            answer = self._client.batch_write_item(RequestItems={self._table: puts})  # type: ignore[dict-item]
        return list(answer.get("UnprocessedItems", {}).get(self._table, []))  # type: ignore[arg-type]

    def _get(self, keys: list[Item], items: list[Item]) -> list[Item]:
        """Append the found items to *items*; return the unprocessed keys."""
        with translated():
            answer = self._client.batch_get_item(
                RequestItems={self._table: {"Keys": keys, "ConsistentRead": True}}
            )
        items += answer["Responses"].get(self._table, [])
        refused = answer.get("UnprocessedKeys", {})
        return list(refused[self._table]["Keys"]) if self._table in refused else []

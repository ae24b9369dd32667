"""
Conditional puts of many items, one request per item.

DynamoDB has no batch with conditions at the same price (docs/adr/0037). Therefore, many requests
run concurrently. The conditions make it safe to repeat a request, and to receive it late.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from botocore.exceptions import HTTPClientError

from tidings.aws.dynamodb.transport.requests import Requests
from tidings.aws.dynamodb.transport.table import conditional
from tidings.aws.runtime.aws_errors import ConditionFailed, translated
from tidings.aws.runtime.thread_pool import Threads
from tidings.core.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mypy_boto3_dynamodb import DynamoDBClient

    from tidings.aws.dynamodb.attributes import Item
    from tidings.core.effects import Sleep

_UNDER_WAY = 24  # 6,000 a second at 4 ms each; more of them take more of our CPU per put
_UNANSWERED_MAX = 2  # of three seconds each, within a follower's time limit
_ATTEMPTS_MAX = 8  # six seconds of refusals, likewise
_FIRST_WAIT_MS = 50  # doubled after each attempt
_TELLING_OLD = {"ReturnValues": "ALL_OLD"}  # free of charge


@dataclass(frozen=True, slots=True)
class Condition:
    """The condition on the existing item of a write."""

    expression: str
    values: Item = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Put:
    item: Item
    condition: Condition


class Puts:
    """Puts to one table. The caller puts the same item at most once at a time."""

    def __init__(self, client: DynamoDBClient, table: str, sleep: Sleep) -> None:
        self._requests, self._table, self._sleep = Requests(client), table, sleep
        self._threads = Threads(_UNDER_WAY)

    def __call__(self, puts: Sequence[Put]) -> list[bool]:
        """
        Return for each put if its item is now stored, by this call or another one.

        Raises:
            Unavailable: the result of some puts is unknown; the others may have succeeded.
        """
        return [done for done, _ in self._each(puts, {})]

    def replaced(self, puts: Sequence[Put]) -> list[Item | None]:
        """
        Return for each put the replaced item, empty if it was missing; None if the put was refused.

        Raises:
            Unavailable: see `__call__`.
        """
        return [item for _, item in self._each(puts, _TELLING_OLD)]

    def _each(
        self, puts: Sequence[Put], telling: Mapping[str, str]
    ) -> list[tuple[bool, Item | None]]:
        answers: list[tuple[bool, Item | None]] = [(False, None)] * len(puts)

        def each(first: int) -> None:
            for at in range(first, len(puts), _UNDER_WAY):
                answers[at] = self._put(puts[at], telling)

        self._threads(each, range(min(len(puts), _UNDER_WAY)))
        return answers

    def _put(self, put: Put, telling: Mapping[str, str]) -> tuple[bool, Item | None]:
        """
        Return True if the item is stored, and the replaced item; None if another request replaced
        it.
        """
        condition = conditional(put.condition.expression, put.condition.values)
        params = {"TableName": self._table, "Item": put.item, **condition, **telling}
        unanswered = 0
        for attempt in range(_ATTEMPTS_MAX):
            if attempt:
                self._sleep(_FIRST_WAIT_MS << (attempt - 1))
            try:
                with translated():
                    answer = self._requests.ask("PutItem", params)
            except ConditionFailed as failed:
                return failed.item == put.item, None
            except Unavailable as error:
                unanswered += isinstance(error.__cause__, HTTPClientError)
                if unanswered == _UNANSWERED_MAX:
                    raise
                refused = error
            else:
                return True, answer.get("Attributes", {})
        raise refused

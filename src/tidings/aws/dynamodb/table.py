"""Send requests to one table of DynamoDB.

Every method raises `ConditionFailed` and `Unavailable`; see `translate_errors`. In an expression,
`#page` is the name of the attribute `page`, and `:page` is the value that is passed as `:page`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tidings.aws.clients import ConditionFailed, translate_errors
from tidings.aws.dynamodb.attributes import Item, number, text
from tidings.aws.effects import Threads
from tidings.core.effects import Sleep
from tidings.core.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import QueryOutputTypeDef


_NAME = re.compile(r"#(\w+)")
_OF_KIND = "#kind = :kind"


@lru_cache(maxsize=256)  # the code has some sixty expressions
def _names(expression: str) -> dict[str, str]:
    return {f"#{name}": name for name in _NAME.findall(expression)}


def expressions(values: Item | None = None, **given: str) -> dict[str, Any]:
    """Return the request parameters for the non-empty expressions of *given*."""
    params: dict[str, Any] = {kind: each for kind, each in given.items() if each}
    names: dict[str, str] = {}
    for each in params.values():
        names |= _names(each)
    if names:
        params["ExpressionAttributeNames"] = names
    if values:
        params["ExpressionAttributeValues"] = values
    return params


def conditional(condition: str, values: Item | None = None, update: str = "") -> dict[str, Any]:
    """Return the parameters of a conditional write. Its refusal contains the existing item."""
    params = expressions(values, ConditionExpression=condition, UpdateExpression=update)
    return params | ({"ReturnValuesOnConditionCheckFailure": "ALL_OLD"} if condition else {})


class Table:
    """The table with the name *name*. *client* sends the requests."""

    def __init__(self, client: DynamoDBClient, name: str) -> None:
        self.client, self.name = client, name

    def get(self, key: Item, *, consistent: bool = True) -> Item | None:
        with translate_errors():
            answer = self.client.get_item(TableName=self.name, Key=key, ConsistentRead=consistent)
        return answer.get("Item")

    def put(
        self, item: Item, condition: str = "", values: Item | None = None, returns: str = "NONE"
    ) -> Item:
        """Put *item*; return the attributes selected by *returns*."""
        params: Any = {"Item": item, "ReturnValues": returns, **conditional(condition, values)}
        with translate_errors():
            return self.client.put_item(TableName=self.name, **params).get("Attributes", {})

    def put_over(self, item: Item, version: int) -> bool:
        """Put *item* and return True if the existing item has *version*, or else return False.

        If the answer of the first attempt is lost, botocore repeats the put, and the existing item
        is *item*. Also return True then.
        """
        try:
            self.put(item, "#version = :version", {":version": number(version)})
        except ConditionFailed as failed:
            return failed.retried and failed.item == item
        return True

    def update(
        self, key: Item, update: str, values: Item, condition: str = "", returns: str = "NONE"
    ) -> Item:
        """Update the item; return the attributes selected by *returns*."""
        params: Any = {"Key": key, "ReturnValues": returns}
        params |= conditional(condition, values, update)
        with translate_errors():
            return self.client.update_item(TableName=self.name, **params).get("Attributes", {})

    def raise_page(self, key: Item, page: int) -> None:
        """Set the attribute `page` of the item to *page*, unless it is already higher."""
        unless_later = "attribute_not_exists(#page) OR #page < :page"
        try:
            self.update(key, "SET #page = :page", {":page": number(page)}, unless_later)
        except ConditionFailed:
            return

    def delete(
        self, key: Item, condition: str = "", values: Item | None = None, returns: str = "NONE"
    ) -> Item:
        """Delete the item; return the attributes selected by *returns*."""
        params: Any = {"Key": key, "ReturnValues": returns, **conditional(condition, values)}
        with translate_errors():
            return self.client.delete_item(TableName=self.name, **params).get("Attributes", {})

    def write_together(self, *writes: dict[str, Any]) -> bool:
        """Run a transaction of *writes*, each with its table; return False if a condition fails.

        Raises:
            Unavailable: the transaction was cancelled for another reason.
        """
        try:
            with translate_errors():
                self.client.transact_write_items(TransactItems=writes)  # type: ignore[arg-type]
        except ConditionFailed:
            return False
        return True

    def page(
        self,
        condition: str,
        values: Item,
        fields: str = "",
        *,
        consistent: bool = True,
        **more: Any,
    ) -> QueryOutputTypeDef:
        """Query one page of the items that meet *condition*, with all attributes or *fields*."""
        params = expressions(values, KeyConditionExpression=condition, ProjectionExpression=fields)
        with translate_errors():
            return self.client.query(
                TableName=self.name, ConsistentRead=consistent, **params, **more
            )

    def items(self, condition: str, values: Item, fields: str = "", **more: Any) -> Iterator[Item]:
        """Yield all items with a key that meets *condition*. Every read is strongly consistent."""
        start: Item = {}
        while True:
            answer = self.page(condition, values, fields, **more, **start)
            yield from answer["Items"]
            if "LastEvaluatedKey" not in answer:
                return
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}

    def of_kind(self, kind: str, prefix: str | None = None) -> list[Item]:
        """Return all items of *kind*, or those with names that begin with *prefix*, in name order.

        The read is strongly consistent.
        """
        if prefix is None:
            return list(self.items(_OF_KIND, {":kind": text(kind)}))
        values = {":kind": text(kind), ":prefix": text(prefix)}
        return list(self.items(f"{_OF_KIND} AND begins_with(#name, :prefix)", values))

    def few_of_kind(self, kind: str, at_most: int) -> list[Item] | None:
        """Return all items of *kind*, or None if there are more than *at_most*.

        This takes one request, which is strongly consistent.
        """
        # Request one more item, because a query that reaches its limit does not report whether
        # more items exist.
        answer = self.page(_OF_KIND, {":kind": text(kind)}, Limit=at_most + 1)
        more = "LastEvaluatedKey" in answer or len(answer["Items"]) > at_most
        return None if more else list(answer["Items"])

    def first_of_kind(self, kind: str, at_most: int) -> list[Item]:
        """Return the first items of *kind*, with one strongly consistent request."""
        return list(self.page(_OF_KIND, {":kind": text(kind)}, Limit=at_most)["Items"])


class TableStore:
    """The base class of a store that has all its items in one table, *table*."""

    def __init__(self, client: DynamoDBClient, table: str) -> None:
        self._table = Table(client, table)

    @property
    def table(self) -> Table:
        return self._table


_WRITES = 25  # DynamoDB's maximum number of items in a BatchWriteItem
_GETS = 100  # DynamoDB's maximum number of items in a BatchGetItem
_THREADS = 4  # threads that send batches; in a measurement, 8 threads were not faster
_ATTEMPTS_MAX = 8  # maximum attempts; the pauses, 6 s in total, fit a follower's time limit
_FIRST_WAIT_MS = 50  # the pause after the first attempt; each later pause is twice as long


class Batches:
    """Reads and writes of many items of one table by batch requests.

    *client* must not retry requests, because the puts have no condition.
    """

    def __init__(self, client: DynamoDBClient, table: str, sleep: Sleep) -> None:
        self._client, self._table, self._sleep = client, table, sleep
        self._threads = Threads(_THREADS)

    def put(self, items: Sequence[Item]) -> None:
        self._spread(self._write, [{"PutRequest": {"Item": item}} for item in items], _WRITES)

    def delete(self, keys: Sequence[Item]) -> None:
        """Delete the items with these distinct keys; ignore those that do not exist."""
        self._spread(self._write, [{"DeleteRequest": {"Key": key}} for key in keys], _WRITES)

    def get(self, keys: Sequence[Item]) -> list[Item]:
        """Return the existing items, strongly consistent, in any order. Keys must be distinct."""
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

    def _write(self, batch: list[Item]) -> None:
        self._repeat(self._write_once, batch)

    def _repeat(self, call: Callable[[list[Item]], list[Item]], batch: list[Item]) -> None:
        """Call *call* with *batch*, and again with the unprocessed rest, after growing pauses."""
        left = batch
        for attempt in range(_ATTEMPTS_MAX):
            if attempt:
                self._sleep(_FIRST_WAIT_MS << (attempt - 1))
            left = call(left)
            if not left:
                return
        raise Unavailable(f"{len(left)} items of a batch were refused {_ATTEMPTS_MAX} times")

    def _write_once(self, writes: list[Item]) -> list[Item]:
        with translate_errors():
            answer = self._client.batch_write_item(RequestItems={self._table: writes})  # type: ignore[dict-item]
        return list(answer.get("UnprocessedItems", {}).get(self._table, []))  # type: ignore[arg-type]

    def _get(self, keys: list[Item], items: list[Item]) -> list[Item]:
        """Append the found items to *items*; return the unprocessed keys."""
        with translate_errors():
            answer = self._client.batch_get_item(
                RequestItems={self._table: {"Keys": keys, "ConsistentRead": True}}
            )
        items += answer["Responses"].get(self._table, [])
        refused = answer.get("UnprocessedKeys", {})
        return list(refused[self._table]["Keys"]) if self._table in refused else []

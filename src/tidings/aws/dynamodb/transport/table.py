"""
One table of DynamoDB. Every method raises `ConditionFailed` and `Unavailable` as `translated` does.

In an expression `#page` is the attribute `page`, and `:page` a value that is passed beside it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tidings.aws.dynamodb.attributes import Item, number, text
from tidings.aws.runtime.aws_errors import ConditionFailed, translated

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
    """The parameters of a request for the expressions *given*, empty ones left out."""
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
    """The parameters of a write; one that is refused returns the item that was there."""
    params = expressions(values, ConditionExpression=condition, UpdateExpression=update)
    return params | ({"ReturnValuesOnConditionCheckFailure": "ALL_OLD"} if condition else {})


def of_version(version: int) -> dict[str, Any]:
    """The parameters of a transaction's write over the item of *version*; 0: over none."""
    if not version:
        return expressions(ConditionExpression="attribute_not_exists(#version)")
    values = {":version": number(version)}
    return expressions(values, ConditionExpression="#version = :version")


class Table:
    """*client* sends the requests; *name* is that of the table."""

    def __init__(self, client: DynamoDBClient, name: str) -> None:
        self.client, self.name = client, name

    def get(self, key: Item, *, consistent: bool = True) -> Item | None:
        with translated():
            answer = self.client.get_item(TableName=self.name, Key=key, ConsistentRead=consistent)
        return answer.get("Item")

    def put(
        self, item: Item, condition: str = "", values: Item | None = None, returns: str = "NONE"
    ) -> Item:
        """The attributes that *returns* asks for."""
        params: Any = {"Item": item, "ReturnValues": returns, **conditional(condition, values)}
        with translated():
            return self.client.put_item(TableName=self.name, **params).get("Attributes", {})

    def put_over(self, item: Item, version: int, *, may_be_new: bool) -> bool:
        """
        Put *item* over that of *version*; False where another one stands there.

        *may_be_new*: also where there is none.
        """
        unwritten = "attribute_not_exists(#version) OR " if may_be_new else ""
        return self.put_once(item, f"{unwritten}#version = :version", {":version": number(version)})

    def put_once(self, item: Item, condition: str, values: Item | None = None) -> bool:
        """False where *condition* does not hold; True also where the answer to ours was lost."""
        try:
            self.put(item, condition, values)
        except ConditionFailed as failed:
            return failed.retried and failed.item == item
        return True

    def update(
        self, key: Item, update: str, values: Item, condition: str = "", returns: str = "NONE"
    ) -> Item:
        """The attributes that *returns* asks for."""
        params: Any = {"Key": key, "ReturnValues": returns}
        params |= conditional(condition, values, update)
        with translated():
            return self.client.update_item(TableName=self.name, **params).get("Attributes", {})

    def raise_page(self, key: Item, page: int) -> None:
        """Let the item of *key* name *page*, unless it names a later one already."""
        unless_later = "attribute_not_exists(#page) OR #page < :page"
        try:
            self.update(key, "SET #page = :page", {":page": number(page)}, unless_later)
        except ConditionFailed:
            return

    def delete(
        self, key: Item, condition: str = "", values: Item | None = None, returns: str = "NONE"
    ) -> Item:
        """The attributes that *returns* asks for."""
        params: Any = {"Key": key, "ReturnValues": returns, **conditional(condition, values)}
        with translated():
            return self.client.delete_item(TableName=self.name, **params).get("Attributes", {})

    def page(
        self,
        condition: str,
        values: Item,
        fields: str = "",
        *,
        consistent: bool = True,
        **more: Any,
    ) -> QueryOutputTypeDef:
        """One page of the items whose key meets *condition*; *fields* of each, or all."""
        params = expressions(values, KeyConditionExpression=condition, ProjectionExpression=fields)
        with translated():
            return self.client.query(
                TableName=self.name, ConsistentRead=consistent, **params, **more
            )

    def items(self, condition: str, values: Item, fields: str = "", **more: Any) -> Iterator[Item]:
        """All the items whose key meets *condition*, as of now."""
        start: Item = {}
        while True:
            answer = self.page(condition, values, fields, **more, **start)
            yield from answer["Items"]
            if "LastEvaluatedKey" not in answer:
                return
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}

    def of_kind(self, kind: str, prefix: str | None = None) -> list[Item]:
        """All items of *kind* whose name begins with *prefix*, in name order, as of now."""
        if prefix is None:
            return list(self.items(_OF_KIND, {":kind": text(kind)}))
        values = {":kind": text(kind), ":prefix": text(prefix)}
        return list(self.items(f"{_OF_KIND} AND begins_with(#name, :prefix)", values))

    def few_of_kind(self, kind: str, at_most: int) -> list[Item] | None:
        """All items of *kind*, as of now, by one request; None if there are more than *at_most*."""
        # One more than may be: at the limit itself DynamoDB does not say whether that was all.
        answer = self.page(_OF_KIND, {":kind": text(kind)}, Limit=at_most + 1)
        more = "LastEvaluatedKey" in answer or len(answer["Items"]) > at_most
        return None if more else list(answer["Items"])


class TableStore:
    """A store whose items are all in the table *table*."""

    def __init__(self, client: DynamoDBClient, table: str) -> None:
        self._table = Table(client, table)

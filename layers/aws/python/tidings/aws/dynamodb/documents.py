"""
What operators have written down, on DynamoDB in the control table.

Key: `sheet#<feed>`, name. `text` is left out where it is empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.aws.dynamodb.items.attributes import (
    Item,
    number,
    number_of,
    text,
    text_of,
    without_empty,
)
from tidings.aws.dynamodb.transport.table import Table
from tidings.core.changeagent.documents import OperatorDocument

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


def item_key(feed: str, name: str) -> Item:
    return {"kind": text(f"sheet#{feed}"), "name": text(name)}


def encode(feed: str, name: str, operator_document: OperatorDocument) -> Item:
    return {
        **item_key(feed, name),
        **without_empty({"text": operator_document.text}),
        "version": number(operator_document.version),
    }


def decode(item: Item) -> OperatorDocument:
    """An empty one where there is no item."""
    return OperatorDocument(text_of(item, "text"), number_of(item, "version"))


class DynamoDBOperatorDocuments:
    """Implements `OperatorDocuments`."""

    def __init__(self, client: DynamoDBClient, table: str) -> None:
        self._table = Table(client, table)

    def operator_document(self, feed: str, name: str) -> OperatorDocument:
        return decode(self._table.get(item_key(feed, name)) or {})

    def write(self, feed: str, name: str, operator_document: OperatorDocument) -> bool:
        version = operator_document.version
        stored = OperatorDocument(operator_document.text, version + 1)
        item = encode(feed, name, stored)
        return self._table.put_over(item, version, may_be_new=version == 0)

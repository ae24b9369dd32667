"""
Operators' documents, on DynamoDB in the control table.

Key: `sheet#<feed>`, name. An empty `text` is left out.
"""

from __future__ import annotations

from tidings.aws.dynamodb.attributes import NUMBER, TEXT, Item, Layout, text
from tidings.aws.dynamodb.transport.table import TableStore
from tidings.core.changeagent.documents import OperatorDocument

_LAYOUT = Layout(OperatorDocument, text=TEXT.sparse, version=NUMBER)


def item_key(feed: str, name: str) -> Item:
    return {"kind": text(f"sheet#{feed}"), "name": text(name)}


def encode(feed: str, name: str, operator_document: OperatorDocument) -> Item:
    return {**item_key(feed, name), **_LAYOUT.encode(operator_document)}


def decode(item: Item) -> OperatorDocument:
    """Return the document in *item*; an empty document if the item is empty."""
    return _LAYOUT.decode(item)


class DynamoDBOperatorDocuments(TableStore):
    """Implements `OperatorDocuments`."""

    def operator_document(self, feed: str, name: str) -> OperatorDocument:
        return decode(self._table.get(item_key(feed, name)) or {})

    def write(self, feed: str, name: str, operator_document: OperatorDocument) -> bool:
        version = operator_document.version
        stored = OperatorDocument(operator_document.text, version + 1)
        item = encode(feed, name, stored)
        return self._table.put_over(item, version, may_be_new=version == 0)

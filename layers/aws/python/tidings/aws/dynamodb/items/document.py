"""
sheet: a text that an operator wrote down for a feed, or with `-` for the whole deployment.

Key: `sheet#<feed>`, name. `text` is left out where it is empty.
"""

from __future__ import annotations

from tidings.aws.dynamodb.items.attributes import (
    Item,
    number,
    number_of,
    text,
    text_of,
    without_empty,
)
from tidings.core.changeagent.documents import OperatorDocument


def key(feed: str, name: str) -> Item:
    return {"kind": text(f"sheet#{feed}"), "name": text(name)}


def encode(feed: str, name: str, operator_document: OperatorDocument) -> Item:
    return {
        **key(feed, name),
        **without_empty({"text": operator_document.text}),
        "version": number(operator_document.version),
    }


def decode(item: Item) -> OperatorDocument:
    """An empty one where there is no item."""
    return OperatorDocument(text_of(item, "text"), number_of(item, "version"))

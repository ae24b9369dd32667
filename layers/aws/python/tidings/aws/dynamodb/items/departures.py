"""
departures: which parents the operations of one page took away from their objects.

Key: `<feed>#left`, page number in 10 hex digits. `body` is JSON (S) or deflated JSON (B). It
expires as the page was to, when it was written.
"""

from __future__ import annotations

from tidings.aws.dynamodb.items.attributes import Item, body, body_of, expiry, text
from tidings.core.state.removed_parents import RemovedParents


def partition(feed: str) -> str:
    return f"{feed}#left"


def page_key(page: int) -> str:
    return f"{page:010x}"


def encode(feed: str, departures: RemovedParents) -> Item:
    return {
        "bucket": text(partition(feed)),
        "key": text(page_key(departures.page)),
        "body": body(departures.body),
        **expiry(departures.expires_ms),
    }


def decode(item: Item) -> RemovedParents:
    return RemovedParents(int(item["key"]["S"], 16), body_of(item["body"]))

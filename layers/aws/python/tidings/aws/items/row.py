"""
row: the latest operation of one object.

Key: `<feed>#<bucket in 2 hex digits>`, object key. (`page`, `slot`) is its position, `at` the
commit time of its page in ms; a deleted object expires, one that lives does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidings.core.state import Row, bucket_of

from .attributes import Item, expiry, expiry_ms, number, text

if TYPE_CHECKING:
    from collections.abc import Mapping

ATTRIBUTES = ("page", "slot", "at", "line", "expires")  # beside the key


def bucket(feed: str, number: int) -> str:
    return f"{feed}#{number:02x}"


def key(feed: str, object_key: str) -> Item:
    return key_in(feed, bucket_of(object_key), object_key)


def key_in(feed: str, bucket_number: int, object_key: str) -> Item:
    """Where a row lies that was found in a bucket, be it its own or not."""
    return {"bucket": text(bucket(feed, bucket_number)), "key": text(object_key)}


def encode(feed: str, row: Row) -> Item:
    return {**key(feed, row.key), **values(row)}


def values(row: Row) -> Item:
    """All attributes beside the key."""
    return {
        "page": number(row.page),
        "slot": number(row.slot),
        "at": number(row.at_ms),
        "line": text(row.line),
        **expiry(row.expires_ms),
    }


def decode(item: Mapping[str, Any]) -> Row:
    return Row(
        item["key"]["S"],
        int(item["page"]["N"]),
        int(item["slot"]["N"]),
        int(item["at"]["N"]),
        item["line"]["S"],
        expiry_ms(item),
    )

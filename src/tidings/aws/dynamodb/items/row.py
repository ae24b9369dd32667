"""
row: the latest operation of one object.

Key: `<feed>#<bucket in 2 hex digits>`, object key. (`page`, `slot`) is its position, `at` the
commit time of its page in ms; a deleted object expires, one that lives does not.
"""

from __future__ import annotations

from tidings.aws.dynamodb.items.attributes import Item, expiry, expiry_ms, number, text, text_of
from tidings.core.state.rows import ABSENT, NOTHING, Overwritten, Row, bucket_of

_NUMBERS = ("page", "slot", "at")
ATTRIBUTES = (*_NUMBERS, "line", "expires")  # beside the key


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
    """All attributes beside the key; of a row that is not whole those that are there."""
    attributes = {
        "page": number(row.page),
        "slot": number(row.slot),
        "at": number(row.at_ms),
        "line": text(row.line),
        **expiry(row.expires_ms),
    }
    if row.whole:
        return attributes
    return {
        name: each for name, each in attributes.items() if each not in (number(ABSENT), text(""))
    }


def decode(item: Item) -> Row:
    try:
        return Row(
            item["key"]["S"],
            int(item["page"]["N"]),
            int(item["slot"]["N"]),
            int(item["at"]["N"]),
            item["line"]["S"],
            expiry_ms(item),
        )
    except KeyError:
        return _not_whole(item)


def overwritten(item: Item) -> Overwritten | None:
    """What *item*, empty where there was none, was of; None where it lacks its place."""
    if not item:
        return NOTHING
    if "page" not in item or "slot" not in item:
        return None
    return Overwritten(int(item["page"]["N"]), int(item["slot"]["N"]), "expires" not in item)


def _not_whole(item: Item) -> Row:
    """An item that lacks what every row has."""
    page, slot, at = (int(item[name]["N"]) if name in item else ABSENT for name in _NUMBERS)
    return Row(item["key"]["S"], page, slot, at, text_of(item, "line"), expiry_ms(item))

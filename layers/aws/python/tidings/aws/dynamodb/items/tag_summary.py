"""
summary: which tags are not on some pages that follow each other.

Key: `<feed>#tags`, the last of the pages in 10 hex digits. `first` is the first of them, `bits`
a Bloom filter. It expires as the last page was to, when it was written.
"""

from __future__ import annotations

from tidings.aws.dynamodb.items.attributes import Item, body_of, expiry, number, number_of, text
from tidings.core.changeagent.tag_index import Summary


def partition(feed: str) -> str:
    return f"{feed}#tags"


def page_key(page: int) -> str:
    return f"{page:010x}"


def encode(feed: str, summary: Summary) -> Item:
    return {
        "bucket": text(partition(feed)),
        "key": text(page_key(summary.last)),
        "first": number(summary.first),
        "bits": {"B": summary.bits},
        **expiry(summary.expires_ms),
    }


def decode(item: Item) -> Summary:
    bits = body_of(item["bits"])
    assert isinstance(bits, bytes)
    return Summary(number_of(item, "first"), page_of(item), bits)


def page_of(item: Item) -> int:
    return int(item["key"]["S"], 16)

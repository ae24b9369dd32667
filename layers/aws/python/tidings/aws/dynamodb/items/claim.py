"""
claim: what became of a request that carried an Idempotency-Key.

Key: `claim#<feed>`, the key. Its expiry also decides whether it counts, since DynamoDB's TTL
takes its time.
"""

from __future__ import annotations

from tidings.aws.dynamodb.items.attributes import (
    Item,
    expiry,
    expiry_ms,
    number,
    number_of,
    text,
    text_of,
)
from tidings.core.log.idempotency import Claim


def key(feed: str, name: str) -> Item:
    return {"kind": text(f"claim#{feed}"), "name": text(name)}


def encode(feed: str, claim: Claim) -> Item:
    return {
        **key(feed, claim.key),
        "fingerprint": text(claim.fingerprint),
        "append": text(claim.append_id),
        "page": number(claim.page),
        **expiry(claim.expires_ms),
    }


def decode(item: Item) -> Claim:
    return Claim(
        key=text_of(item, "name"),
        fingerprint=text_of(item, "fingerprint"),
        append_id=text_of(item, "append"),
        page=number_of(item, "page"),
        expires_ms=expiry_ms(item),
    )

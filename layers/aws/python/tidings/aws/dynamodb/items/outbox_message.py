"""
letter: what an owner left in the outbox with a write of its own.

Key: feed, id; the id begins with the time, so that a query has them in order. Owners write it by
`tidings.client.publish_with`. Removed once it is in the log. One that is refused lies under
`refused#<feed>` with the reason, until somebody has looked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidings.aws.dynamodb.items.attributes import Item, text, text_of
from tidings.core.ingest.outbox import Letter

if TYPE_CHECKING:
    from collections.abc import Mapping


def key(feed: str, letter_id: str) -> Item:
    return {"feed": text(feed), "id": text(letter_id)}


def encode(feed: str, letter: Letter) -> Item:
    return {**key(feed, letter.id), "kind": text(letter.kind), "body": text(letter.body)}


def encode_refused(feed: str, letter: Letter, reason: str) -> Item:
    return {**encode(f"refused#{feed}", letter), "reason": text(reason)}


def decode(item: Mapping[str, Any]) -> Letter:
    return Letter(text_of(item, "id"), text_of(item, "kind"), text_of(item, "body"))

"""
letter: what an owner left in the outbox with a write of its own.

Key: feed, id; the id begins with the time, so that a query has them in order. Owners write it by
`tidings.client.publish_with`. Removed once it is in the log. One that is refused lies under
`refused#<feed>` with the reason, until somebody has looked.
"""

from __future__ import annotations

from tidings.aws.dynamodb.items.attributes import Item, text, text_of
from tidings.core.ingest.outbox import OutboxMessage


def key(feed: str, message_id: str) -> Item:
    return {"feed": text(feed), "id": text(message_id)}


def encode(feed: str, message: OutboxMessage) -> Item:
    return {**key(feed, message.id), "kind": text(message.kind), "body": text(message.body)}


def encode_refused(feed: str, message: OutboxMessage, reason: str) -> Item:
    return {**encode(f"refused#{feed}", message), "reason": text(reason)}


def decode(item: Item) -> OutboxMessage:
    return OutboxMessage(text_of(item, "id"), text_of(item, "kind"), text_of(item, "body"))

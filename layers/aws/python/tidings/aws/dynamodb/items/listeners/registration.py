"""
registered: which connection listens for a resource under an instance's name.

Key: `registered#<feed>`, instance NUL resource; neither holds a NUL. Removed with the connection;
should that be missed, it expires like one.
"""

from __future__ import annotations

from tidings.aws.dynamodb.items.attributes import Item, expiry, text, text_of, without_empty
from tidings.core.triton.registration import Kind, Listener, Registered


def kind(feed: str) -> str:
    return f"registered#{feed}"


def key(feed: str, instance: str, resource: str) -> Item:
    return {"kind": text(kind(feed)), "name": text(f"{instance}\0{resource}")}


def encode(
    feed: str, connection_id: str, listener: Listener, wanted: Kind, *, expires_ms: int
) -> Item:
    return {
        **key(feed, listener.instance, wanted.resource),
        "connection": text(connection_id),
        **without_empty({"service": listener.service}),
        "subs": {"L": [text(sub) for sub in wanted.subs]},
        **expiry(expires_ms),
    }


def decode(item: Item) -> Registered:
    instance, _, resource = text_of(item, "name").partition("\0")
    return Registered(
        connection_id=text_of(item, "connection"),
        instance=instance,
        service=text_of(item, "service"),
        kind=Kind(resource, tuple(sub["S"] for sub in item["subs"]["L"])),
    )

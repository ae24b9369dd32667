"""
follower: checkpoint and lease of a named reader of a feed.

Key: `follower#<feed>`, name. `page` is the checkpoint, `operations` what was handled up to it,
`fence` counts the holders, `beat` their renewals, `bell` the marks left for them; a lease that was
let go has no owner. `lease_until` is in ms by the clock of the holder, a hint. `look` is who looks
on, and at what: a fence, a beat, and a minute.
"""

from __future__ import annotations

from tidings.aws.dynamodb.items.attributes import Item, number, number_of, text, text_of
from tidings.core.followers.leases import Lease

_PREFIX = "follower#"


def kind(feed: str) -> str:
    return f"{_PREFIX}{feed}"


def key(feed: str, name: str) -> Item:
    return {"kind": text(kind(feed)), "name": text(name)}


def encode(lease: Lease) -> Item:
    return {
        **key(lease.feed, lease.name),
        "owner": text(lease.owner),
        "lease_until": number(lease.expires_ms),
        "fence": number(lease.fence),
        "bell": number(lease.bell),
        "page": number(lease.checkpoint),
        "operations": number(lease.operations),
        "beat": number(lease.beat),
    }


def decode(item: Item) -> Lease:
    return Lease(
        feed=text_of(item, "kind").removeprefix(_PREFIX),
        name=text_of(item, "name"),
        owner=text_of(item, "owner"),
        fence=number_of(item, "fence"),
        bell=number_of(item, "bell"),
        checkpoint=number_of(item, "page"),
        expires_ms=number_of(item, "lease_until"),
        operations=number_of(item, "operations"),
        beat=number_of(item, "beat"),
        look=text_of(item, "look"),
    )

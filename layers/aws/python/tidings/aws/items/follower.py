"""
follower: checkpoint and lease of a named reader of a feed.

Key: `follower#<feed>`, name. `page` is the checkpoint, `operations` what was handled up to it,
`fence` counts the holders, `bell` the marks left for them, `lease_until` is in ms; a lease that
was let go has no owner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidings.core.leases import Lease

from .attributes import Item, number, number_of, text, text_of

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    }


def decode(item: Mapping[str, Any]) -> Lease:
    return Lease(
        feed=text_of(item, "kind").removeprefix(_PREFIX),
        name=text_of(item, "name"),
        owner=text_of(item, "owner"),
        fence=number_of(item, "fence"),
        bell=number_of(item, "bell"),
        checkpoint=number_of(item, "page"),
        expires_ms=number_of(item, "lease_until"),
        operations=number_of(item, "operations"),
    )

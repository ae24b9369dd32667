"""
seat, member: who leads a cluster, and who is in it; in the coordination table.

Keys: `seat#<cluster>`, number in three digits; `member#<cluster>`, address. Seats live
for ever, because their terms must not begin again; who is not heard of is forgotten by TTL.
"""

from __future__ import annotations

from tidings.aws.dynamodb.items.attributes import (
    Item,
    expiry,
    number,
    number_of,
    text,
    text_of,
    without_empty,
)
from tidings.core import limits
from tidings.core.replication.clusters import LeaderLease, Member
from tidings.core.replication.source import Role

_SEAT, _MEMBER = "seat#", "member#"


def kind(cluster: str) -> str:
    return f"{_SEAT}{cluster}"


def encode(seat: LeaderLease) -> Item:
    return {
        "kind": text(kind(seat.cluster)),
        "name": text(f"{seat.number:03d}"),
        **without_empty({"address": seat.address}),
        "term": number(seat.term),
        "until": number(seat.until_ms),
    }


def decode(item: Item) -> LeaderLease:
    return LeaderLease(
        text_of(item, "kind").removeprefix(_SEAT),
        int(text_of(item, "name")),
        text_of(item, "address"),
        number_of(item, "term"),
        number_of(item, "until"),
    )


def member_kind(cluster: str) -> str:
    return f"{_MEMBER}{cluster}"


def encode_member(member: Member) -> Item:
    return {
        "kind": text(member_kind(member.cluster)),
        "name": text(member.address),
        "feed": text(member.feed),
        "role": text(member.role.value),
        "checkpoint": number(member.checkpoint),
        "heard": number(member.heard_ms),
        **expiry(member.heard_ms + limits.MEMBER_MS),
    }


def decode_member(item: Item) -> Member:
    return Member(
        text_of(item, "kind").removeprefix(_MEMBER),
        text_of(item, "name"),
        text_of(item, "feed"),
        Role(text_of(item, "role")),
        number_of(item, "checkpoint"),
        number_of(item, "heard"),
    )

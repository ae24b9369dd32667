"""
Leadership leases and members of clusters on DynamoDB, in a table that the members share.

The table may belong to another account. A missing table or permission counts as unavailable too,
so that a relay keeps its role and goes on copying.

Keys: `seat#<cluster>`, number in three digits; `member#<cluster>`, address. Leases live
for ever, because their terms must not begin again; a silent member is deleted by TTL.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError
from tidings.aws.dynamodb.items.attributes import (
    Item,
    expiry,
    number,
    number_of,
    text,
    text_of,
    without_empty,
)
from tidings.aws.dynamodb.transport.table import Table
from tidings.core import limits
from tidings.core.errors import Unavailable
from tidings.core.replication.clusters import LeaderLease, Member
from tidings.core.replication.source import Role

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mypy_boto3_dynamodb import DynamoDBClient


_LEASE, _MEMBER = "seat#", "member#"
_SAME = "#term = :term AND #until = :until"


def lease_kind(cluster: str) -> str:
    return f"{_LEASE}{cluster}"


def encode(lease: LeaderLease) -> Item:
    return {
        "kind": text(lease_kind(lease.cluster)),
        "name": text(f"{lease.number:03d}"),
        **without_empty({"address": lease.address}),
        "term": number(lease.term),
        "until": number(lease.until_ms),
    }


def decode(item: Item) -> LeaderLease:
    return LeaderLease(
        text_of(item, "kind").removeprefix(_LEASE),
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


class DynamoDBClusters:
    """Implements `Coordinator`."""

    def __init__(self, client: DynamoDBClient, table: str) -> None:
        self._table = Table(client, table)

    def seats(self, cluster: str) -> Sequence[LeaderLease]:
        with _reached():
            return [decode(item) for item in self._table.of_kind(lease_kind(cluster))]

    def take(self, before: LeaderLease, after: LeaderLease) -> bool:
        condition = _SAME if before.term else f"attribute_not_exists(#term) OR ({_SAME})"
        values = {":term": number(before.term), ":until": number(before.until_ms)}
        with _reached():
            return self._table.put_once(encode(after), condition, values)

    def announce(self, member: Member) -> None:
        with _reached():
            self._table.put(encode_member(member))

    def members(self, cluster: str) -> Sequence[Member]:
        with _reached():
            items = self._table.of_kind(member_kind(cluster))
        return [decode_member(item) for item in items]


@contextmanager
def _reached() -> Iterator[None]:
    """
    Raises:
        Unavailable: the request failed, for whatever reason.
    """
    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise Unavailable(str(error)) from error

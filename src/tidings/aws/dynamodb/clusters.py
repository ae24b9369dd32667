"""Leader leases and members of clusters on DynamoDB, in a table that all members share.

The table may belong to another account. A missing table or permission is raised as `Unavailable`,
so that a relay keeps its role and continues to copy.

Each paragraph about an item begins with the kind of the item. After the colon are the item's
partition key and its sort key.

A lease: `seat#<cluster>`, number in three digits. Leases are kept forever, because their terms must
not restart.

A member: `member#<cluster>`, address. DynamoDB's TTL deletes the item of a silent member.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from tidings.aws.dynamodb.attributes import (
    NUMBER,
    TEXT,
    Item,
    Layout,
    as_text,
    expiry,
    number,
    text,
    text_of,
)
from tidings.aws.dynamodb.table import TableStore
from tidings.core import limits
from tidings.core.errors import Unavailable
from tidings.core.replication.election import LeaderLease, Member
from tidings.core.replication.source import Role

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_LEASE, _MEMBER = "seat#", "member#"
_SAME = "#term = :term AND #until = :until"
_LEASE_LAYOUT = Layout(LeaderLease, address=TEXT.sparse, term=NUMBER, until=NUMBER.of("until_ms"))
_MEMBER_LAYOUT = Layout(
    Member,
    feed=TEXT,
    role=as_text(lambda role: role.value, Role),
    checkpoint=NUMBER,
    heard=NUMBER.of("heard_ms"),
)


def lease_kind(cluster: str) -> str:
    return f"{_LEASE}{cluster}"


def encode(lease: LeaderLease) -> Item:
    return {
        "kind": text(lease_kind(lease.cluster)),
        "name": text(f"{lease.number:03d}"),
        **_LEASE_LAYOUT.encode(lease),
    }


def decode(item: Item) -> LeaderLease:
    cluster = text_of(item, "kind").removeprefix(_LEASE)
    return _LEASE_LAYOUT.decode(item, cluster=cluster, number=int(text_of(item, "name")))


def member_kind(cluster: str) -> str:
    return f"{_MEMBER}{cluster}"


def encode_member(member: Member) -> Item:
    return {
        "kind": text(member_kind(member.cluster)),
        "name": text(member.address),
        **_MEMBER_LAYOUT.encode(member),
        **expiry(member.heard_ms + limits.MEMBER_MS),
    }


def decode_member(item: Item) -> Member:
    cluster = text_of(item, "kind").removeprefix(_MEMBER)
    return _MEMBER_LAYOUT.decode(item, cluster=cluster, address=text_of(item, "name"))


class DynamoDBClusters(TableStore):
    """Implements `Coordinator`."""

    def leases(self, cluster: str) -> Sequence[LeaderLease]:
        with _translate_errors():
            return [decode(item) for item in self._table.of_kind(lease_kind(cluster))]

    def take(self, before: LeaderLease, after: LeaderLease) -> bool:
        condition = _SAME if before.term else f"attribute_not_exists(#term) OR ({_SAME})"
        values = {":term": number(before.term), ":until": number(before.until_ms)}
        with _translate_errors():
            return self._table.put_once(encode(after), condition, values)

    def announce(self, member: Member) -> None:
        with _translate_errors():
            self._table.put(encode_member(member))

    def members(self, cluster: str) -> Sequence[Member]:
        with _translate_errors():
            items = self._table.of_kind(member_kind(cluster))
        return [decode_member(item) for item in items]


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Translate every error of a request."""
    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise Unavailable(str(error)) from error

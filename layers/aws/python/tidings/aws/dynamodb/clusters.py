"""
Leadership leases and members of clusters on DynamoDB, in a table that the members share.

The table may belong to another account. A missing table or permission counts as unavailable too,
so that a relay keeps its role and goes on copying.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError
from tidings.aws.dynamodb.items.attributes import number
from tidings.aws.dynamodb.items.replication import lease as leases
from tidings.aws.dynamodb.transport.table import Table
from tidings.core.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mypy_boto3_dynamodb import DynamoDBClient
    from tidings.core.replication.clusters import LeaderLease, Member

_SAME = "#term = :term AND #until = :until"


class DynamoDBClusters:
    """Implements `Coordinator`."""

    def __init__(self, client: DynamoDBClient, table: str) -> None:
        self._table = Table(client, table)

    def seats(self, cluster: str) -> Sequence[LeaderLease]:
        with _reached():
            return [leases.decode(item) for item in self._table.of_kind(leases.kind(cluster))]

    def take(self, before: LeaderLease, after: LeaderLease) -> bool:
        condition = _SAME if before.term else f"attribute_not_exists(#term) OR ({_SAME})"
        values = {":term": number(before.term), ":until": number(before.until_ms)}
        with _reached():
            return self._table.put_once(leases.encode(after), condition, values)

    def announce(self, member: Member) -> None:
        with _reached():
            self._table.put(leases.encode_member(member))

    def members(self, cluster: str) -> Sequence[Member]:
        with _reached():
            items = self._table.of_kind(leases.member_kind(cluster))
        return [leases.decode_member(item) for item in items]


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

"""
Seats and members of clusters on DynamoDB, in a table that the members share.

The table may be of another account: that it is not there, or not ours to read, is told as bad
weather too, so that a relay keeps the role it has and goes on copying.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError
from tidings.aws.dynamodb.items.attributes import number, text
from tidings.aws.dynamodb.items.replication import lease as seats
from tidings.aws.dynamodb.transport.queries import query
from tidings.aws.runtime.aws_errors import ConditionFailed, translated
from tidings.core.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mypy_boto3_dynamodb import DynamoDBClient
    from tidings.core.replication.clusters import LeaderLease, Member

_SAME = "#term = :term AND #until = :until"


class DynamoDBClusters:
    """Implements `Coordinator`."""

    def __init__(self, client: DynamoDBClient, table: str) -> None:
        self._client, self._table = client, table

    def seats(self, cluster: str) -> Sequence[LeaderLease]:
        with _reached():
            found = query(self._client, self._table, text(seats.kind(cluster)))
        return [seats.decode(item) for item in found]

    def take(self, before: LeaderLease, after: LeaderLease) -> bool:
        item, never = seats.encode(after), before.term == 0
        try:
            with _reached():
                self._client.put_item(
                    TableName=self._table,
                    Item=item,
                    ConditionExpression=f"attribute_not_exists(#term) OR ({_SAME})"
                    if never
                    else _SAME,
                    ExpressionAttributeNames={"#term": "term", "#until": "until"},
                    ExpressionAttributeValues={
                        ":term": number(before.term),
                        ":until": number(before.until_ms),
                    },
                    ReturnValuesOnConditionCheckFailure="ALL_OLD",
                )
        except ConditionFailed as failed:
            return failed.retried and failed.item == item  # the answer to ours was lost
        return True

    def announce(self, member: Member) -> None:
        with _reached():
            self._client.put_item(TableName=self._table, Item=seats.encode_member(member))

    def members(self, cluster: str) -> Sequence[Member]:
        with _reached():
            found = query(self._client, self._table, text(seats.member_kind(cluster)))
        return [seats.decode_member(item) for item in found]


@contextmanager
def _reached() -> Iterator[None]:
    """
    Around one call.

    Raises:
        ConditionFailed: see there.
        Unavailable: whatever else came.
    """
    try:
        with translated():
            yield
    except (BotoCoreError, ClientError) as error:
        raise Unavailable(str(error)) from error

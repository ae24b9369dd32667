"""Checkpoints and leases of followers on DynamoDB, in the control table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidings.aws.dynamodb.items import follower
from tidings.aws.dynamodb.items.attributes import Item, number, number_of, text, text_of
from tidings.aws.runtime.aws_errors import ConditionFailed, translated
from tidings.core import limits
from tidings.core.errors import LeaseLost
from tidings.core.followers.leases import Lease

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mypy_boto3_dynamodb import DynamoDBClient
    from tidings.core.followers.leases import Observation

_LEASE = {
    "#owner": "owner",
    "#until": "lease_until",
    "#fence": "fence",
}
_BEAT = {"#beat": "beat"}
_FREE = "attribute_not_exists(#owner) OR #owner = :nobody"
_OURS = "#fence = :fence AND #owner = :owner"
_DONE = "#page = :page, #operations = :operations"
_DONE_NAMES = {"#page": "page", "#operations": "operations"}


class DynamoDBFollowers:
    """Implements `FollowerStore`, `Checkpoints` and `Standings`."""

    def __init__(self, client: DynamoDBClient, table: str) -> None:
        self._client, self._table = client, table

    def take(
        self, feed: str, name: str, *, owner: str, now_ms: int, over: Observation | None = None
    ) -> Lease:
        condition, seen = _FREE, {}
        if over is not None:
            still = "#beat = :still" if over.beat else "attribute_not_exists(#beat)"
            condition = f"{_FREE} OR (#fence = :seen AND {still})"
            seen = {":seen": number(over.fence)}
            seen |= {":still": number(over.beat)} if over.beat else {}
        try:
            with translated():
                answer = self._client.update_item(
                    TableName=self._table,
                    Key=follower.key(feed, name),
                    UpdateExpression=(
                        "SET #owner = :owner, #until = :until ADD #fence :one, #beat :one"
                    ),
                    ConditionExpression=condition,
                    ExpressionAttributeNames=_LEASE | _BEAT,
                    ExpressionAttributeValues={
                        ":owner": text(owner),
                        ":until": number(now_ms + limits.LEASE_MS),
                        ":nobody": text(""),
                        ":one": number(1),
                        **seen,
                    },
                    ReturnValues="ALL_NEW",
                    ReturnValuesOnConditionCheckFailure="ALL_OLD",
                )
        except ConditionFailed as failed:
            return follower.decode(failed.item)  # ours, where an answer was lost
        return follower.decode(answer["Attributes"])

    def mark(self, feed: str, name: str, *, look: str = "") -> str | None:
        try:
            with translated():
                answer = self._client.update_item(
                    TableName=self._table,
                    Key=follower.key(feed, name),
                    UpdateExpression=f"{'SET #look = :look ' if look else ''}ADD #bell :one",
                    ConditionExpression="#owner > :nobody",
                    ExpressionAttributeNames={
                        "#bell": "bell",
                        "#owner": "owner",
                        **({"#look": "look"} if look else {}),
                    },
                    ExpressionAttributeValues={
                        ":one": number(1),
                        ":nobody": text(""),
                        **({":look": text(look)} if look else {}),
                    },
                    ReturnValues="ALL_OLD",
                )
        except ConditionFailed:
            return None
        return text_of(answer.get("Attributes", {}), "look")

    def save(self, lease: Lease, checkpoint: int, *, now_ms: int) -> Lease:
        try:
            with translated():
                answer = self._client.update_item(
                    TableName=self._table,
                    Key=follower.key(lease.feed, lease.name),
                    UpdateExpression=f"SET {_DONE}, #until = :until ADD #beat :one",
                    ConditionExpression=_OURS,
                    ExpressionAttributeNames={**_LEASE, **_BEAT, **_DONE_NAMES},
                    ExpressionAttributeValues={
                        **_ours(lease),
                        **_done(replace(lease, checkpoint=checkpoint)),
                        ":until": number(now_ms + limits.LEASE_MS),
                        ":one": number(1),
                    },
                    ReturnValues="ALL_NEW",
                )
        except ConditionFailed:
            raise LeaseLost(feed=lease.feed, follower=lease.name, fence=lease.fence) from None
        return follower.decode(answer["Attributes"])

    def release(self, lease: Lease, *, force: bool = False) -> bool:
        unmarked = "" if force else " AND (#bell = :bell OR attribute_not_exists(#bell))"
        bell: Item = {} if force else {":bell": number(lease.bell)}
        try:
            with translated():
                self._client.update_item(
                    TableName=self._table,
                    Key=follower.key(lease.feed, lease.name),
                    UpdateExpression=f"SET {_DONE}, #until = :free, #owner = :nobody",
                    ConditionExpression=_OURS + unmarked,
                    ExpressionAttributeNames={
                        **_LEASE,
                        **_DONE_NAMES,
                        **({} if force else {"#bell": "bell"}),
                    },
                    ExpressionAttributeValues={
                        **_ours(lease),
                        **bell,
                        **_done(lease),
                        ":free": number(0),
                        ":nobody": text(""),
                    },
                    ReturnValuesOnConditionCheckFailure="ALL_OLD",
                )
        except ConditionFailed as failed:
            held = follower.decode(failed.item)
            return (held.fence, held.owner) != (lease.fence, lease.owner)
        return True

    def checkpoints(self, feed: str) -> dict[str, int]:
        with translated():
            answer = self._client.query(
                TableName=self._table,
                KeyConditionExpression="#kind = :kind",
                ProjectionExpression="#name, #page",
                ExpressionAttributeNames={"#kind": "kind", "#name": "name", "#page": "page"},
                ExpressionAttributeValues={":kind": text(follower.kind(feed))},
                ConsistentRead=True,
            )
        return {text_of(item, "name"): number_of(item, "page") for item in answer["Items"]}

    def standings(self, feed: str) -> Sequence[Lease]:
        with translated():
            answer = self._client.query(
                TableName=self._table,
                KeyConditionExpression="#kind = :kind",
                ExpressionAttributeNames={"#kind": "kind"},
                ExpressionAttributeValues={":kind": text(follower.kind(feed))},
                ConsistentRead=True,
            )
        return [follower.decode(item) for item in answer["Items"]]


def _done(lease: Lease) -> Item:
    return {":page": number(lease.checkpoint), ":operations": number(lease.operations)}


def _ours(lease: Lease) -> Item:
    return {":fence": number(lease.fence), ":owner": text(lease.owner)}

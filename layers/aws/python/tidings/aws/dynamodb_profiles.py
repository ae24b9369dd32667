"""What the owners of feeds have set, on DynamoDB in the control table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.core.profiles import Profile, saved

from .items import profile as profiles
from .items.attributes import number
from .weather import ConditionFailed, translated

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class DynamoDBProfiles:
    """Implements `Profiles`."""

    def __init__(self, client: DynamoDBClient, table: str) -> None:
        self._client, self._table = client, table

    def profile(self, feed: str) -> Profile:
        with translated():
            answer = self._client.get_item(
                TableName=self._table, Key=profiles.key(feed), ConsistentRead=True
            )
        return profiles.decode(answer.get("Item", {}))

    def save(self, feed: str, profile: Profile) -> bool:
        item = profiles.encode(feed, saved(profile))
        try:
            with translated():
                self._client.put_item(
                    TableName=self._table,
                    Item=item,
                    ConditionExpression="attribute_not_exists(#version) OR #version = :version"
                    if profile.version == 0
                    else "#version = :version",
                    ExpressionAttributeNames={"#version": "version"},
                    ExpressionAttributeValues={":version": number(profile.version)},
                    ReturnValuesOnConditionCheckFailure="ALL_OLD",
                )
        except ConditionFailed as failed:
            return failed.retried and failed.item == item  # the answer to ours was lost
        return True

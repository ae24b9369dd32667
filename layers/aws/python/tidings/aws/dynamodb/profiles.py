"""What the owners of feeds have set, on DynamoDB in the control table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.aws.dynamodb.items import profile as profiles
from tidings.aws.dynamodb.transport.conditional_writes import put_over
from tidings.aws.runtime.aws_errors import translated
from tidings.core.settings.feed import Profile, saved

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
        new = profile.version == 0
        return put_over(self._client, self._table, item, profile.version, may_be_new=new)

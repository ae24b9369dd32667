"""What the owners of feeds have set, on DynamoDB in the control table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.aws.dynamodb.items import profile as profiles
from tidings.aws.dynamodb.transport.table import Table
from tidings.core.settings.feed import Profile, saved

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class DynamoDBProfiles:
    """Implements `Profiles`."""

    def __init__(self, client: DynamoDBClient, table: str) -> None:
        self._table = Table(client, table)

    def profile(self, feed: str) -> Profile:
        return profiles.decode(self._table.get(profiles.key(feed)) or {})

    def save(self, feed: str, profile: Profile) -> bool:
        item = profiles.encode(feed, saved(profile))
        return self._table.put_over(item, profile.version, may_be_new=profile.version == 0)

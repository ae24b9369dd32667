"""The numbers of a feed that is restored, on DynamoDB."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.aws.dynamodb.items import head, page
from tidings.aws.dynamodb.transport.batches import Batches
from tidings.aws.dynamodb.transport.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mypy_boto3_dynamodb import DynamoDBClient
    from tidings.core.effects import Sleep
    from tidings.core.model.pages import Page


class DynamoDBNumbers:
    """Implements `Numbers`. A page put twice is the same, so *client* may repeat its requests."""

    def __init__(
        self, client: DynamoDBClient, log_table: str, control_table: str, sleep: Sleep
    ) -> None:
        self._control = Table(client, control_table)
        self._pages = Batches(client, log_table, sleep)

    def raise_head(self, feed: str, page: int) -> None:
        self._control.raise_page(head.key(feed), page)

    def fill(self, feed: str, pages: Sequence[Page]) -> None:
        self._pages.put([page.encode(feed, each) for each in pages])

"""The writes of relays to the log of chained feeds on DynamoDB.

A relay writes its pages, its record and the head of its feed in one transaction. Each item then
costs twice as much, but a checkpoint is never saved without its pages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidings.aws.dynamodb.attributes import head_key, number
from tidings.aws.dynamodb.log import encode_page
from tidings.aws.dynamodb.records import DynamoDBRecords
from tidings.aws.dynamodb.table import expressions
from tidings.core.errors import Unavailable
from tidings.core.replication.relay import RELAYS, Relay, RelayStore, relay_write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mypy_boto3_dynamodb import DynamoDBClient

    from tidings.core.model.pages import Page
    from tidings.core.records import Write


class DynamoDBRelays(RelayStore):
    def __init__(self, client: DynamoDBClient, log_table: str, control_table: str) -> None:
        self._stored = DynamoDBRecords(client, control_table)
        super().__init__(self._stored)
        self._log = log_table

    def append(self, before: Relay, after: Relay, pages: Sequence[Page]) -> bool:
        """Append in one transaction.

        DynamoDB executes the transaction once, because botocore's retries have the same token. If
        the answer is lost, the stored record shows whether the transaction was executed.
        """
        feed, write = after.feed, relay_write(before, after)
        writes = [*self._stored.requests(feed, [write]), {"Update": self._head(before, after)}]
        writes += [{"Put": self._page(feed, each)} for each in pages]
        try:
            # A condition may have failed because of an earlier attempt of ours.
            return self._stored.table.write_together(*writes) or self._is_stored(feed, write)
        except Unavailable:
            if self._is_stored(feed, write):
                return True
            raise

    def _is_stored(self, feed: str, write: Write) -> bool:
        found = self._stored.get(feed, RELAYS)
        return found is not None and found.fields == write.fields

    def _head(self, before: Relay, after: Relay) -> dict[str, Any]:
        operations = after.counts.operations - before.counts.operations
        return {
            "TableName": self._stored.table.name,
            "Key": head_key(after.feed),
            **expressions(
                {":page": number(after.checkpoint), ":operations": number(operations)},
                UpdateExpression="SET #page = :page ADD #operations :operations",
            ),
        }

    def _page(self, feed: str, page_: Page) -> dict[str, Any]:
        return {
            "TableName": self._log,
            "Item": encode_page(feed, page_),
            **expressions(ConditionExpression="attribute_not_exists(#page)"),
        }

"""The changes that erasures make to the tables of a stage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.aws.clients import ConditionFailed
from tidings.aws.dynamodb.attributes import Item, body, body_of
from tidings.aws.dynamodb.followers import item_key
from tidings.aws.dynamodb.log import page_key
from tidings.aws.dynamodb.state import removed_key
from tidings.aws.dynamodb.table import Table
from tidings.core.erasure.records import Erasure, ErasureStore
from tidings.core.model.feeds import STATE

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from tidings.aws.dynamodb.records import DynamoDBRecords
    from tidings.core.consumers.consumer import ConsumerStore, Parked
    from tidings.core.model.pages import Page
    from tidings.core.state.removed_parents import RemovedParents


class DynamoDBErasures(ErasureStore):
    """Mark the item of the follower `state`, so that the sweep finds the erasures of a feed."""

    def __init__(self, records: DynamoDBRecords) -> None:
        super().__init__(records)
        self._control = records.table

    def save(self, feed: str, erasure: Erasure) -> bool:
        if not erasure.version:  # before the record, which the sweep would not find otherwise
            mark = {":erases": {"BOOL": True}}
            self._control.update(item_key(feed, STATE), "SET #erases = :erases", mark)
        return super().save(feed, erasure)


class DynamoDBRewrites:
    """Implements `RewriteStore`. Each change is a conditional update of one item.

    *client* may retry, because a late attempt finds another value than the one that was read.
    """

    def __init__(
        self, client: DynamoDBClient, log_table: str, state_table: str, consumers: ConsumerStore
    ) -> None:
        self._log, self._state = Table(client, log_table), Table(client, state_table)
        self._consumers = consumers

    def rewrite_page(self, feed: str, page: Page, body: str | bytes) -> bool:
        return _rewrite(self._log, page_key(feed, page.number), page.body, body)

    def rewrite_removed_parents(
        self, feed: str, removed: RemovedParents, body: str | bytes
    ) -> bool:
        return _rewrite(self._state, removed_key(feed, removed.page), removed.body, body)

    def rewrite_parked(self, feed: str, name: str, parked: Parked, changed: Parked) -> bool:
        return self._consumers.rewrite_parked(feed, name, parked, changed)


def _rewrite(table: Table, key: Item, before: str | bytes, after: str | bytes) -> bool:
    """Replace the attribute `body` *before* of an item; see `RewriteStore`."""
    values = {":before": body(before), ":after": body(after)}
    try:
        table.update(key, "SET #body = :after", values, "#body = :before")
    except ConditionFailed as failed:
        return bool(failed.item) and body_of(failed.item["body"]) == after
    return True

"""The log on DynamoDB: pages in a table of their own, head and floor in the control table."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from tidings.aws.dynamodb.items import floor, head, page
from tidings.aws.dynamodb.items.attributes import number, text, text_of
from tidings.aws.dynamodb.transport.batches import Batches
from tidings.aws.dynamodb.transport.table import Table
from tidings.aws.runtime.aws_errors import ConditionFailed
from tidings.core import limits
from tidings.core.counters import Taken
from tidings.core.errors import Yielded
from tidings.core.model.pages import Page, Pages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mypy_boto3_dynamodb import DynamoDBClient
    from tidings.core.effects import Sleep
    from tidings.core.model.pages import Page


# What readers ask for: each attribute costs every reader of every page.
_READ = "#page, #body, #at, #slots, #trace, #skipped"


class DynamoDBLog:
    """Implements `LogStore`, `Intake` and `TrimStore`."""

    def __init__(self, client: DynamoDBClient, log_table: str, control_table: str) -> None:
        self._log, self._control = Table(client, log_table), Table(client, control_table)

    def together(self) -> AbstractContextManager[object]:
        """Write each part as it comes: a transaction would make writers wait for each other."""
        return nullcontext()

    def take(self, feed: str, operations: int = 0) -> int:
        """Should botocore send it twice, a number is lost and becomes a hole: no harm."""
        values = {":one": number(1), ":operations": number(operations)}
        add, free = "ADD #page :one, #operations :operations", "attribute_not_exists(#successor)"
        try:
            taken = self._control.update(head.key(feed), add, values, free, returns="UPDATED_NEW")
        except ConditionFailed as failed:
            raise Yielded(feed, head.taken(failed.item).successor) from None
        return head.decode(taken)

    def put(self, feed: str, page_: Page) -> str:
        try:
            self._log.put(page.encode(feed, page_), "attribute_not_exists(#page)")
        except ConditionFailed as failed:
            return text_of(failed.item, "append")
        return page_.append_id

    def read(
        self, feed: str, after: int, limit: int | None = None, *, eventual: bool = False
    ) -> Pages:
        answer = self._log.page(
            "#feed = :feed AND #page > :after",
            {":feed": text(feed), ":after": number(after)},
            _READ,
            consistent=not eventual,
            Limit=min(limit or limits.READ_ITEMS_MAX, limits.READ_ITEMS_MAX),
        )
        more = "LastEvaluatedKey" in answer
        return Pages((page.decode(item) for item in answer["Items"]), more=more)

    def head(self, feed: str) -> int:
        return head.decode(self._control.get(head.key(feed)) or {})

    def taken(self, feed: str) -> Taken:
        return head.taken(self._control.get(head.key(feed)) or {})

    def yield_to(self, feed: str, successor: str) -> None:
        if successor:
            values = {":to": text(successor)}
            self._control.update(head.key(feed), "SET #successor = :to", values)
        else:
            self._control.update(head.key(feed), "REMOVE #successor", {})

    def floor(self, feed: str) -> int:
        return floor.decode(self._control.get(floor.key(feed)) or {})

    def raise_floor(self, feed: str, page_: int) -> None:
        self._control.raise_page(floor.key(feed), page_)


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

"""The records of erasures on DynamoDB, in the control table, and the changes that erasures make.

Each paragraph about an item begins with the kind of the item. After the colon are the item's
partition key and its sort key.

A record of an erasure that is not done: `erasure#<feed>`, the result of `records.sort_key`.

A record of an erasure that is done: `erased#<feed>`, as above. It has a partition of its own, so
that the job does not read it.

Fields with their default values are left out.
"""

from __future__ import annotations

from dataclasses import replace
from heapq import merge
from typing import TYPE_CHECKING, Any

from tidings.aws.clients import ConditionFailed
from tidings.aws.dynamodb.attributes import (
    FLAG,
    NUMBER,
    TEXT,
    Item,
    Layout,
    as_text,
    body,
    body_of,
    text,
)
from tidings.aws.dynamodb.followers import item_key
from tidings.aws.dynamodb.log import page_key
from tidings.aws.dynamodb.state import removed_key
from tidings.aws.dynamodb.table import Table, TableStore, of_version
from tidings.core import limits
from tidings.core.erasure.records import Erasure, Phase, sort_key
from tidings.core.model.feeds import STATE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mypy_boto3_dynamodb import DynamoDBClient

    from tidings.aws.dynamodb.consumers import DynamoDBConsumers
    from tidings.core.consumers.consumer import Parked
    from tidings.core.model.pages import Page
    from tidings.core.state.removed_parents import RemovedParents

_LAYOUT = Layout(
    Erasure,
    id=TEXT,
    type=TEXT,
    object=TEXT.sparse.of("object_id"),
    by=TEXT,
    reason=TEXT,
    at=NUMBER.of("requested_ms"),
    before=TEXT.sparse,
    parent=FLAG.sparse.of("as_parent"),
    phase=as_text(lambda phase: phase.value, Phase),
    page=NUMBER.sparse,
    through=NUMBER.sparse,
    until=NUMBER.sparse.of("until_ms"),
    entries=NUMBER.sparse,
    pages=NUMBER.sparse,
    parts=NUMBER.sparse,
    parked=NUMBER.sparse,
    texts=NUMBER.sparse,
    corrected=NUMBER.sparse,
    settled=NUMBER.sparse.of("settled_ms"),
    done=NUMBER.sparse.of("done_ms"),
    final=FLAG.sparse,
    version=NUMBER,
)


def erasure_kind(feed: str, *, is_done: bool) -> str:
    return f"{'erased' if is_done else 'erasure'}#{feed}"


def erasure_key(feed: str, erasure_id: str, *, is_done: bool) -> Item:
    return {"kind": text(erasure_kind(feed, is_done=is_done)), "name": text(sort_key(erasure_id))}


def encode(feed: str, erasure: Erasure) -> Item:
    key = erasure_key(feed, erasure.id, is_done=erasure.phase is Phase.DONE)
    return {**key, **_LAYOUT.encode(erasure)}


class DynamoDBErasures(TableStore):
    """Implements `ErasureStore`.

    The first and the last write of a record are transactions, because they depend on both items.
    """

    def erasure(self, feed: str, erasure_id: str) -> Erasure | None:
        # In this order, because a record moves from the first partition to the second.
        for is_done in (False, True):
            item = self._table.get(erasure_key(feed, erasure_id, is_done=is_done))
            if item:
                return _LAYOUT.decode(item)
        return None

    def erasures(
        self, feed: str, after: str = "", limit: int = limits.ERASURES_LISTED
    ) -> Sequence[Erasure]:
        unfinished, done = (
            self._listed(feed, after, limit, is_done=is_done) for is_done in (False, True)
        )
        # A record that became done between the two queries is in both results.
        moved = {each.id for each in done}
        left = [each for each in unfinished if each.id not in moved]
        return list(merge(left, done, key=lambda each: sort_key(each.id)))[:limit]

    def unfinished(self, feed: str) -> Sequence[Erasure]:
        items = self._table.of_kind(erasure_kind(feed, is_done=False))
        return [_LAYOUT.decode(item) for item in items]

    def save(self, feed: str, erasure: Erasure) -> bool:
        stored = encode(feed, replace(erasure, version=erasure.version + 1))
        if erasure.version and erasure.phase is not Phase.DONE:
            return self._table.put_over(stored, erasure.version, may_be_new=False)
        if not erasure.version:  # before the record, which the sweep would not find otherwise
            mark = {":erases": {"BOOL": True}}
            self._table.update(item_key(feed, STATE), "SET #erases = :erases", mark)
        put = {"Put": {"Item": stored, **self._is(0)}}
        other = erasure_key(feed, erasure.id, is_done=erasure.phase is not Phase.DONE)
        if erasure.version:
            second = {"Delete": {"Key": other, **self._is(erasure.version)}}
        else:
            second = {"ConditionCheck": {"Key": other, **self._is(0)}}
        return self._table.write_together(put, second)

    def _listed(self, feed: str, after: str, limit: int, *, is_done: bool) -> list[Erasure]:
        values = {
            ":kind": text(erasure_kind(feed, is_done=is_done)),
            ":after": text(sort_key(after) or " "),  # an empty text is not allowed in a key
        }
        answer = self._table.page("#kind = :kind AND #name > :after", values, Limit=limit)
        return [_LAYOUT.decode(item) for item in answer["Items"]]

    def _is(self, version: int) -> dict[str, Any]:
        return {"TableName": self._table.name, **of_version(version)}


class DynamoDBRewrites:
    """Implements `RewriteStore`. Each change is a conditional update of one item.

    *client* may retry, because a late attempt finds another value than the one that was read.
    """

    def __init__(
        self, client: DynamoDBClient, log_table: str, state_table: str, consumers: DynamoDBConsumers
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

"""The feeds that the sweep visits, on DynamoDB, in the control table.

All items have the partition key `due`, so that one query finds the feeds that are due, however many
others exist. The sort key begins with a time in ms with 14 digits.

A mark: zeros and the key of the feed. Each mark has another random `version`.

A later visit: its time and the key of the feed.

The deployed feeds that were marked at first: `known`, which is not a time. `digest` changes with
the set of these feeds. Feeds that are created while the stage runs are marked by their creation.

When a visit is settled, the item of the feed's head gets the mark `idle`, which is the head at that
time. A writer that takes a number finds it in the answer of the same update, marks the feed as due,
and removes it. So a feed that is in use costs no request, and an idle one costs nothing. The first
number of a log also marks the feed.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

from tidings.aws.clients import ConditionFailed
from tidings.aws.dynamodb.attributes import (
    Item,
    decode_head,
    head_key,
    number,
    number_of,
    text,
    text_of,
)
from tidings.aws.dynamodb.table import Table, TableStore
from tidings.core.log.due import NEXT_SWEEP, Due

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from mypy_boto3_dynamodb import DynamoDBClient

KIND = "due"
_KNOWN: Item = {"kind": text(KIND), "name": text("known")}


def due_key(feed: str, at_ms: int) -> Item:
    return {"kind": text(KIND), "name": text(f"{at_ms:014d}#{feed}")}


def mark(control: Table, feed: str) -> None:
    """Make *feed* due now. Functions that change a feed may update items, but not put them."""
    control.update(
        due_key(feed, NEXT_SWEEP),
        "SET #feed = :feed, #version = :version",
        {":feed": text(feed), ":version": number(_new_version())},
    )


def _new_version() -> int:
    return int.from_bytes(os.urandom(6)) + 1  # 0 is the version of a feed without a mark


def wake(control: Table, head: Item, key: Item, feed: str) -> None:
    """Mark *feed* as due if *head*, the item with *key* once a number was taken, is marked `idle`.

    Also mark it after the first number. The number has no page yet, so a crash leaves no page of a
    feed that is not due.
    """
    if "idle" not in head:
        if number_of(head, "page") == 1:
            mark(control, feed)
        return
    mark(control, feed)
    try:
        # A later visit may have been settled in the meantime, with another head.
        control.update(key, "REMOVE #idle", {":idle": head["idle"]}, "#idle = :idle")
    except ConditionFailed:
        return


class DynamoDBDueFeeds(TableStore):
    """Implements `DueFeeds`. *deployed* are the feeds that exist without having been created.

    The store remembers the items that `due` has read, because `settle` deletes them.
    """

    def __init__(self, client: DynamoDBClient, table: str, deployed: Collection[str] = ()) -> None:
        super().__init__(client, table)
        self._deployed, self._are_known = deployed, False
        self._read: dict[str, list[str]] = {}

    def mark(self, feed: str) -> None:
        mark(self._table, feed)

    def due(self, now_ms: int) -> Sequence[Due]:
        self._mark_deployed()
        self._read.clear()
        values = {":kind": text(KIND), ":later": text(f"{now_ms + 1:014d}")}
        found: dict[str, Due] = {}
        for item in self._table.items("#kind = :kind AND #name < :later", values):
            feed, name = text_of(item, "feed"), text_of(item, "name")
            # A mark is before all times.
            at_ms = int(name.partition("#")[0])
            found.setdefault(feed, Due(feed, number_of(item, "version"), at_ms))
            self._read.setdefault(feed, []).append(name)
        return list(found.values())

    def settle(self, due: Due, next_ms: int | None, *, head: int) -> bool:
        """See `DueFeeds`. A crash between two steps leaves the feed due, or due once more.

        The mark `idle` is written first: a writer that takes a number afterwards marks the feed
        again, so that the deletion of the mark fails.
        """
        read = self._read.get(due.feed, ())
        later = due_key(due.feed, next_ms) if next_ms is not None else None
        if later is not None:
            self._table.update(later, "SET #feed = :feed", {":feed": text(due.feed)})
        if not self._rests(due.feed, head) or not self._unmark(due):
            if later is not None and text_of(later, "name") not in read:
                self._table.delete(later)
            return False
        mark_name = text_of(due_key(due.feed, NEXT_SWEEP), "name")
        kept = {mark_name, text_of(later, "name") if later is not None else ""}
        self._delete(name for name in read if name not in kept)
        return True

    def _rests(self, feed: str, head: int) -> bool:
        """Write the mark `idle` and return True, unless a number after *head* was taken.

        The log of a feed without numbers has no item, and needs no mark.
        """
        if not head:
            return decode_head(self._table.get(head_key(feed)) or {}) == 0
        try:
            idle = {":idle": number(head)}
            self._table.update(head_key(feed), "SET #idle = :idle", idle, "#page = :idle")
        except ConditionFailed:
            return False
        return True

    def _unmark(self, due: Due) -> bool:
        """Delete the mark of *due*; return False if the feed was marked again."""
        key = due_key(due.feed, NEXT_SWEEP)
        values: Item = {":version": number(due.version)} if due.version else {}
        condition = "#version = :version" if due.version else "attribute_not_exists(#version)"
        try:
            self._table.delete(key, condition, values)
        except ConditionFailed as failed:
            # True if our first attempt has deleted the item, but its answer was lost.
            return failed.retried and not failed.item
        return True

    def _delete(self, names: Iterable[str]) -> None:
        for name in names:
            self._table.delete({"kind": text(KIND), "name": text(name)})

    def _mark_deployed(self) -> None:
        """Mark the deployed feeds if their set has changed since they were marked."""
        if self._are_known:
            return
        digest = hashlib.sha256(",".join(sorted(self._deployed)).encode()).hexdigest()
        if text_of(self._table.get(_KNOWN) or {}, "digest") != digest:
            for feed in self._deployed:
                self.mark(feed)
            values = {":digest": text(digest)}
            self._table.update(_KNOWN, "SET #digest = :digest", values)
        self._are_known = True

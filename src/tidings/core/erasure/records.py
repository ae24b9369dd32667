"""The record of each erasure, and the stores that an erasure changes.

The follower `state` creates the record when it handles the erasure entry. Therefore the feed that
accepted the request, its copies and a restored log all have the record. The job (`eraser`) then
moves the record from phase to phase, so that it can resume after a crash.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import Enum
from heapq import merge
from typing import TYPE_CHECKING, Protocol

from tidings.core import limits
from tidings.core.erasure.entries import Target, parse_entry, pseudonym
from tidings.core.log.due import NEXT_SWEEP, earliest
from tidings.core.model import cursors
from tidings.core.model.cursors import Place
from tidings.core.model.operations import Operation, object_key
from tidings.core.records import Kind, Layout, Records, Write, expected_version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidings.core.consumers.consumer import Parked
    from tidings.core.model.filters import Filter
    from tidings.core.model.pages import Page
    from tidings.core.records import RecordStore
    from tidings.core.state.removed_parents import RemovedParents
    from tidings.core.state.rows import Row


class Phase(Enum):
    """The phases of an erasure, in this order.

    PARENTS: corrections of the objects that have the erased object as a parent are appended.
    WAITING: followers have not handled all pages up to `Erasure.through`.
    LOG: pages of the log, with their removed parents, are rewritten.
    PARKED: parked messages of named consumers are rewritten.
    ARCHIVE: parts of the archive are rewritten.
    SPACE: the free space of the database file is overwritten.
    KEPT: everything but the erasure entry and the tombstone is erased; they are needed until
    `Erasure.until_ms`.
    DONE: the erasure entry is erased, too.
    """

    PARENTS = "parents"
    WAITING = "waiting"
    LOG = "log"
    PARKED = "parked"
    ARCHIVE = "archive"
    SPACE = "space"
    KEPT = "kept"
    DONE = "done"


ORDER = tuple(Phase)


def sort_key(erasure_id: str) -> str:
    """Return the key that sorts records by the pages of their entries; "" stays ""."""
    place = cursors.parse_cursor(erasure_id)
    if not isinstance(place, Place):
        return ""
    return f"{place.page:010x}{place.slot:06x}{place.seconds:08x}"


@dataclass(frozen=True, slots=True)
class Erasure:
    """The stored record of an erasure.

    *id* is the event id of the erasure entry. The object is *type*, *object_id*; *object_id* is ""
    when the erasure is done. *before*, *by*, *reason* and *as_parent* are as in `Entry`.
    *requested_ms* is the commit time of the erasure entry. *page* is the last page that was handled
    in the current *phase*; in the phase KEPT, it is not 0 if the end was postponed. *through* is
    the last page that followers must have handled before the log is rewritten. *until_ms* is the
    end of the phase KEPT. *entries*, *pages*, *parts*, *parked* and *corrected* count what was
    changed; *texts* counts errors of workers, ended keys and durable streams. *settled_ms* is the
    time from which no process has pages that it read before the log was rewritten. *done_ms* is the
    time at which the phase KEPT began, or 0. *final* is True after the phase KEPT, when the job
    runs through the phases again to erase the entry itself. A write is rejected if the stored
    *version* has changed in the meantime.
    """

    id: str
    type: str
    object_id: str
    by: str
    reason: str
    requested_ms: int
    before: str = ""
    as_parent: bool = False
    phase: Phase = Phase.WAITING
    page: int = 0
    through: int = 0
    until_ms: int = 0
    entries: int = 0
    pages: int = 0
    parts: int = 0
    parked: int = 0
    texts: int = 0
    corrected: int = 0
    settled_ms: int = 0
    done_ms: int = 0
    final: bool = False
    version: int = 0

    @property
    def place(self) -> Place:
        """Return the place of the erasure entry."""
        place = cursors.parse(self.id)
        assert isinstance(place, Place)
        return place

    @property
    def is_waiting(self) -> bool:
        """Return True if the job has work to do now, not only after `until_ms`."""
        return self.phase not in (Phase.KEPT, Phase.DONE)

    def reached(self, phase: Phase) -> bool:
        """Return True if the erasure has reached *phase*, which is KEPT or an earlier phase."""
        return self.final or ORDER.index(self.phase) >= ORDER.index(phase)

    @property
    def has_found(self) -> bool:
        """Return True if the job has found data to erase."""
        return any((self.entries, self.parts, self.parked, self.texts, self.corrected))

    def is_named(self, bound: Filter, text: str = "") -> bool:
        """Return True if the filter *bound* or *text*, such as a label, names the object."""
        named = {self.object_id, f"{self.object_id}*", f"{self.type}/{self.object_id}"}
        in_text = re.search(rf"(?<!\w){re.escape(self.object_id)}(?!\w)", text)
        return in_text is not None or not named.isdisjoint(
            (bound.ids or set()) | (bound.parents or set())
        )

    def is_between(self, first: Phase, last: Phase) -> bool:
        """Return True if the erasure is in the phase *first*, *last*, or one between them."""
        return ORDER.index(first) <= ORDER.index(self.phase) <= ORDER.index(last)

    @property
    def target(self) -> Target:
        """Return what the erasure removes; if it is *final*, also the erasure entry."""
        place = self.place
        own, until = (place.page, place.slot), (place.page, place.slot)
        before = cursors.parse_cursor(self.before)
        if isinstance(before, Place):
            until = min(own, (before.page, before.slot))
        key = object_key(Operation("delete", self.type, self.object_id, ()))
        parent = f"{self.type}/{self.object_id}" if self.as_parent else ""
        return Target(
            key=key,
            id=self.object_id,
            until=until,
            own=own,
            name=pseudonym(place.page),
            parent=parent,
            final=self.final,
        )


def to_json(erasure: Erasure) -> str:
    """Return the request of *erasure* as JSON, for a ledger."""
    fields = ("id", "type", "object_id", "by", "reason", "requested_ms", "before", "as_parent")
    return json.dumps({name: getattr(erasure, name) for name in fields}, ensure_ascii=False)


def from_json(text: str) -> Erasure:
    """Return the erasure that was passed to `to_json`, with the fields of the request."""
    return Erasure(**json.loads(text))


def erasure_of(row: Row, tombstone_ms: int) -> Erasure:
    """Return the new record for *row*, which has an erasure entry.

    The phase KEPT ends *tombstone_ms* after the commit of the entry, like the tombstone.
    """
    entry = parse_entry(row.line)
    return Erasure(
        id=Place(row.page, row.slot, row.at_ms // 1000).encode(),
        type=entry.type,
        object_id=entry.id,
        by=entry.by,
        reason=entry.reason,
        requested_ms=row.at_ms,
        before=entry.before,
        as_parent=entry.as_parent,
        phase=Phase.PARENTS if entry.as_parent else Phase.WAITING,
        through=row.page,
        until_ms=row.at_ms + tombstone_ms,
    )


def due_ms(unfinished: Sequence[Erasure]) -> int | None:
    """Return the time at which the job has work on *unfinished*; None if *unfinished* is empty.

    The time is `NEXT_SWEEP` if the job has work now, or waits for a short time.
    """
    return earliest([NEXT_SWEEP if each.is_waiting else each.until_ms for each in unfinished])


UNFINISHED = Kind("erasure", is_due=True)
FINISHED = Kind("erasure-done", "erased")  # apart, so that the job does not read them
_LAYOUT = Layout(
    Erasure,
    {
        "object_id": "object",
        "requested_ms": "at",
        "as_parent": "parent",
        "until_ms": "until",
        "settled_ms": "settled",
        "done_ms": "done",
    },
)


class ErasureStore:
    """The records of the erasures of each feed. Every read is strongly consistent.

    The first and the last write of a record are transactions, because they depend on the records of
    both kinds.
    """

    def __init__(self, records: RecordStore) -> None:
        self._unfinished = Records(records, UNFINISHED, _LAYOUT)
        self._finished = Records(records, FINISHED, _LAYOUT)

    def erasure(self, feed: str, erasure_id: str) -> Erasure | None:
        """Return one record, or None if it does not exist."""
        name = sort_key(erasure_id)
        # In this order, because a record moves from the first kind to the second.
        return self._unfinished.get(feed, name) or self._finished.get(feed, name)

    def erasures(
        self, feed: str, after: str = "", limit: int = limits.ERASURES_LISTED
    ) -> Sequence[Erasure]:
        """Return records of *feed* in the order of the pages of their entries, at most *limit*.

        Return only records after the one with the id *after*; with "", begin with the first.
        """
        unfinished, finished = (
            [*each.all(feed, after=sort_key(after), limit=limit)]
            for each in (self._unfinished, self._finished)
        )
        # A record that was finished between the two queries is in both results.
        moved = {each.id for each in finished}
        left = [each for each in unfinished if each.id not in moved]
        return list(merge(left, finished, key=lambda each: sort_key(each.id)))[:limit]

    def unfinished(self, feed: str) -> Sequence[Erasure]:
        """Return all records that are not in the phase DONE, in the same order.

        The cost must not grow with the number of records in the phase DONE.
        """
        return [*self._unfinished.all(feed)]

    def save(self, feed: str, erasure: Erasure) -> bool:
        """Store *erasure* with `version + 1` and return True if the stored version is its version.

        Otherwise return False. A record that does not exist has version 0.
        """
        name, is_done = sort_key(erasure.id), erasure.phase is Phase.DONE
        records, others = self._unfinished, self._finished
        if is_done:
            records, others = others, records
        write, missing = records.put(erasure, name), expected_version(0)
        if not erasure.version:
            writes = [write, Write(others.kind, name, {}, missing)]
        elif is_done:
            gone = Write(others.kind, name, None, write.expected)
            writes = [write._replace(expected=missing), gone]
        else:
            writes = [write]
        return records.store.write(feed, writes, mark=False)


class Ledger(Protocol):
    """The erasures of each feed that are not done, stored apart from the tables of the feed.

    After the tables were restored from a backup, the log may lack an erasure entry that it had. The
    ledger still has the erasure, so that it is requested again.
    """

    def add(self, feed: str, erasure: Erasure) -> None:
        """Store *erasure*; it is durable when this method returns."""

    def entries(self, feed: str) -> Sequence[Erasure]:
        """Return the stored erasures, of which only the fields of the request are known."""

    def remove(self, feed: str, erasure_id: str) -> None:
        """Remove the erasure; do nothing if it does not exist."""


class RewriteStore(Protocol):
    """The stored entries of a feed, of which an erasure removes content.

    Each method changes only a value that exists and is as it was read. It returns True if the new
    value is stored afterwards, by this call or an earlier one. All else that is stored with the
    value, such as an append id or an expiry, stays.
    """

    def rewrite_page(self, feed: str, page: Page, body: str | bytes) -> bool:
        """Replace the body of *page*, which was read from the log, with *body*.

        Return False if the page is missing, or has another body than *page* and *body*.
        """

    def rewrite_removed_parents(
        self, feed: str, removed: RemovedParents, body: str | bytes
    ) -> bool:
        """Replace the body of the stored *removed*; the result is as for `rewrite_page`."""

    def rewrite_parked(self, feed: str, name: str, parked: Parked, changed: Parked) -> bool:
        """Replace the message *parked* of the consumer *name* with *changed*, of the same id.

        The version of the consumer stays the same. Return False if the message is missing, or is
        neither *parked* nor *changed*.
        """

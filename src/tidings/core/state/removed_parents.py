"""Store and read the parents that each operation removed from its object.

A consumer that filters on a parent receives the operations of an object while the object has that
parent. If an operation removes the parent, the log has only the new parents, but the state still
has the old parents. The follower `state` therefore stores, for each page, the parents that it is
about to overwrite.

The removed parents of a page are unknown if they were not stored yet, have expired, or are too
large. Readers then assume that every operation that does not match the filter has removed a
matching parent.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from tidings.core import limits
from tidings.core.model.feeds import STATE
from tidings.core.model.operations import object_key, parse_line
from tidings.core.model.pages import inflate

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidings.core.log.stores import Checkpoints
    from tidings.core.model.operations import Operation
    from tidings.core.model.pages import Page
    from tidings.core.state.rows import Row

# By slot in a page, the parents that the operation removed.
RemovedBySlot = Mapping[int, tuple[str, ...]]
NOTHING: RemovedBySlot = {}
_DEFLATE_LEVEL = 6


@dataclass(frozen=True)
class RemovedParents:
    """The parents that the operations of *page* removed. *body* is JSON or deflated JSON."""

    page: int
    body: str | bytes
    expires_ms: int = 0

    @cached_property
    def by_slot(self) -> RemovedBySlot:
        body = self.body
        text = body
        if isinstance(body, bytes):
            text = inflate(body, limits.PAGE_TEXT_BYTES_MAX).decode()
        return {int(slot): tuple(parents) for slot, parents in json.loads(text).items()}


class RemovedParentsStore(Protocol):
    """The parents that the operations of each page removed from their objects."""

    def write(self, feed: str, removed: Sequence[RemovedParents]) -> None:
        """Put *removed*, one per page, except for pages that already have removed parents.

        Raises:
            Unavailable: the result of some pages is unknown; the call may be repeated.
        """

    def read(self, feed: str, first: int, last: int) -> list[RemovedParents]:
        """Return the stored removed parents of the pages *first* to *last*, in ascending order.

        The read is strongly consistent. The expiry is not read: `expires_ms` is 0.
        """


@dataclass(frozen=True, slots=True)
class RemovedParentsReader:
    """A reader of the removed parents, for consumers with `leave=true`."""

    store: RemovedParentsStore
    checkpoints: Checkpoints

    def until(self, feed: str) -> int:
        """Return the last page that the follower `state` has handled.

        The removed parents of later pages are not known yet.
        """
        return self.checkpoints.checkpoints(feed).get(STATE, 0)

    def by_page(self, feed: str, pages: Sequence[Page]) -> Mapping[int, RemovedBySlot]:
        """Return the known removed parents of the ascending *pages*, by page."""
        if not pages:
            return {}
        stored = self.store.read(feed, pages[0].number, pages[-1].number)
        return {removed.page: removed.by_slot for removed in stored}


def encode(by_slot: RemovedBySlot) -> str | bytes | None:
    """Return the body for *by_slot*, or None if it does not fit in an item."""
    text = json.dumps(by_slot, ensure_ascii=False, separators=(",", ":"))
    raw = text.encode()
    if len(raw) <= limits.PAGE_PLAIN_BYTES_MAX:
        return text
    packed = zlib.compress(raw, _DEFLATE_LEVEL)
    return packed if len(packed) <= limits.PAGE_BYTES_MAX else None


def removed_by(
    pages: Iterable[Page], rows: Iterable[Row], *, page_ms: int, forgotten_ms: int
) -> list[RemovedParents]:
    """Return the parents that *pages* remove. *rows* are the rows of the objects before the write.

    If the position of a row is the position of an operation of a page, or later, a run that crashed
    has written the row. That run stored the removed parents of the page before it wrote the row, so
    the page is skipped. A page that was committed at or before *forgotten_ms* is also skipped if
    one of its objects has no row, because a tombstone that such a run wrote may have expired. For
    all other pages, the result is the same in every run.
    """
    track = _Track(rows, forgotten_ms)
    removed = []
    for page in pages:
        by_slot = track.follow(page)
        body = encode(by_slot) if by_slot is not None else None
        if body is not None:
            removed.append(RemovedParents(page.number, body, page.at_ms + page_ms))
    return removed


class _Track:
    """The parents of each object after each operation. A deleted object has no parents."""

    def __init__(self, rows: Iterable[Row], forgotten_ms: int) -> None:
        self._forgotten_ms = forgotten_ms
        self._parents: dict[str, tuple[str, ...]] = {}
        self._written: dict[str, tuple[int, int]] = {}
        for row in rows:
            self._parents[row.key] = _parents_after(parse_line(row.line))
            self._written[row.key] = (row.page, row.slot)

    def follow(self, page: Page) -> dict[int, tuple[str, ...]] | None:
        """Return the parents that each operation removed, or None if *page* must be skipped."""
        by_slot: dict[int, tuple[str, ...]] = {}
        known = bool(page.body)
        remembered = page.at_ms > self._forgotten_ms
        for slot, line in page.entries():
            operation = parse_line(line)
            key = object_key(operation)
            if (page.number, slot) <= self._written.get(key, (0, 0)):
                known = False
                continue
            known = known and (remembered or key in self._parents)
            gone = set(self._parents.get(key, ())).difference(operation.parents)
            if gone:
                by_slot[slot] = tuple(sorted(gone))
            self._parents[key] = _parents_after(operation)
        return by_slot if known else None


def _parents_after(operation: Operation) -> tuple[str, ...]:
    return () if operation.event == "delete" else operation.parents

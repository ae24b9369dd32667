"""
Departures: which parents each operation took away from its object.

A consumer that filters on a parent hears of an object while it has that parent. When an
operation takes the parent away, only the state knows: the log holds the new parents. The
follower `state` therefore writes down, page by page, what it is about to overwrite.

A page whose departures are not there is unknown: from before they were kept, expired, or too
large. Readers then take every operation that does not match for one that left. Absence is
never read as "nothing left"; that one rule covers settings that change, crashes and expiry.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.model.objects import object_key
from tidings.core.model.operations import parse_line
from tidings.core.model.unpacking import inflate

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidings.core.model.operations import Operation
    from tidings.core.model.pages import Page
    from tidings.core.state.rows import Row

Left = Mapping[int, tuple[str, ...]]  # by slot, the parents its operation took away
NOTHING: Left = {}
_DEFLATE_LEVEL = 6


@dataclass(frozen=True)
class RemovedParents:
    """What the operations of *page* took away: *body* is JSON, or its deflated bytes."""

    page: int
    body: str | bytes
    expires_ms: int = 0

    @cached_property
    def left(self) -> Left:
        body = self.body
        text = body
        if isinstance(body, bytes):
            text = inflate(body, limits.PAGE_TEXT_BYTES_MAX).decode()
        return {int(slot): tuple(parents) for slot, parents in json.loads(text).items()}


def encode(left: Left) -> str | bytes | None:
    """The body that holds *left*; None where no item can."""
    text = json.dumps(left, ensure_ascii=False, separators=(",", ":"))
    raw = text.encode()
    if len(raw) <= limits.PAGE_PLAIN_BYTES_MAX:
        return text
    packed = zlib.compress(raw, _DEFLATE_LEVEL)
    return packed if len(packed) <= limits.PAGE_BYTES_MAX else None


def depart(
    pages: Iterable[Page], standing: Iterable[Row], *, page_ms: int, forgotten_ms: int
) -> list[RemovedParents]:
    """
    What *pages* take away; *standing* are the rows of their objects before they are written.

    A row at or behind an operation was written by a run that died. Had that run kept
    departures, those of the page are written too, as they come first; so such a page is left
    as it is. So is a page committed at or before *forgotten_ms* with an object that has no row:
    that run may have written a tombstone which has expired since. The others come out the same
    however often they are worked out.
    """
    track = _Track(standing, forgotten_ms)
    departures = []
    for page in pages:
        left = track.follow(page)
        body = encode(left) if left is not None else None
        if body is not None:
            departures.append(RemovedParents(page.number, body, page.at_ms + page_ms))
    return departures


class _Track:
    """The parents each object has, operation by operation. A deleted one has none to lose."""

    def __init__(self, standing: Iterable[Row], forgotten_ms: int) -> None:
        self._forgotten_ms = forgotten_ms
        self._parents: dict[str, tuple[str, ...]] = {}
        self._written: dict[str, tuple[int, int]] = {}
        for row in standing:
            self._parents[row.key] = _parents_after(parse_line(row.line))
            self._written[row.key] = (row.page, row.slot)

    def follow(self, page: Page) -> dict[int, tuple[str, ...]] | None:
        """What each operation took away; None where that is unknown, or written already."""
        left: dict[int, tuple[str, ...]] = {}
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
                left[slot] = tuple(sorted(gone))
            self._parents[key] = _parents_after(operation)
        return left if known else None


def _parents_after(operation: Operation) -> tuple[str, ...]:
    return () if operation.event == "delete" else operation.parents

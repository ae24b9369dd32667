"""
Compaction of the archive: how far it goes, what is left, what is merged, and in which order.

Of the closed parts the last operation of each object is left, as it stands among the closed
parts; what is left out was copied into a table first. Nothing that is read from the archive
meanwhile breaks: at every moment some part holds each page.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.archive.segments import Span
from tidings.core.consumers import position
from tidings.core.followers.follower import standing
from tidings.core.model.operations import is_change, key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tidings.core.consumers.position import Position
    from tidings.core.model.pages import Page

PAGE_BYTES = 400  # of a page that is held, beside its text: a part of empty pages is not endless


@dataclass(frozen=True, slots=True)
class Piece:
    """The pages *first* to *last*, which are read from the part *span*."""

    span: Span
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Weighed:
    """A part: how many entries it has, how many of them are left, and their *size* as text."""

    span: Span
    entries: int
    left: int
    size: int


def closed(spans: Sequence[Span]) -> list[Span]:
    """
    The parts that end before the last one begins.

    The last one is never touched: what comes next to the feed is still to be put behind it.
    """
    return [span for span in spans if span.last < spans[-1].first] if spans else []


def bound(consumers: Iterable[Position | None], checkpoints: Mapping[str, int]) -> int:
    """
    The last page that every named consumer and every follower has handled.

    One that acknowledged nothing is before the first page, so nothing may be compacted. Whoever
    copies the state has yet to begin with the log, and needs none of it.
    """
    handled = [page for each in consumers if (page := position.handled(each)) is not None]
    return min(*handled, *standing(checkpoints, archives=False).values())


def below(spans: Sequence[Span], page: int) -> list[Span]:
    """The parts that end at *page* or before it: one that reaches beyond is left as it is."""
    return [span for span in spans if span.last <= page]


def older(spans: Sequence[Span], at_ms: Callable[[Span], int], before_ms: int) -> list[Span]:
    """
    The parts whose last page was committed at *before_ms* or earlier; *at_ms* reads it.

    By halving: commit times ascend but for the skew of the writers' clocks.
    """
    return list(spans[: bisect_right(spans, before_ms, key=at_ms)])


def pieces(spans: Sequence[Span], after: int, *, leap: bool = False) -> Iterator[Piece]:
    """
    What holds the pages behind *after*, each one once, up to a hole; over it if one may *leap*.
    """
    waiting = sorted(spans, key=lambda span: span.first)
    at, best = 0, None
    while True:
        while at < len(waiting) and waiting[at].first <= after + 1:
            best = max(waiting[at], best) if best else waiting[at]
            at += 1
        if best is not None and best.last > after:
            yield Piece(best, after + 1, best.last)
            after = best.last
        elif leap and at < len(waiting):
            after = waiting[at].first - 1
        else:
            return


def wanted(pages: Iterable[Page], *, changes: bool = True) -> set[tuple[int, int]]:
    """
    Page and slot of what is left of *pages*, which ascend.

    That is the last operation of each object, and of what has no object everything, if *changes*
    are to be left.
    """
    latest: dict[str, tuple[int, int]] = {}
    without: set[tuple[int, int]] = set()
    for page in pages:
        for slot, line in page.entries():
            at = (page.number, slot)
            if not is_change(line):
                latest[key_of(line)] = at
            elif changes:
                without.add(at)
    return without | set(latest.values())


def groups(parts: Sequence[Weighed]) -> list[list[Span]]:
    """
    Which parts are written anew, those of a group as one part.

    Neighbours are put together up to what a reader holds; a part that has nothing to lose and no
    neighbour is left alone. *parts* are all that are compacted, in their order.
    """
    grouped: list[list[Weighed]] = []
    reached = size = 0
    for part in parts:
        size += _weight(part)
        if grouped and part.span.first <= reached + 1 and size <= limits.ARCHIVE_PART_BYTES:
            grouped[-1].append(part)
        else:
            grouped.append([part])
            size = _weight(part)
        reached = part.span.last
    return [
        [part.span for part in group]
        for group in grouped
        if len(group) > 1 or group[0].left < group[0].entries
    ]


def _weight(part: Weighed) -> int:
    return part.size + PAGE_BYTES * (part.span.last - part.span.first + 1)


def joined(parts: Iterable[Sequence[Page]]) -> list[Page]:
    """The pages of parts that overlap or touch, each one once."""
    by_number = {page.number: page for part in parts for page in part}
    return [by_number[number] for number in sorted(by_number)]


def covered(spans: Iterable[Span]) -> list[Span]:
    """
    The parts whose pages another one holds too, in the order in which they are removed.

    The last first. A page is looked for in the first part that ends at it or behind it. If the
    part of the pages 1 to 5 went before that of 6 to 10, page 3 would be looked for in the latter,
    which does not hold it; in this order the one that covers both is what is found next.
    """
    redundant: list[Span] = []
    lowest: int | None = None
    for span in sorted(spans, key=lambda span: (-span.last, span.first)):
        if lowest is not None and lowest <= span.first:
            redundant.append(span)
        lowest = span.first if lowest is None else min(lowest, span.first)
    return redundant

"""Select the parts of the archive to compact, the entries to keep, and the parts to merge.

Compaction rewrites closed parts, and keeps only the last operation of each object in them. An entry
is a line of the log: an operation, or a change of changeagent, which has no object. Entries may be
removed only after they were copied to the tables of the feed's lake. Concurrent reads of the
archive do not fail, because each page is in at least one part at every moment.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.archive.segments import Span
from tidings.core.consumers import position
from tidings.core.followers.follower import effective_checkpoints

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tidings.core.consumers.position import Position
    from tidings.core.model.pages import Page

# The memory that a page takes in addition to its text. It counts towards the size of a part, so
# that a part cannot have too many empty pages.
PAGE_BYTES = 400


@dataclass(frozen=True, slots=True)
class Piece:
    """The pages *first* to *last*, which a reader takes from the part *span*."""

    span: Span
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Weighed:
    """The size of a part before and after compaction.

    The part has *entries* entries before and *kept* entries after compaction. *size* is the size of
    the text of the entries that are left.
    """

    span: Span
    entries: int
    kept: int
    size: int


def closed_parts(spans: Sequence[Span]) -> list[Span]:
    """Return the parts that end before the last part begins.

    The last part is not closed. It is not changed until a later part is written.
    """
    return [span for span in spans if span.last < spans[-1].first] if spans else []


def bound(consumers: Iterable[Position | None], checkpoints: Mapping[str, int]) -> int:
    """Return the last page that every named consumer and every follower has handled.

    A consumer that has acknowledged nothing is before the first page, so nothing may be compacted.
    A consumer that still receives a copy of the state is left out, because it has not started to
    read the log.
    """
    handled = [
        page for each in consumers if (page := position.last_unneeded_page(each)) is not None
    ]
    return min(*handled, *effective_checkpoints(checkpoints, archives=False).values())


def below(spans: Sequence[Span], page: int) -> list[Span]:
    """Return the parts that contain no page after *page*."""
    return [span for span in spans if span.last <= page]


def older(spans: Sequence[Span], at_ms: Callable[[Span], int], before_ms: int) -> list[Span]:
    """Return the parts in which the last page was committed at *before_ms* or earlier.

    *at_ms* returns the commit time of the last page of a part. Commit times ascend, apart from the
    skew of the writers' clocks, so the search is a bisection.
    """
    return list(spans[: bisect_right(spans, before_ms, key=at_ms)])


def pieces(spans: Sequence[Span], after: int, *, leap: bool = False) -> Iterator[Piece]:
    """Yield the pieces that hold the pages after *after*, each page once.

    Stop at the first page that no part has. With *leap*, skip such pages instead.
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


def groups(parts: Sequence[Weighed]) -> list[list[Span]]:
    """Return the groups of parts to rewrite; each group becomes one part.

    *parts* are all parts to be compacted, in order. Adjacent parts of a generation are merged up to
    the size that a reader can hold in memory. A part is left out if compaction removes none of its
    entries and it is not merged with another part.
    """
    grouped: list[list[Weighed]] = []
    reached = size = 0
    for part in parts:
        size += _weight(part)
        is_next = grouped and grouped[-1][0].span.generation == part.span.generation
        if is_next and part.span.first <= reached + 1 and size <= limits.ARCHIVE_PART_BYTES:
            grouped[-1].append(part)
        else:
            grouped.append([part])
            size = _weight(part)
        reached = part.span.last
    return [
        [part.span for part in group]
        for group in grouped
        if len(group) > 1 or group[0].kept < group[0].entries
    ]


def _weight(part: Weighed) -> int:
    return part.size + PAGE_BYTES * (part.span.last - part.span.first + 1)


def join_parts(parts: Iterable[Sequence[Page]]) -> list[Page]:
    """Return the pages of parts that overlap or touch, each page once."""
    by_number = {page.number: page for part in parts for page in part}
    return [by_number[number] for number in sorted(by_number)]


def covered_parts(spans: Iterable[Span]) -> list[Span]:
    """Return the parts that another part of their generation contains entirely.

    They are in the order in which to remove them.

    The part that ends last comes first, because a reader may look for a page only in the first part
    that ends at the page or after it. For example, part 1-20 covers parts 1-5 and 6-10. If part 1-5
    were removed first, a reader would look for page 3 in part 6-10. If part 6-10 is removed first,
    the reader finds page 3 in part 1-5 and, after that part was removed, in part 1-20.
    """
    redundant: list[Span] = []
    lowest: dict[int, int] = {}
    for span in sorted(spans, key=lambda span: (-span.last, span.first)):
        least = lowest.setdefault(span.generation, span.first + 1)
        if least <= span.first:
            redundant.append(span)
        lowest[span.generation] = min(least, span.first)
    return redundant

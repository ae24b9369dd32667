"""
Pages that a restore or a promotion lost: readers saw them, and the log does not have them.

Their numbers are never given again, so a cursor that names one proves that its consumer has seen
what the feed does not know any more. Only a full copy repairs that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.model.cursors import Place, Replication

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidings.core.model.cursors import Cursor

Lost = tuple[int, int]  # the first and the last page of what one restore lost


def bounded(lost: Iterable[Lost]) -> tuple[Lost, ...]:
    """
    Return *lost* in the order of the log, the oldest ones merged where there are too many.

    A reader at a page between two that were merged is told of a loss that it did not have.
    """
    ranges = sorted(lost)
    while len(ranges) > limits.LOST_RANGES_MAX:
        ranges[:2] = [(ranges[0][0], ranges[1][1])]
    return tuple(ranges)


def hit(cursor: Cursor, lost: Iterable[Lost]) -> bool:
    """
    Whether who comes with *cursor* may have heard of what was lost.

    Rows of a copy may be from any moment after it began: one that began before the restore was
    perhaps told some of what was lost, also where the log behind it is whole.
    """
    for first, last in lost:
        match cursor:
            case Place(page=page) if first <= page <= last:
                return True
            case Replication(page=page, bucket=bucket) if page <= last and (
                page >= first or bucket < limits.BUCKETS
            ):
                return True
    return False


def possible(known: int, elapsed_ms: int) -> int:
    """
    Return how many numbers behind *known* can have been given in *elapsed_ms*.

    A wrong clock must not use them up: each jump takes a small part of those that are left.
    """
    seconds = (max(0, elapsed_ms) + limits.CLOCK_SKEW_MS_MAX) // 1000
    left = max(0, limits.PAGE_NUMBER_MAX - known)
    return min(seconds * limits.NUMBERS_PER_S_MAX, left // limits.JUMPS_MIN)

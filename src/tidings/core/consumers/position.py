"""
Where a named consumer stands: behind which everything is acknowledged.

A place in the log, or in the middle of a copy; `Since(0)` before a copy has begun. None is a
state of its own: it has acknowledged nothing, and begins with the oldest page there is.
"""

from __future__ import annotations

from tidings.core import limits
from tidings.core.errors import InvalidConsumer
from tidings.core.model.cursors import PAGE_END, START, Place, Replication, Since, known, parse

Position = Place | Replication | Since
COPY = Since(0)
OLDEST, NOW, COPIED = "oldest", "now", "copy"


def rank(position: Position | None) -> tuple[int, int, int]:
    """The order in which a consumer passes positions: it never goes back by itself."""
    match position:
        case Place(page, slot, _):
            return page, slot, 0
        case Replication(_, page, bucket, _):
            return page, -1, bucket
        case Since():
            return -1, 0, 0
    return -2, 0, 0


def later(one: Position | None, other: Position | None) -> Position | None:
    return one if rank(one) > rank(other) else other


def handled(position: Position | None) -> int | None:
    """The last page of which nothing is needed any more; None where the log is not needed."""
    match position:
        case Place(page, slot, _):
            return page if slot >= PAGE_END else page - 1
        case Replication(_, page, _, _):
            return page
        case Since():
            return None
    return 0


def fell_off(position: Position | None, floor: int) -> bool:
    """Whether pages that are needed from *position* on lie below *floor*; never at the oldest."""
    done = handled(position)
    return position is not None and done is not None and done + 1 < floor


def encoded(position: Position | None) -> str | None:
    """As clients see it; `0` is a copy that has not begun."""
    if position is None:
        return None
    return "0" if isinstance(position, Since) else position.encode()


def read(text: str | None) -> Position | None:
    """What `encoded` made."""
    if not text:
        return None
    position = parse(text)
    assert isinstance(position, Position)
    return position


def oldest(floor: int) -> str:
    """
    The cursor that continues with the first page of a log that begins at *floor*.

    The page before is gone, so that no place in it could be checked: a copy with nothing left
    to copy says the same.
    """
    if floor <= 1:
        return START.encode()
    return Replication(0, floor - 1, limits.BUCKETS, tombstones=False).encode()


def cursor(position: Position | None, floor: int) -> str:
    """
    What a worker resumes from, in a log that begins at *floor*.

    Who has handled all that was given up names a page that is gone, which would be taken for a
    time: a consumer that was away for long and missed nothing is not sent the state instead.
    """
    gone = isinstance(position, Place) and position.slot >= PAGE_END and position.page < floor
    return oldest(floor) if position is None or gone else encoded(position) or ""


def given(text: object, field: str) -> Position:
    """
    An id that a client names: of an entry, of the end of a page, or within a copy.

    Raises:
        InvalidConsumer: it is none.
    """
    position = known(text)
    if not isinstance(position, Place | Replication):
        raise InvalidConsumer("must be the id of an event", field=field, value=text)
    return position


def entry(text: object, field: str) -> Place:
    """
    The id of one entry of the log.

    Raises:
        InvalidConsumer: it is none.
    """
    place = known(text)
    if not isinstance(place, Place) or place.slot >= PAGE_END:
        raise InvalidConsumer("must be the id of one operation", field=field, value=text)
    return place

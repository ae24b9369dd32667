"""Watermarks. The watermark of a dump is the position or time in the feed at which the dump began.

An object that changed in the feed after the watermark is newer than the dump, regardless of its
timestamp. A sync neither deletes nor overwrites this object. An object that changed before the
watermark and is not in the dump has been deleted.

The best watermark is a position in the log, because it does not depend on a clock. The exporter
requests the end of the log before the dump begins. Otherwise the watermark can be a clock time,
which is compared with the commit times of pages. If the operator gives neither, the newest
timestamp in the dump is used and compared with the timestamps of operations. A timestamp in the
future would then make the entire feed look older than the dump, so it is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.errors import InvalidOperation, InvalidSync
from tidings.core.model import cursors, timestamps
from tidings.core.model.cursors import Place
from tidings.core.sync.corrections import Position

if TYPE_CHECKING:
    pass

FIELD = "as_of"


@dataclass(frozen=True, slots=True)
class Reached:
    """The watermark of a dump that began when the log had reached *position*."""

    position: Position


@dataclass(frozen=True, slots=True)
class Moment:
    """The watermark of a dump that began at *ms*; the maximum clock skew is already subtracted."""

    ms: int


@dataclass(frozen=True, slots=True)
class Newest:
    """The watermark of a dump that began at an unknown time. *ms* is its newest timestamp."""

    ms: int


Watermark = Reached | Moment | Newest


def parse(text: object, *, now_ms: int | None = None) -> Place | Moment:
    """Parse the position or time at which a dump began: an event id or an RFC 3339 timestamp.

    Raises:
        InvalidSync: *text* is neither of these, or is a time after *now_ms*.
    """
    if not isinstance(text, str):
        raise InvalidSync("must be a string", field=FIELD, value=text)
    try:
        ms = timestamps.to_ms(timestamps.normal_form(text))
    except ValueError:
        return _place(text)
    if now_ms is not None and ms > latest_ms(now_ms):
        rule = f"must not lie in the future; now is {timestamps.from_ms(now_ms)}"
        raise InvalidSync(rule, field=FIELD, value=text)
    return Moment(ms - limits.CLOCK_SKEW_MS_MAX)


def find_watermark(place: Place, seconds: int | None, *, floor: int, end: int) -> Reached:
    """Return the watermark at *place* after checking that *place* belongs to the feed.

    The log has the pages *floor* to *end*. *seconds* is the commit time of the page of *place*, or
    None if the log does not have this page.

    Raises:
        InvalidSync: *place* is not in this feed, or the log no longer goes back to *place*.
    """
    if place.page and seconds is None:
        if place.page > end:
            rule = f"is not an id of this feed: the log ends with page {end}"
        else:
            rule = (
                f"is of a page before page {floor}, the first page of the log; name the time"
                " at which the dump began instead"
            )
        raise InvalidSync(rule, field=FIELD, value=place.encode())
    if place.page and seconds != place.seconds:
        raise InvalidSync("is not an id of this feed", field=FIELD, value=place.encode())
    return Reached(Position(place.page, place.slot))


def newest(ms: int, *, now_ms: int) -> Newest:
    """Return the watermark of a dump that began at an unknown time and has *ms* as newest time.

    Raises:
        InvalidOperation: the timestamp is in the future.
    """
    if ms > latest_ms(now_ms):
        raise InvalidOperation(future_rule(now_ms), field="timestamp", value=timestamps.from_ms(ms))
    return Newest(ms)


def latest_ms(now_ms: int) -> int:
    """Return the latest time that the clock of another host may show at *now_ms*."""
    return now_ms + limits.CLOCK_SKEW_MS_MAX


def future_rule(now_ms: int) -> str:
    """Return the error message for a line of a dump with a time in the future."""
    return (
        f"must not lie in the future (now is {timestamps.from_ms(now_ms)}) without --as-of, the"
        " start of the dump; otherwise every object that the dump lacks and that is older than this"
        " line would be deleted"
    )


def _place(text: str) -> Place:
    place = cursors.parse_cursor(text)
    if not isinstance(place, Place):
        rule = "must be the end of the log when the dump began (`tidings log end`), or a timestamp"
        raise InvalidSync(rule, field=FIELD, value=text)
    return place

"""
Watermarks: the moment at which a dump began, as the feed knows it.

What changed in the feed behind it is newer than the dump, whatever any timestamp says, and is
neither deleted nor overwritten. All that stood before it and is not in the dump is gone.

Best is a place in the log, which no clock has made: whoever makes a dump asks for the end of the
log first. A time of a clock is compared with those at which pages were committed. Where nobody
says when a dump began, the newest timestamp in it has to do: then timestamps are compared, and
one from the future would make the whole feed seem older than the dump.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.errors import InvalidOperation, InvalidSync
from tidings.core.model import cursors, timestamps
from tidings.core.model.cursors import Place
from tidings.core.sync.corrections import Position

if TYPE_CHECKING:
    from tidings.core.state.rows import Row

FIELD = "as_of"


@dataclass(frozen=True, slots=True)
class Reached:
    """The dump began when the log had reached *position*."""

    position: Position

    def precedes(self, row: Row) -> bool:
        return Position(row.page, row.slot) > self.position


@dataclass(frozen=True, slots=True)
class Moment:
    """The dump began at *ms*, with what two clocks may differ taken off."""

    ms: int

    def precedes(self, row: Row) -> bool:
        return row.at_ms >= self.ms


@dataclass(frozen=True, slots=True)
class Newest:
    """Nobody says when it began; *ms* is the timestamp of its newest line."""

    ms: int

    def precedes(self, row: Row) -> bool:
        return timestamps.to_ms(json.loads(row.line)["timestamp"]) >= self.ms


Watermark = Reached | Moment | Newest


def parse(text: object, *, now_ms: int | None = None) -> Place | Moment:
    """
    Read what says when a dump began: an event id, or a timestamp of RFC 3339.

    Raises:
        InvalidSync: it is neither; or, where *now_ms* is known, a time that is still to come.
    """
    if not isinstance(text, str):
        raise InvalidSync("must be a string", field=FIELD, value=text)
    try:
        ms = timestamps.to_ms(timestamps.normal_form(text))
    except ValueError:
        return _place(text)
    if now_ms is not None and ms > latest_ms(now_ms):
        rule = f"must not lie in the future: it is {timestamps.from_ms(now_ms)}"
        raise InvalidSync(rule, field=FIELD, value=text)
    return Moment(ms - limits.CLOCK_SKEW_MS_MAX)


def reached(place: Place, seconds: int | None, *, floor: int, end: int) -> Reached:
    """
    *place*, once it is known to be one of the feed: *seconds* is when the page of its number was
    committed, None where it is not in the log, which goes from page *floor* to page *end*.

    Raises:
        InvalidSync: it is none of this feed, or the log no longer reaches back to it.
    """
    if place.page and seconds is None:
        if place.page > end:
            rule = f"is behind the end of the log, page {end}: not an id of this feed"
        else:
            rule = (
                f"is of a page that the log gave up: it begins with page {floor}. Name the moment"
                " at which the dump began instead"
            )
        raise InvalidSync(rule, field=FIELD, value=place.encode())
    if place.page and seconds != place.seconds:
        raise InvalidSync("is not an id of this feed", field=FIELD, value=place.encode())
    return Reached(Position(place.page, place.slot))


def newest(ms: int, *, now_ms: int) -> Newest:
    """
    The watermark of a dump of which nothing is known but its newest timestamp.

    Raises:
        InvalidOperation: that lies in the future.
    """
    if ms > latest_ms(now_ms):
        raise InvalidOperation(future_rule(now_ms), field="timestamp", value=timestamps.from_ms(ms))
    return Newest(ms)


def latest_ms(now_ms: int) -> int:
    """The latest time that another clock may tell now."""
    return now_ms + limits.CLOCK_SKEW_MS_MAX


def future_rule(now_ms: int) -> str:
    """What is said of a line of a dump whose time is still to come."""
    return (
        f"must not lie in the future, it is {timestamps.from_ms(now_ms)}, unless --as-of says when"
        " the dump began: what is older than its newest line and not in it would be deleted"
    )


def _place(text: str) -> Place:
    place = cursors.known(text)
    if not isinstance(place, Place):
        rule = "must be the end of the log when the dump began (`tidings log end`), or a timestamp"
        raise InvalidSync(rule, field=FIELD, value=text)
    return place

"""Watermarks: when a dump began, as it is given, checked and compared."""

from __future__ import annotations

import pytest

from tests.unit.core.scene import NOW, line, page
from tests.unit.core.sync.reconcile import precedes
from tests.unit.core.sync.test_dumps import row
from tidings.core import limits
from tidings.core.errors import InvalidOperation, InvalidSync
from tidings.core.model import timestamps
from tidings.core.model.cursors import PAGE_END, START, Place
from tidings.core.sync import watermark
from tidings.core.sync.corrections import Position
from tidings.core.sync.watermark import Moment, Newest, Reached, Watermark

MINUTE = limits.CLOCK_SKEW_MS_MAX


def test_a_place_or_a_time() -> None:
    """The end of a page, one entry, the end of a log without a page, a time of any offset."""
    for place in (Place(7, PAGE_END, 5), Place(7, 3, 5), START):
        assert watermark.parse(place.encode()) == place
    at = timestamps.to_ms("2026-11-20T16:19:10.94Z")
    assert watermark.parse("2026-11-20T17:19:10.94+01:00") == Moment(at - MINUTE)


@pytest.mark.parametrize("text", ["", "now", "0", "-1", "yesterday", "9" * 24, 7, None])
def test_nothing_else(text: object) -> None:
    """A place in a copy, a replication id and a relative end of the log are refused."""
    if text == "9" * 24:
        text = "00000000000000000a800003"
    with pytest.raises(InvalidSync) as caught:
        watermark.parse(text)
    assert (caught.value.field, caught.value.value) == ("as_of", text)


def test_a_time_to_come_is_none() -> None:
    """It may be ahead by the clock tolerance."""
    assert watermark.parse(timestamps.from_ms(NOW + MINUTE), now_ms=NOW) == Moment(NOW)
    with pytest.raises(InvalidSync, match="must not lie in the future; now is 2025"):
        watermark.parse(timestamps.from_ms(NOW + MINUTE + 1), now_ms=NOW)


def test_a_place_must_be_of_the_feed() -> None:
    """In its log, with the second of its page; or before the first page there ever was."""
    known_page = page(7, line())
    here = Place(7, 3, known_page.seconds)
    assert watermark.find_watermark(here, known_page.seconds, floor=1, end=9) == Reached(
        Position(7, 3)
    )
    assert watermark.find_watermark(START, None, floor=1, end=0) == Reached(Position(0, PAGE_END))
    for place, known, sentence in (
        (Place(7, 3, known_page.seconds + 1), known_page.seconds, "is not an id of this feed"),
        (Place(10, 3, 5), None, "is not an id of this feed: the log ends with page 9"),
        (Place(3, 3, 5), None, "before page 5, the first page of the log"),
    ):
        with pytest.raises(InvalidSync, match=sentence):
            watermark.find_watermark(place, known, floor=5, end=9)


def test_the_newest_line_must_not_come_from_the_future() -> None:
    """The error names the field, the value and the rule."""
    assert watermark.newest(NOW + MINUTE, now_ms=NOW) == Newest(NOW + MINUTE)
    with pytest.raises(InvalidOperation, match="must not lie in the future") as caught:
        watermark.newest(NOW + MINUTE + 1, now_ms=NOW)
    assert (caught.value.field, caught.value.value) == (
        "timestamp",
        timestamps.from_ms(NOW + MINUTE + 1),
    )


def test_what_is_behind() -> None:
    """A place: strictly. A time, of a clock or of a line: from that millisecond on."""
    at = row("a", ms=NOW, page=5)  # slot 1, committed at NOW
    behind: list[Watermark] = [
        Reached(Position(5, 0)),
        Reached(Position(4, PAGE_END)),
        Moment(NOW),
        Newest(NOW),
    ]
    before: list[Watermark] = [
        Reached(Position(5, 1)),
        Reached(Position(5, PAGE_END)),
        Moment(NOW + 1),
    ]
    assert all(precedes(each, at) for each in behind)
    assert not any(precedes(each, at) for each in [*before, Newest(NOW + 1)])

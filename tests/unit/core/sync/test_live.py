"""The differences between a live source and the state, and which of them persist."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.core.scene import NOW, line, page
from tests.unit.core.sync.reconcile import precedes
from tests.unit.core.sync.test_dumps import row
from tidings.core import limits
from tidings.core.errors import InvalidOperation, InvalidSync
from tidings.core.model import timestamps
from tidings.core.model.cursors import PAGE_END, START, Place
from tidings.core.state.rows import Row
from tidings.core.sync import watermark
from tidings.core.sync.corrections import NOWHERE, Position
from tidings.core.sync.dumps import dump_line
from tidings.core.sync.live import Compare, Difference, Suspects, Verdict, difference
from tidings.core.sync.watermark import Moment, Newest, Reached, Watermark

EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
LAST = "9999-01-01T00:00:00Z"
AB = {"a": 1, "b": 2}
GRACE_MS = 1_000


def source(timestamp: str | None = LATE, **fields: Any) -> str:
    return dump_line({"type": "video", "id": "x", "timestamp": timestamp, **fields})


def stored(event: str = "update", timestamp: str = EARLY, **fields: Any) -> Row:
    line = source(timestamp, **fields).replace('"insert"', f'"{event}"', 1)
    return Row(
        key="video/x", page=7, slot=3, at_ms=0, line=line, expires_ms=1 if event == "delete" else 0
    )


@pytest.mark.parametrize("compare", list(Compare))
def test_what_only_one_of_them_has(compare: Compare) -> None:
    """A row that exists wins over a deletion, whatever the times are."""
    assert difference(None, None, compare) is None
    assert difference(None, stored("delete"), compare) is None
    for each in (source(), source(EARLY), source(None)):
        assert difference(each, None, compare) == Difference("insert", each, NOWHERE)
        gone = stored("delete", LATE)
        assert difference(each, gone, compare) == Difference("insert", each, Position(7, 3))
    row = stored()
    assert difference(None, row, compare) == Difference("delete", row.line, Position(7, 3))


@pytest.mark.parametrize(
    ("compare", "line", "row", "differs"),
    [
        (Compare.PRESENCE, source(data=1), stored(data=2), False),
        (Compare.TIME, source(), stored(), True),
        (Compare.TIME, source(EARLY, data=1), stored(data=2), False),
        (Compare.TIME, source(EARLY), stored(timestamp=LATE), False),
        (Compare.TIME, source(None), stored(), False),
        (Compare.CONTENT, source(None, data=1), stored(data=2), True),
        (Compare.CONTENT, source(None, data=1), stored(data=2, timestamp=LAST), True),
        (Compare.CONTENT, source(None, data=1), stored(data=True), True),
        (Compare.CONTENT, source(None, data=AB), stored(data={"b": 2, "a": 1}), False),
        (Compare.CONTENT, source(None, parents=["a"]), stored(), True),
        (Compare.CONTENT, source(), stored(), False),
    ],
)  # fmt: skip
def test_what_both_of_them_have(compare: Compare, line: str, row: Row, differs: bool) -> None:
    """The compared fields decide; an update has the row's values and the position of the state's
    row."""
    wanted = Difference("update", line, Position(7, 3)) if differs else None
    assert difference(line, row, compare) == wanted


@pytest.mark.parametrize("compare", list(Compare))
def test_tags_are_kept(compare: Compare) -> None:
    """Tags, such as that of a reader, are in no column, so they are not compared and not lost."""
    assert difference(source(EARLY, data=1), stored(data=1, tags=["t"]), compare) is None
    found = difference(source(data=1), stored(data=2, tags=["t"]), compare)
    tagged = Difference("update", source(data=1, tags=["t"]), Position(7, 3))
    assert found == (None if compare is Compare.PRESENCE else tagged)
    gone = difference(source(data=1), stored("delete", data=2, tags=["t"]), compare)
    assert gone == Difference("insert", source(data=1), Position(7, 3))


def test_a_correction_has_a_time() -> None:
    """It has the row's time, else the current one; a delete keeps the time of the object."""
    now_ms = timestamps.to_ms(LATE)
    made = Difference("update", source(EARLY), Position(7, 3)).correction(now_ms)
    assert (made.key, made.at) == ("video/x", Position(7, 3))
    assert json.loads(made.line) == json.loads(source(EARLY)) | {"event": "update"}
    assert json.loads(Difference("insert", source(None), NOWHERE).correction(now_ms).line) == (
        json.loads(source(LATE))
    )
    old = Difference("delete", source(None), Position(7, 3)).correction(now_ms)
    assert json.loads(old.line) == json.loads(source(None)) | {"event": "delete"}


def see(suspects: Suspects, found: Difference | None, at_ms: int) -> Verdict:
    return suspects.see("video/x", found, began_ms=at_ms, ended_ms=at_ms + 10)


FOUND = Difference("update", source(), Position(7, 3))


def test_a_difference_lasts_that_is_the_same_a_grace_later() -> None:
    """Counted from the end of one look to the beginning of the next."""
    suspects = Suspects(GRACE_MS)
    assert see(suspects, None, 0) is Verdict.AGREES
    assert see(suspects, FOUND, 0) is Verdict.WAITS
    assert suspects.due(GRACE_MS + 9, 10) == []
    assert suspects.next_ms() == GRACE_MS + 10
    assert see(suspects, FOUND, GRACE_MS + 9) is Verdict.WAITS
    assert suspects.due(GRACE_MS + 10, 10) == ["video/x"]
    assert see(suspects, FOUND, GRACE_MS + 10) is Verdict.LASTS
    assert (len(suspects), suspects.next_ms()) == (0, None)


@pytest.mark.parametrize(
    "other",
    [
        Difference("update", source(data=1), Position(7, 3)),
        Difference("update", source(), Position(8, 0)),
        Difference("delete", source(), Position(7, 3)),
    ],
    ids=["the row", "the state", "the event"],
)
def test_another_difference_begins_anew(other: Difference) -> None:
    """The wait starts again for any other difference, as the change may still be in flight."""
    suspects = Suspects(GRACE_MS)
    see(suspects, FOUND, 0)
    assert see(suspects, other, 2 * GRACE_MS) is Verdict.WAITS
    assert suspects.due(2 * GRACE_MS + 500, 10) == []
    assert see(suspects, None, 4 * GRACE_MS) is Verdict.SETTLED


def test_a_row_that_never_rests_is_given_up() -> None:
    """It is given up after a number of looks; the writer's own posts cover it."""
    suspects, looks = Suspects(GRACE_MS), range(limits.LIVE_LOOKS_MAX + 1)
    found = [
        see(suspects, Difference("update", source(data=n), Position(7, 3)), n * 2 * GRACE_MS)
        for n in looks
    ]
    assert found == [Verdict.WAITS] * limits.LIVE_LOOKS_MAX + [Verdict.RESTLESS]
    assert len(suspects) == 0


def test_those_that_waited_longest_are_due_first() -> None:
    """No more of them are returned than were asked for."""
    suspects = Suspects(GRACE_MS)
    for number in range(3):
        suspects.see(f"video/{number}", FOUND, began_ms=number, ended_ms=number)
    assert suspects.due(GRACE_MS + 1, 10) == ["video/0", "video/1"]
    assert suspects.due(GRACE_MS + 9, 2) == ["video/0", "video/1"]


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

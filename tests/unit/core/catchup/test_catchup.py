"""Catching up from a place in the log, and where the log does not reach it any more."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.following import SECOND, caught_up, filled, follow, in_order, names, trimmed
from tests.unit.core.scene import FEED, NOW, TOMBSTONE_MS, Scene, line, op
from tidings.core import limits
from tidings.core.catchup.catchup import LIVE, Progress
from tidings.core.model import cursors
from tidings.core.model.cursors import PAGE_END, START, Place, Replication, Since
from tidings.core.model.filters import EVERYTHING
from tidings.core.model.pages import Page


@given(
    st.builds(
        Progress,
        st.integers(0, 9),
        st.integers(0, PAGE_END),
        st.integers(0, 0xFFFFFFFF),
        st.booleans(),
        st.integers(0, 0xFFFFFFFF),
        st.integers(0, limits.BUCKETS),
        st.none() | st.text(),
        *[st.booleans()] * 4,
        st.integers(0, 2 * cursors.PARTS_MAX * limits.COPY_PART_ROWS),
        st.integers(0, 0xFFFFFFFF),
    )
)
def test_progress_reads_back(progress: Progress) -> None:
    """It is kept in the connection between two steps; its cursor is always one.

    Beyond the last part of a very large bucket all the rest has one cursor.
    """
    assert Progress.decode(progress.encode()) == progress
    part = min(progress.passed // limits.COPY_PART_ROWS, cursors.PARTS_MAX)
    copy = progress.since_ms // 1000, progress.page, progress.bucket, progress.tombstones, part
    assert cursors.parse(progress.cursor) == (
        Replication(*copy)
        if progress.copying
        else Place(progress.page, progress.slot, progress.seconds)
    )


def test_a_release_that_lacks_a_field_goes_on() -> None:
    """During an update one release resumes the progress that another one stored. Fields with their
    default are not stored.
    """
    begun = Progress(7, copying=True, resets=True)

    assert json.loads(begun.encode()) == {"page": 7, "copying": True, "resets": True}
    assert Progress.decode('{"page":7,"copying":true,"resets":true,"news":1}') == begun


def test_O29_now_is_the_frontier(scene: Scene) -> None:
    """No backlog, no reset, no live; then only what comes after."""
    filled(scene)
    started = scene.catch_up.start(FEED, cursors.Now())
    assert follow(scene, started) == ([], started)

    scene.post(op("d"))
    assert names(follow(scene, started)[0]) == ["update d"]


CHANGED = ["delete b", "insert a", "insert c", "live"]
COPIED = ["reset", "insert a", "insert c", "live"]
LATER = ["insert c", "update a", "delete b"]
# The events that a consumer with this cursor is sent of the three pages of `filled`.
CURSORS = [
    ("O38-an event", "{first}000000", ["insert b", *LATER]),
    ("O38-the last event of a page", "{second}000001", ["delete b"]),
    ("O38-a page", "{second}7fffff", ["delete b"]),
    ("behind the last slot of a page", "{first}001000", LATER),
    ("O40-an id of somebody else", f"{SECOND:08x}95528dd0f3863c00", CHANGED),
    ("a page behind the head", f"{SECOND:08x}{2**40 - 1:010x}000000", CHANGED),
    ("a time to come", "f" * 16 + "0" * 8, ["live"]),
    ("no time", "0" * 24, COPIED),
    ("a time before everything", f"{30:08x}{7:010x}000000", COPIED),
]


@pytest.mark.parametrize(("name", "cursor", "events"), CURSORS, ids=[row[0] for row in CURSORS])
def test_where_a_cursor_leads(scene: Scene, name: str, cursor: str, events: list[str]) -> None:
    """A cursor leads to the place after it in the log, to the changes since its time, or to a full
    copy.
    """
    first, second, _ = filled(scene)
    cursor = cursor.format(first=first.id_prefix, second=second.id_prefix)

    assert in_order(names(caught_up(scene, cursor))) == events


@pytest.mark.parametrize(
    ("later_ms", "events"), [(0, CHANGED), (TOMBSTONE_MS, COPIED)], ids=["O40", "anew"]
)
def test_a_page_given_up_is_a_time(scene: Scene, later_ms: int, events: list[str]) -> None:
    """Once deletes may have been forgotten, the client gets a reset and everything."""
    first, _, _ = filled(scene)
    trimmed(scene, 3)
    scene.now_ms += later_ms

    assert in_order(names(caught_up(scene, first.end.encode()))) == events


def test_O39_what_was_numbered_earlier_and_stored_later_is_not_skipped(scene: Scene) -> None:
    """Readers wait before the hole; the late page comes in its place."""
    scene.post(op("a"))
    late = scene.log.take(FEED)
    scene.post(op("c"))
    started = scene.catch_up.start(FEED, Place(1, PAGE_END, SECOND))
    assert follow(scene, started) == ([], started)

    scene.log.put(FEED, Page(late, line("b"), "late", NOW))
    assert names(follow(scene, started)[0]) == ["update b", "update c"]


@given(st.integers(0, 7))
def test_a_resume_from_any_event_continues_exactly_there(handled: int) -> None:
    """A consumer that resumes from any event gets exactly the events after it."""
    scene = Scene()
    for names_ in ("ab", "c", "def"):
        scene.post(*(op(name) for name in names_))
    everything = caught_up(scene, START.encode())
    cursor = everything[handled - 1].id if 0 < handled <= len(everything) else START.encode()

    expected = everything[handled:] if handled <= len(everything) else everything
    assert caught_up(scene, cursor) == expected


def test_falling_back_by_time_begins_earlier(scene: Scene) -> None:
    """It begins earlier by the difference of two writers' clocks, and by the time that a write may
    take after its page number was taken.
    """
    scene.post(op("long ago"))
    scene.now_ms += 2000
    scene.post(op("just before"))
    scene.now_ms += limits.STAMP_DISORDER_MS
    scene.project()

    events = caught_up(scene, f"{scene.now_ms // 1000:08x}95528dd0f3863c00")
    assert names(events) == ["insert just before", "live"]


def test_no_cursor_of_a_copy_comes_before_its_reset(scene: Scene) -> None:
    """A client that is cut off between the two would continue its copy and keep objects that were
    deleted.
    """
    filled(scene)
    progress = scene.catch_up.start(FEED, Place(1, 0, SECOND))
    trimmed(scene, 3)
    scene.now_ms += TOMBSTONE_MS
    while not progress.copying:
        step = scene.catch_up.step(FEED, progress, EVERYTHING)
        progress = step.progress
    assert names(step.events) == ["reset"] and not progress.resets


def test_trimmed_in_the_middle_of_the_log(scene: Scene) -> None:
    """A consumer too slow for the retention falls back to the state, without a gap."""
    filled(scene)
    progress = scene.catch_up.start(FEED, Place(1, 0, SECOND))
    trimmed(scene, 3)

    assert in_order(names(follow(scene, progress)[0])) == CHANGED


def test_a_frontier_step_of_nothing_is_quiet(scene: Scene) -> None:
    """Further steps at the frontier do not repeat `live`."""
    filled(scene)
    events, progress = follow(scene, scene.catch_up.start(FEED, Since(0)))
    assert names(events)[-1] == LIVE

    assert follow(scene, progress) == ([], progress)

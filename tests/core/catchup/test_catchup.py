"""Catching up from a place in the log, and where the log does not reach it any more."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidings.core import limits
from tidings.core.catchup.catchup import LIVE, Progress
from tidings.core.model import cursors
from tidings.core.model.cursors import PAGE_END, START, Place, Replication, Since
from tidings.core.model.filters import EVERYTHING
from tidings.core.model.pages import Page

from tests.core.following import SECOND, caught_up, filled, follow, names, trimmed
from tests.core.scene import FEED, NOW, TOMBSTONE_MS, Scene, line, op


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
    """
    It is kept in the connection between two steps; its cursor is always one.

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


def test_O29_now_is_the_frontier(scene: Scene) -> None:
    """No backlog, no reset, no live; then only what comes after."""
    filled(scene)
    started = scene.catch_up.start(FEED, cursors.Now())
    assert follow(scene, started) == ([], started)

    scene.post(op("d"))
    assert names(follow(scene, started)[0]) == ["update d"]


def test_O38_from_an_event_id(scene: Scene) -> None:
    """Every later operation in log order, without that one, without reset and live."""
    first, second, _ = filled(scene)

    later = ["insert b", "insert c", "update a", "delete b"]
    assert names(caught_up(scene, first.id_prefix + "000000")) == later
    assert names(caught_up(scene, second.id_prefix + "000001")) == ["delete b"]
    assert names(caught_up(scene, second.end.encode())) == ["delete b"]


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
    """Whichever event was the last one handled, what follows is the rest."""
    scene = Scene()
    for names_ in ("ab", "c", "def"):
        scene.post(*(op(name) for name in names_))
    everything = caught_up(scene, START.encode())
    cursor = everything[handled - 1].id if 0 < handled <= len(everything) else START.encode()

    expected = everything[handled:] if handled <= len(everything) else everything
    assert caught_up(scene, cursor) == expected


def test_O40_an_id_of_somebody_else_is_a_time(scene: Scene) -> None:
    """The latest of each object changed since, deletes too; then live; never a reset."""
    filled(scene)
    object_id = f"{SECOND:08x}95528dd0f3863c00"

    events = caught_up(scene, object_id)

    assert sorted(names(events)) == ["delete b", "insert a", "insert c", "live"]
    assert names(events)[-1] == "live"


def test_falling_back_by_time_begins_earlier(scene: Scene) -> None:
    """By what two writers' clocks may differ, and by how long one may stay behind its number."""
    scene.post(op("long ago"))
    scene.now_ms += 2000
    scene.post(op("just before"))
    scene.now_ms += limits.STAMP_DISORDER_MS
    scene.project()

    events = caught_up(scene, f"{scene.now_ms // 1000:08x}95528dd0f3863c00")
    assert names(events) == ["insert just before", "live"]


def test_O40_a_page_given_up_is_a_time_too(scene: Scene) -> None:
    """The cursor was ours, but the log does not reach back that far."""
    first, _, _ = filled(scene)
    trimmed(scene, 3)

    events = names(caught_up(scene, first.end.encode()))
    assert sorted(events) == ["delete b", "insert a", "insert c", "live"]


def test_older_than_the_tombstones_means_start_over(scene: Scene) -> None:
    """A delete may have been forgotten: reset and everything."""
    first, _, _ = filled(scene)
    trimmed(scene, 3)
    scene.now_ms += TOMBSTONE_MS

    events = names(caught_up(scene, first.end.encode()))
    assert events[0] == "reset" and events[-1] == "live"
    assert sorted(events[1:-1]) == ["insert a", "insert c"]


@pytest.mark.parametrize("cursor", ["0" * 24, f"{30:08x}{7:010x}000000"])
def test_an_id_without_a_time_means_start_over(scene: Scene, cursor: str) -> None:
    """Second 0, or one so early that nothing is before it."""
    filled(scene)

    assert names(caught_up(scene, cursor))[0] == "reset"


@pytest.mark.parametrize("cursor", ["f" * 16 + "0" * 8, f"{SECOND:08x}{2**40 - 1:010x}000000"])
def test_forged_places_behind_the_head(scene: Scene, cursor: str) -> None:
    """They are times like any unknown id; nothing fails and `live` is reached."""
    filled(scene)

    assert names(caught_up(scene, cursor))[-1] == "live"


def test_a_place_behind_the_last_slot_of_its_page(scene: Scene) -> None:
    """Goes on with the next page."""
    first, _, _ = filled(scene)

    assert names(caught_up(scene, first.id_prefix + "001000"))[0] == "insert c"


def test_no_cursor_of_a_copy_comes_before_its_reset(scene: Scene) -> None:
    """Who is cut between the two would go on copying, and keep what was deleted meanwhile."""
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

    events = names(follow(scene, progress)[0])
    assert sorted(events) == ["delete b", "insert a", "insert c", "live"]


def test_a_frontier_step_of_nothing_is_quiet(scene: Scene) -> None:
    """Asked again and again, `live` is said once."""
    filled(scene)
    events, progress = follow(scene, scene.catch_up.start(FEED, Since(0)))
    assert names(events)[-1] == LIVE

    assert follow(scene, progress) == ([], progress)

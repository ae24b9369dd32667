"""Catching up from a place in the log, and where the log does not reach it or has lost it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import MemoryTags
from tests.unit.core.following import SECOND, caught_up, filled, follow, in_order, names, trimmed
from tests.unit.core.maintenance.test_retention import HOUR, vanish
from tests.unit.core.scene import FEED, NOW, PAGE_MS, TOMBSTONE_MS, Scene, line, op
from tidings.core import limits
from tidings.core.catchup.catchup import LIVE, Progress, in_log
from tidings.core.changeagent.changes import end_of
from tidings.core.changeagent.list import Lister, Query
from tidings.core.changeagent.tag_index import Indexer, Summary
from tidings.core.errors import BelowFloor, FellOff, Unavailable
from tidings.core.log.reader import PagesLost
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


def test_a_frontier_step_of_nothing_is_quiet(scene: Scene) -> None:
    """Further steps at the frontier do not repeat `live`."""
    filled(scene)
    events, progress = follow(scene, scene.catch_up.start(FEED, Since(0)))
    assert names(events)[-1] == LIVE

    assert follow(scene, progress) == ([], progress)


LAG_MS = 7_000  # between the last page here and the moment of the one that is gone


@pytest.fixture
def paused(scene: Scene) -> Scene:
    """Create a feed with some pages, a state that has followed, and some seconds of pause."""
    for name in "abc":
        scene.post(op(name, "insert"))
    scene.project()
    scene.now_ms += LAG_MS
    return scene


def beyond(scene: Scene, pages: int) -> Place:
    """Return the end of a page *pages* after the head, committed just now."""
    return Place(scene.log.head(FEED) + pages, PAGE_END, scene.now_ms // 1000)


def first(scene: Scene, cursor: str) -> str:
    return names(caught_up(scene, cursor))[0]


@pytest.mark.parametrize("pages", [1, 100, LAG_MS // 1000 * limits.NUMBERS_PER_S_MAX])
def test_a_page_that_can_have_been_given_was_lost(paused: Scene, pages: int) -> None:
    """Its reader may hold objects that the feed does not know, and forgets them."""
    assert first(paused, beyond(paused, pages).encode()) == "reset"
    assert first(paused, replace(beyond(paused, pages), slot=0).encode()) == "reset"


def test_the_time_of_the_cursor_does_not_matter(paused: Scene) -> None:
    """The lost log skipped numbers, as a promotion does, and this one has grown since."""
    cursor = beyond(paused, limits.NUMBERS_PER_S_MAX * 100).encode()
    assert first(paused, cursor) == "reset"
    paused.now_ms += LAG_MS
    paused.post(op("d", "insert"))
    assert first(paused, cursor) == "reset"


@pytest.mark.parametrize("since_s", [0, 1])
def test_so_was_a_copy_that_began_there(paused: Scene, since_s: int) -> None:
    """It copied everything, or the changes since a time."""
    since_s *= paused.now_ms // 1000 - 60
    copy = Replication(since_s, beyond(paused, 9).page, 7, tombstones=since_s > 0)
    assert first(paused, copy.encode()) == "reset"


def test_an_id_of_somebody_else_is_a_time(paused: Scene) -> None:
    """P5.6: the cursor is the twelve bytes of an ObjectId; this log cannot have reached its page
    number.
    """
    seconds = paused.now_ms // 1000
    foreign = Place(0x9F3C_77A1_02, 0x00B3C4, seconds)
    assert "reset" not in names(caught_up(paused, foreign.encode()))
    assert names(caught_up(paused, foreign.encode()))[-1] == "live"


def test_a_chained_feed_may_still_come_there(paused: Scene) -> None:
    """P5.9: a client that moves from the master to a copy gets no reset."""
    paused.catch_up = replace(paused.catch_up, losses=paused.chained())
    assert "reset" not in names(caught_up(paused, beyond(paused, 3).encode()))


def test_a_list_says_so(paused: Scene) -> None:
    """P12.5: the list has `lost`, a strict client gets 410; at the end of the log nothing is
    lost."""
    lister, page = paused.lister(), paused.log.head(FEED)
    assert not lister.list(FEED, Query(since=end_of(page), strict=True)).lost
    gone = Query(since=end_of(page + 1))
    assert lister.list(FEED, gone).lost
    assert "lost" in lister.list(FEED, gone).to_json()
    with pytest.raises(BelowFloor, match="was lost; start again"):
        lister.list(FEED, replace(gone, strict=True))
    chained = Lister(paused.reader, paused.runtime.steady, MemoryTags(), paused.chained())
    assert not chained.list(FEED, replace(gone, strict=True)).lost


@pytest.fixture
def holed(scene: Scene) -> Scene:
    """Ten pages that all followers have handled; the pages 4 and 5 are lost."""
    for number in range(1, 11):
        scene.post(op(f"o{number}"))
    scene.project()
    scene.push()
    scene.archived()
    vanish(scene, 4, 5)
    return scene


def names_after(holed: Scene, cursor: str) -> list[str]:
    """Return the names of the events after *cursor*, up to the frontier."""
    return [event.name for event in caught_up(holed, cursor)]


def before_the_hole(holed: Scene) -> str:
    """Return the end of the last page before the lost ones."""
    page = holed.reader.at(FEED, 3)
    assert page is not None
    return page.end.encode()


def test_a_stream_is_told_from_the_state(holed: Scene) -> None:
    """It gets the latest operation of each object, then `live`, as after a page that was given
    up."""
    holed.now_ms += 30 * HOUR
    holed.catch_up = replace(holed.catch_up, archive=None)
    assert names_after(holed, before_the_hole(holed)) == ["insert"] * 10 + ["live"]


def test_a_stream_is_told_from_the_archive(holed: Scene) -> None:
    """Each operation, those of the lost pages too."""
    assert names(caught_up(holed, before_the_hole(holed))) == [f"update o{n}" for n in range(4, 11)]


def test_a_stream_ends_where_nobody_has_what_was_lost(holed: Scene) -> None:
    """The state ends before the lost pages: a copy from it would return to them forever."""
    holed.set_checkpoint("state", 3)
    step = in_log(holed.reader.next(FEED, 3).end)  # type: ignore[union-attr]
    with pytest.raises(PagesLost):
        catch_up = replace(holed.catch_up, archive=None)
        catch_up.step(FEED, step, EVERYTHING)


def test_a_stream_ends_while_the_state_is_not_where_the_log_begins(holed: Scene) -> None:
    """This is so while a chained feed skips to its copy: a client that reconnects later gets
    everything.

    A copy used to end below the floor, where the same copy began, without a pause.
    """
    place = before_the_hole(holed)
    holed.catch_up = replace(holed.catch_up, archive=None)
    holed.log.raise_floor(FEED, 15)
    for _ in range(2):
        with pytest.raises(Unavailable, match="has not reached page 15"):
            names_after(holed, place)
    holed.set_checkpoint("state", 14)

    assert names_after(holed, place) == ["insert"] * 10 + ["live"]


@pytest.mark.parametrize("name", ["state", "push"])
def test_a_follower_stands_still(holed: Scene, name: str) -> None:
    """With an error and its alarm, and nothing is filled."""
    holed.set_checkpoint(name, 3)
    with pytest.raises(FellOff):
        holed.project() if name == "state" else holed.push()
    assert holed.followers.checkpoints(FEED)[name] == 3
    assert holed.counted["FollowerFellOff"] == 1 and holed.counted["HolesFilled"] == 0


def test_changes_are_refused_behind_what_could_be_told(holed: Scene) -> None:
    """First the changes before the hole are listed, then the answer is 410 with the place to resume
    from.
    """
    lister = holed.lister()
    first = lister.list(FEED, Query(since=0))
    assert len(first.entries) == 3 and first.next == end_of(3) and not first.at_end
    with pytest.raises(BelowFloor) as refused:
        lister.list(FEED, Query(since=first.next))
    assert refused.value.floor == end_of(5)
    assert len(lister.list(FEED, Query(since=refused.value.floor)).entries) == 5


def test_the_index_of_tags_goes_on(holed: Scene) -> None:
    """The index says where tags may be; pages that it has no summary of are read."""
    tags = MemoryTags()
    tags.write(FEED, [Summary(1, 3, b"\0")])
    assert Indexer(tags, holed.reader, holed.runtime.steady, PAGE_MS).run(FEED) == 5

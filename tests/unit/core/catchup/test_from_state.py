"""Catching up with a copy of the state, whole or by time, and from the archive, every operation."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import MemoryTombstones
from tests.unit.core.following import SECOND, caught_up, filled, follow, in_order, names, trimmed
from tests.unit.core.scene import FEED, NOW, RETENTION, TOMBSTONE_MS, Scene, op
from tidings.core import limits
from tidings.core.archive.reader import ArchiveReader
from tidings.core.archive.segments import decode, encode, keep_entries
from tidings.core.catchup.catchup import RESET, Progress
from tidings.core.model import cursors, filters
from tidings.core.model.cursors import PAGE_END, START, Place, Replication, Since
from tidings.core.model.events import Event
from tidings.core.model.filters import EVERYTHING, parse
from tidings.core.state.tombstones import Remembered

FOREIGN = 2**39  # the page of a foreign id: no log can have given that many


def test_O51_an_empty_feed(scene: Scene) -> None:
    """Waiting begins at its start; a full replication of nothing is reset and live."""
    assert scene.catch_up.start(FEED, cursors.Now()).cursor == START.encode()
    events = caught_up(scene, "0")
    assert names(events) == ["reset", "live"]
    assert cursors.parse(events[1].id) == START

    scene.post(op("a"))
    assert names(caught_up(scene, START.encode())) == ["update a"]


def test_O42_O44_O46_everything(scene: Scene) -> None:
    """reset, each living object as insert, live; no deleted ones."""
    filled(scene)
    events = caught_up(scene, "0")

    assert in_order(names(events)) == ["reset", "insert a", "insert c", "live"]
    assert events[0] == Event("1", RESET, "")


def test_O43_one_is_everything_without_reset(scene: Scene) -> None:
    """oplog's clients resume from 1 after they acknowledged the reset. Numbers below 0 mean the
    same."""
    filled(scene)

    assert caught_up(scene, "1") == caught_up(scene, "-5") == caught_up(scene, "0")[1:]


def test_O45_nothing_of_the_last_second_is_missing(scene: Scene) -> None:
    """Operations that are not projected yet come from the log, after the rows."""
    filled(scene)
    scene.post(op("d", "insert"))

    assert names(caught_up(scene, "0"))[-2:] == ["insert d", "live"]


def test_O48_from_a_millisecond(scene: Scene) -> None:
    """What changed at it or after it, without reset and tombstones."""
    filled(scene)

    for at_ms in (NOW, NOW + 1000):
        assert in_order(names(caught_up(scene, str(at_ms)))) == ["insert a", "insert c", "live"]
    assert names(caught_up(scene, str(NOW + 1001))) == ["live"]


def test_a_time_in_the_future_copies_nothing(scene: Scene) -> None:
    """This holds up to the largest decimal; the cursors are valid all the same."""
    filled(scene)
    progress = scene.catch_up.start(FEED, cursors.parse("9" * 13))
    assert cursors.parse(progress.cursor)
    events, progress = follow(scene, progress)

    assert names(events) == ["live"]
    assert cursors.parse(progress.cursor) == Place(3, PAGE_END, SECOND + 2)


def test_O49_O50_every_id_can_be_resumed_from(scene: Scene) -> None:
    """The ids are 24 hex digits, or the 1 of reset; this also holds if no row was sent."""
    filled(scene)
    for events in (caught_up(scene, "0"), caught_up(scene, str(NOW + 3000))):
        for event in events:
            assert event.id == "1" or len(event.id) == 24
            assert names(caught_up(scene, event.id)) is not None


def test_O41_a_fallback_that_is_interrupted_still_tells_deletes(scene: Scene) -> None:
    """The cursor of a row says that deletes are to be sent."""
    filled(scene)
    events = caught_up(scene, f"{SECOND:08x}95528dd0f3863c00")

    for event in events[:-1]:
        resumed = names(caught_up(scene, event.id))
        assert set(resumed) >= set(names(events[events.index(event) :]))


def test_O47_what_goes_during_a_copy_is_told(scene: Scene) -> None:
    """A row was sent and acknowledged, then its object is deleted, then the client resumes."""
    scene.post(*(op(f"x{number}", "insert") for number in range(20)))
    scene.project()
    events = caught_up(scene, "0")
    copied = events[10]
    scene.post(op("x0", "delete"), op("x19", "delete"))
    scene.project()

    resumed = names(caught_up(scene, copied.id))
    assert {"delete x0", "delete x19"} <= set(resumed)
    assert resumed[-1] == "live"


def test_a_copy_of_a_feed_whose_log_is_all_trimmed_is_not_asked_for_twice(scene: Scene) -> None:
    """Its `live` has the time of the copy: a client that resumes from it gets the changes, without
    a reset.
    """
    filled(scene)
    scene.now_ms += 2 * RETENTION.age_ms
    trimmed(scene, 4)
    live = caught_up(scene, "0")[-1]
    assert names(caught_up(scene, live.id)) == ["live"]

    scene.post(op("d", "insert"))
    assert names(caught_up(scene, live.id)) == ["insert d", "live"]


def test_O52_what_comes_during_a_copy_is_in_the_log_behind_it(scene: Scene) -> None:
    """Nothing is lost at the switch, and `live` comes after it."""
    filled(scene)
    started = scene.catch_up.start(FEED, Since(0))
    scene.post(op("d", "insert"), op("a", "delete"))
    scene.project()

    events = names(follow(scene, started)[0])
    assert "delete a" in events and "insert d" in events
    assert events[-1] == "live"


def test_live_comes_on_a_busy_feed_too(scene: Scene) -> None:
    """If each read finds new pages, the copy is complete with the last of them."""
    filled(scene)
    progress = scene.catch_up.start(FEED, Since(1))
    events: list[str] = []
    for _ in range(200):
        scene.post(op("busy"))
        step = scene.catch_up.step(FEED, progress, EVERYTHING)
        events += names(step.events)
        progress = step.progress
        if step.at_frontier:
            break

    assert events[-2:] == ["update busy", "live"]


def test_O54_many_objects_of_one_millisecond(scene: Scene) -> None:
    """They finish; each is sent once."""
    for _ in range(3):
        scene.post(*(op(f"{scene.new_id()}", "insert") for _ in range(1000)))
    scene.project()

    events = names(caught_up(scene, "0"))
    assert len(events) == len(set(events)) == 3002


@pytest.mark.parametrize("since_s", [SECOND, 0])
@pytest.mark.parametrize("tombstones", [True, False])
def test_a_replication_of_another_feed_or_deployment(
    scene: Scene, tombstones: bool, since_s: int
) -> None:
    """Its page is not projected here: what counts is its time, as of any id that is not ours."""
    filled(scene)

    events = names(caught_up(scene, Replication(since_s, FOREIGN, 5, tombstones).encode()))
    assert events[-1] == "live"
    assert ("reset" in events) is (since_s == 0)
    assert ("delete b" in events) is (since_s > 0)


def test_a_replication_goes_on_at_its_bucket(scene: Scene) -> None:
    """Rows of earlier buckets are not sent again."""
    scene.post(*(op(f"x{number}", "insert") for number in range(300)))
    scene.project()
    everything = caught_up(scene, "0")
    cursor = cursors.parse(everything[150].id)
    assert isinstance(cursor, Replication)

    resumed = caught_up(scene, everything[150].id)

    first = next(at for at, event in enumerate(everything) if event.id == everything[150].id)
    assert resumed == everything[first:]
    assert names(caught_up(scene, Replication(0, 1, limits.BUCKETS, False).encode())) == ["live"]


def test_a_copy_whose_log_was_trimmed_starts_over(scene: Scene) -> None:
    """The pages after the copy's first page are no longer in the log."""
    filled(scene)
    cursor = Replication(0, 1, 5, False).encode()
    trimmed(scene, 3)

    assert names(caught_up(scene, cursor))[0] == "reset"


def test_O56_filters_hold_for_rows_and_operations(scene: Scene) -> None:
    """reset and live pass always."""
    scene.post(op("a", "insert", type="video"), op("u", "insert", type="user"))
    scene.project()
    scene.post(op("b", "insert", type="video"), op("w", "insert", type="user"))

    wanted = filters.parse("user", None)
    assert names(caught_up(scene, "0", wanted)) == ["reset", "insert u", "insert w", "live"]
    assert names(caught_up(scene, "0", filters.parse(",", None))) == ["reset", "live"]


def test_O60_an_updated_object_is_a_row_of_its_last_operation(scene: Scene) -> None:
    """It is an insert with the latest parents."""
    scene.post(op("a", "insert", parents=["p1"]))
    scene.post(op("a", "update", parents=["p2"]))
    scene.project()

    assert len(caught_up(scene, "0", filters.parse(None, "p1"))) == 2
    (_, row, _) = caught_up(scene, "0", filters.parse(None, "p2"))
    assert row.name == "insert" and '"parents":["p2"]' in row.data


def test_expired_tombstones_are_not_told(scene: Scene) -> None:
    """DynamoDB deletes them at some later time; they count as deleted once they have expired."""
    filled(scene)
    later = NOW + TOMBSTONE_MS + 2000
    scene.tombstones = MemoryTombstones()
    scene.tombstones.remember(FEED, None, Remembered(2**50, 2**50, 0))
    reader = replace(scene.reader, clock=lambda: later)
    catch_up = replace(scene.catch_up, reader=reader, tombstones=scene.tombstones)
    started = catch_up.start(FEED, Place(FOREIGN, 0, SECOND))

    events: list[str] = []
    while started.copying:
        step = catch_up.step(FEED, started, EVERYTHING)
        events, started = events + names(step.events), step.progress
    assert sorted(events) == ["insert a", "insert c"]


def test_a_copy_that_ends_before_a_hole_is_resumed_without_reset(scene: Scene) -> None:
    """The late writer took its number before the page after the hole was written."""
    filled(scene)
    scene.log.take(FEED)
    beyond = scene.post(op("d"))
    trimmed(scene, 4)

    copied = follow(scene, scene.catch_up.start(FEED, Since(0)))[1]
    late = limits.WRITE_MS_MAX // 1000
    assert copied.cursor == Place(3, PAGE_END, beyond.seconds - late).encode()
    assert "reset" not in names(caught_up(scene, copied.cursor))


def test_a_copy_by_time_whose_log_goes_meanwhile_is_resumed_by_time(scene: Scene) -> None:
    """No page after the place that the copy started from is older than that place."""
    first, *_ = filled(scene)
    scene.post(op("d"))
    trimmed(scene, 4)
    started = scene.catch_up.start(FEED, first.end)
    trimmed(scene, 5)

    copied = scene.catch_up.step(FEED, started, EVERYTHING).progress
    assert copied.cursor == Place(3, PAGE_END, first.seconds).encode()


def test_a_cursor_on_a_copy_that_lags_tells_when_its_last_page_was_written(scene: Scene) -> None:
    """The pages after it were written upstream long ago; a cursor with the current time would miss
    them.
    """
    filled(scene)
    losses = scene.chained(checkpoint=3, seconds=SECOND - 500)
    scene.catch_up = replace(scene.catch_up, losses=losses)
    scene.project()
    trimmed(scene, 4)

    assert cursors.parse(caught_up(scene, "0")[-1].id) == Place(3, PAGE_END, SECOND - 500)
    assert scene.catch_up.start(FEED, cursors.Now()).seconds == SECOND - 500

    later = scene.chained(checkpoint=5, seconds=SECOND - 500)
    scene.catch_up = replace(scene.catch_up, losses=later)
    assert cursors.parse(caught_up(scene, "0")[-1].id) == Place(3, PAGE_END, 0), "unknown time"


def gone(scene: Scene, floor: int) -> None:
    """Let the log begin with page *floor*, and the state forget deletions from before that."""
    scene.project()
    scene.push()
    scene.archived()
    trimmed(scene, floor)
    scene.now_ms += TOMBSTONE_MS


def another_process(scene: Scene) -> None:
    """Replace the reader by one that has not read or listed anything yet."""
    archive = ArchiveReader(scene.archive, scene.count)
    scene.catch_up = replace(scene.catch_up, archive=archive)


def compact(scene: Scene, *left: tuple[int, int]) -> None:
    """Rewrite every part of the archive so that it keeps only these entries."""
    for span in scene.archive.list(FEED, 0, 100):
        pages = decode(scene.archive.get(FEED, span) or b"")
        _, body = encode(keep_entries(pages, set(left)))
        scene.archive.put(FEED, span, body)
    another_process(scene)


COPIED = ["reset", "insert a", "insert c", "live"]
OPERATIONS = ["insert a", "insert b", "insert c", "update a", "delete b"]
CURSORS = [
    ("before the first page", START.encode(), OPERATIONS),
    ("behind a page", f"{SECOND:08x}{1:010x}7fffff", OPERATIONS[2:]),
    ("a page of another second", f"{SECOND - 1:08x}{1:010x}000000", COPIED),
    ("a page to come", f"{SECOND:08x}{9:010x}000000", COPIED),
]


@pytest.mark.parametrize(("name", "cursor", "events"), CURSORS, ids=[row[0] for row in CURSORS])
def test_where_an_old_cursor_leads(scene: Scene, name: str, cursor: str, events: list[str]) -> None:
    """It leads to every operation after it if its page is in the archive, and then continues in the
    log.
    """
    filled(scene)
    gone(scene, 3)

    assert in_order(names(caught_up(scene, cursor))) == events


@given(st.integers(0, 11), st.integers(1, 7), st.sampled_from([1, 200, 2**20]))
def test_a_resume_from_any_event_continues_exactly_there(
    handled: int, floor: int, step_bytes: int
) -> None:
    """The event may be within a page or at its end, before or after the floor, with steps of any
    size."""
    scene = Scene()
    for number in range(6):
        scene.post(op(f"{number}a"), op(f"{number}b"))
        scene.archived()
    everything = caught_up(scene, START.encode())
    gone(scene, floor)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "ARCHIVE_STEP_BYTES", step_bytes)
        assert caught_up(scene, everything[handled].id) == everything[handled + 1 :]


def test_the_state_comes_first(scene: Scene) -> None:
    """While it still has the tombstones, the state needs fewer events than the archive."""
    first, *_ = filled(scene)
    gone(scene, 3)
    scene.now_ms -= TOMBSTONE_MS

    events = names(caught_up(scene, first.end.encode()))
    assert in_order(events) == ["delete b", "insert a", "insert c", "live"]


def test_a_hole_in_the_archive_means_start_over(scene: Scene) -> None:
    """The hole is found before any event is sent: none may be missing."""
    first, *_ = filled(scene)
    for _ in range(3):
        scene.post(op("d"))
        scene.archived()
    gone(scene, 6)
    scene.archive.remove(FEED, scene.archive.list(FEED, 4, 1)[0])

    assert names(caught_up(scene, first.end.encode()))[0] == "reset"


def test_a_part_that_goes_while_it_is_read(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The events that were sent remain valid; then the client starts over, as the rest is lost."""
    first, *_ = filled(scene)
    scene.archived()
    scene.post(op("d"))
    gone(scene, 5)
    monkeypatch.setattr(limits, "ARCHIVE_STEP_BYTES", 1)
    progress = scene.catch_up.start(FEED, cursors.parse(first.end.encode()))
    step = scene.catch_up.step(FEED, progress, parse(None, None))
    assert names(step.events) == ["insert c", "update a"]

    scene.archive.remove(FEED, scene.archive.list(FEED, 3, 1)[0])
    events = names(follow(scene, step.progress)[0])
    assert events[:2] == ["delete b", "reset"] and events[-1] == "live"


def test_a_replay_in_the_archive_reads_no_log(scene: Scene) -> None:
    """A strongly consistent read of a megabyte each step would find nothing but later pages."""
    first, *_ = filled(scene)
    for _ in range(3):
        scene.post(op("d"))
        scene.archived()
    gone(scene, 6)
    progress = scene.catch_up.start(FEED, cursors.parse(first.end.encode()))
    reads = scene.reads()
    follow(scene, Progress.decode(progress.encode()))
    assert reads == [5]


def test_filters_and_leaves(scene: Scene) -> None:
    """They work as from the log; leaves are sent as long as the removed parents are stored."""
    scene.keep_removed_parents()
    scene.post(op("x", "insert", parents=["user/ann"]), op("y", "insert"))
    scene.project()
    scene.post(op("x", parents=["user/bob"]), op("y"))
    gone(scene, 3)

    start = START.encode()
    assert names(caught_up(scene, start, parse(None, "user/ann"))) == ["insert x"]
    leaving = parse(None, "user/ann", "true")
    assert names(caught_up(scene, start, leaving)) == ["insert x", "leave x"]


def test_T21_a_resume_from_what_was_compacted_meanwhile(scene: Scene) -> None:
    """The page shows that the id was ours; the entries that remain after it keep their ids."""
    pages = filled(scene)
    gone(scene, 4)
    before = {event.id: event for event in caught_up(scene, START.encode())}
    compact(scene, (2, 0), (2, 1), (3, 0))

    own = pages[0].id_prefix + "000000"
    events = caught_up(scene, own)
    assert names(events) == ["insert c", "update a", "delete b"]
    assert all(before[event.id] == event for event in events)

    compact(scene, (2, 1), (3, 0))
    assert names(caught_up(scene, own)) == ["update a", "delete b"]
    assert names(caught_up(scene, pages[1].id_prefix + "000000")) == ["update a", "delete b"]
    assert names(caught_up(scene, pages[1].id_prefix + "000001")) == ["delete b"]


def test_a_copy_goes_on_though_its_log_was_trimmed(scene: Scene) -> None:
    """There is no `reset`: all operations since the copy began are in the archive, including
    deletions.
    """
    filled(scene)
    cursor = Replication(0, scene.followers.checkpoints(FEED)["state"], limits.BUCKETS, False)
    scene.post(op("a", "delete"))
    scene.post(op("d", "insert"))
    gone(scene, 6)

    assert names(caught_up(scene, cursor.encode())) == ["delete a", "insert d", "live"]
    for span in scene.archive.list(FEED, 0, 10):
        scene.archive.remove(FEED, span)
    another_process(scene)
    assert names(caught_up(scene, cursor.encode()))[0] == "reset"


def test_a_copy_of_what_changed_does_not_go_on_where_deletions_are_forgotten(scene: Scene) -> None:
    """Deletions from before the copy began are in no page after its cursor."""
    filled(scene)
    cursor = Replication(scene.now_ms // 1000, 3, 5, tombstones=True)
    gone(scene, 4)

    assert names(caught_up(scene, cursor.encode()))[0] == "reset"


def test_an_archive_that_is_turned_off_in_between(scene: Scene) -> None:
    """A replay that had begun in the archive continues as it does without one."""
    first, *_ = filled(scene)
    gone(scene, 4)
    progress = scene.catch_up.start(FEED, cursors.parse(first.end.encode()))
    assert progress.archived

    scene.catch_up = replace(scene.catch_up, archive=None)
    assert names(follow(scene, progress)[0])[0] == "reset"


def test_a_socket_is_replayed_from_it(scene: Scene) -> None:
    """The same steps; then it is live."""
    first, *_ = filled(scene)
    gone(scene, 4)
    scene.resume(first.end.encode())
    scene.post(op("d", "insert"))
    scene.push()

    assert scene.events("c") == ["c", "a", "b", "d"]

"""Catching up from the archive: every operation, where log and state cannot serve a cursor."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.following import SECOND, caught_up, filled, follow, in_order, names, trimmed
from tests.unit.core.scene import FEED, TOMBSTONE_MS, Scene, op
from tidings.core import limits
from tidings.core.archive.reader import ArchiveReader
from tidings.core.archive.segments import decode, encode, keep_entries
from tidings.core.catchup.catchup import Progress
from tidings.core.model import cursors
from tidings.core.model.cursors import START, Replication
from tidings.core.model.filters import parse


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

"""Verifying: exactly the differences between the state and the fold of the log are reported.

Objects older than the log are compared with the archive if there is one. Rebuilding: rows that
differ from the log are repaired, and no newer row is overwritten.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import MemorySpill, MemoryState
from tests.unit.core.following import filled, trimmed
from tests.unit.core.scene import FEED, NOW, TOMBSTONE_MS, Scene, line, op
from tidings.core import limits
from tidings.core.archive.reader import ArchiveReader
from tidings.core.archive.segments import decode, encode, keep_entries
from tidings.core.errors import LogIncomplete, Unavailable
from tidings.core.followers.follower import STATE
from tidings.core.maintenance.verify import Compared, Rebuilder, Repaired, Verifier
from tidings.core.model.operations import event_of
from tidings.core.model.pages import Page
from tidings.core.state.rows import ABSENT, Difference, Kind, Row, bucket_of


class WatchedState(MemoryState):
    """Runs actions before a bucket is read and before a repair. Counts the reads of each bucket,
    without those of the actions. Fails after *dies_after* repairs.
    """

    def __init__(self) -> None:
        super().__init__()
        self.before: Callable[[], object] = lambda: None
        self.before_repair: Callable[[], object] = lambda: None
        self.reads: list[int] = []
        self.dies_after = 10**6
        self._is_running = False

    def read(self, feed: str, bucket: int, after: str | None = None) -> list[Row]:
        if after is None and not self._is_running:
            self.reads.append(bucket)
            self._is_running = True
            self.before()
            self._is_running = False
        return super().read(feed, bucket, after)

    def repair(self, feed: str, differences: Sequence[Difference]) -> list[bool]:
        self.before_repair()
        for each in differences:
            if self.dies_after == 0:
                raise Unavailable("killed")
            self.dies_after -= 1
            super().repair(feed, [each])
        return super().repair(feed, differences)


@pytest.fixture
def state() -> WatchedState:
    return WatchedState()


@pytest.fixture
def scene(state: WatchedState) -> Scene:
    """Objects a, deleted b, and c."""
    scene = Scene(state=state)
    filled(scene)
    return scene


def test_a_state_that_follows_its_log_agrees(scene: Scene) -> None:
    """Objects and tombstones are compared; pages that the follower has not handled are ignored."""
    scene.post(op("d"), op("a"))
    results = compared(scene)

    assert sum(each.agreeing for each in results) == 3
    assert {each.checkpoint for each in results} == {3}
    assert named(scene) == []


def test_what_was_broken_by_hand_is_named(scene: Scene) -> None:
    """The rows are one missing, one that was never overwritten, one that was changed, and one too
    many.
    """
    remove(scene, "video/a")
    alter(scene, "video/b", page=1, slot=1, line=line("b", "insert"), expires_ms=0, at_ms=NOW)
    alter(scene, "video/c", line=line("c", "insert", parents=["p"]))
    scene.state.write(FEED, [Row("video/z", 2, 7, NOW, line("z"))])

    assert named(scene) == ["alien video/z", "altered video/c", "missing video/a", "stale video/b"]
    by_key = {each.key: each for each in differences(scene)}
    missing = by_key["video/a"]
    assert missing.stored is None and missing.wanted is not None
    assert (missing.wanted.page, missing.wanted.slot) == (2, 1)
    assert by_key["video/z"].wanted is None


@pytest.mark.parametrize(
    "fields",
    [
        {"line": line("c", "insert", parents=["p"])},
        {"at_ms": NOW},
        {"expires_ms": NOW + TOMBSTONE_MS},
    ],
)
def test_a_row_at_its_place_must_say_the_same(scene: Scene, fields: dict[str, object]) -> None:
    """These are the line, the time of its page, and the expiry, which a living object must not
    have."""
    alter(scene, "video/c", **fields)

    assert named(scene) == ["altered video/c"]


@pytest.mark.parametrize(
    ("expires_ms", "right"),
    [(0, False), (NOW + limits.TOMBSTONE_SLACK_MS, False), (NOW + 10**12, True)],
)
def test_a_tombstone_must_not_go_too_soon(scene: Scene, expires_ms: int, right: bool) -> None:
    """Its exact expiry depends on past retention, but it must be at least a week."""
    alter(scene, "video/b", expires_ms=expires_ms)

    assert named(scene) == ([] if right else ["altered video/b"])


@pytest.mark.parametrize("place", [(9, 0), (2, 1)])
def test_a_row_behind_the_log_is_alien(scene: Scene, place: tuple[int, int]) -> None:
    """Be its page not there at all, or its place that of another object."""
    page, slot = place
    scene.state.write(FEED, [Row("video/y", page, slot, NOW, line("y"))])
    alter(scene, "video/c", page=9)

    assert named(scene) == ["alien video/c", "alien video/y"]


@pytest.mark.parametrize(
    "fields", [{"page": ABSENT}, {"slot": ABSENT}, {"at_ms": ABSENT}, {"line": ""}]
)
def test_a_row_that_is_not_whole_is_broken(scene: Scene, fields: dict[str, Any]) -> None:
    """This holds even if the log does not reach back to its object; it does not count as older."""
    alter(scene, "video/c", **fields)
    trimmed(scene, 3)
    scene.state.write(FEED, [Row("video/z", 1, 0, NOW, line("z"))._replace(**fields)])

    assert [each for each in named(scene) if each.startswith("broken")] == [
        "broken video/c",
        "broken video/z",
    ]


def test_a_row_in_a_bucket_that_is_not_its_own(scene: Scene, state: WatchedState) -> None:
    """It is alien in that bucket, and missing in its own."""
    row = remove(scene, "video/c")
    other = (row.bucket + 1) % limits.BUCKETS
    state._buckets[FEED, other][row.key] = row

    buckets = {each.kind: each.bucket for each in differences(scene)}
    assert buckets == {Kind.MISSING: row.bucket, Kind.ALIEN: other}


def test_rows_older_than_the_log_are_counted(scene: Scene) -> None:
    """They are not judged; if the log still has their object, they are stale."""
    trimmed(scene, 3)
    alter(scene, "video/b", page=1, slot=1)
    results = compared(scene)

    assert sum(each.older for each in results) == 2
    assert named(scene) == ["stale video/b"]
    scene.project()
    alter(scene, "video/b", page=3, slot=0)
    assert sum(each.older for each in compared(scene)) == 2


def test_a_tombstone_may_have_expired(scene: Scene) -> None:
    """After its time it may be there or not; before its time it must be there."""
    tombstone = remove(scene, "video/b")
    assert named(scene) == ["missing video/b"]
    scene.now_ms = tombstone.expires_ms
    assert named(scene) == []
    scene.state.write(FEED, [tombstone])
    assert named(scene) == []


def test_rows_are_read_again_only_where_a_checksum_differs(
    scene: Scene, state: WatchedState
) -> None:
    """A bucket that agrees is read once."""
    remove(scene, "video/a")
    state.reads.clear()
    compared(scene)

    again = [bucket for bucket in set(state.reads) if state.reads.count(bucket) == 2]
    assert again == [bucket_of("video/a")]
    assert len(state.reads) == limits.BUCKETS + 1
    trimmed(scene, 3)
    state.reads.clear()
    compared(scene)
    assert len(state.reads) == limits.BUCKETS  # rows older than the log do not differ


def test_a_row_that_differs_is_judged_by_the_checkpoint_of_now(scene: Scene) -> None:
    """It may be right for the time when the run began, and be stale now."""
    made = verifier(scene)
    made.compare(bucket_of("video/c"))
    before = rows(scene.state)["video/a"]
    scene.post_each("a", "a")
    scene.project()
    alter(scene, "video/a", page=4, slot=0, line=line("a"))
    assert made.compare(before.bucket).differences[0].kind is Kind.STALE


def test_only_the_buckets_that_are_asked_for(scene: Scene, state: WatchedState) -> None:
    """The others are not read, and of the log only what is theirs is kept."""
    state.reads.clear()
    bucket = bucket_of("video/a")
    made = verifier(scene, [bucket])

    assert made.compare(bucket).agreeing == 1
    assert state.reads == [bucket]
    assert [row.key for row in made.spill.rows(bucket_of("video/c"))] == []


def test_a_feed_that_is_new_agrees() -> None:
    """There is nothing on either side."""
    assert [each.rows for each in compared(Scene())] == [0] * limits.BUCKETS


def test_a_log_that_lost_pages_is_not_believed(scene: Scene) -> None:
    """The state has handled more than the log holds: nothing is called wrong for that."""
    scene.log._feeds[FEED].pages.pop(2)
    scene.log._feeds[FEED].numbers.remove(2)

    with pytest.raises(LogIncomplete, match=r"^main: page 2 is missing \(head 3\).* up to page 3"):
        compared(scene)


def half_done(scene: Scene, pages: list[Page]) -> None:
    """Let the follower write rows and crash before it moves its checkpoint."""
    scene.projector.handle(FEED, pages)


def test_a_follower_at_work_is_no_alarm(scene: Scene, state: WatchedState) -> None:
    """Rows change between any two reads, before the checkpoint does, and go back for a moment."""
    steps = 0

    def meanwhile() -> None:
        nonlocal steps
        steps += 1
        behind = scene.followers.checkpoints(FEED)[STATE]
        scene.post(op("b", ("insert", "delete")[steps % 2]), *(op(f"n{at}") for at in range(99)))
        pages = scene.log.read(FEED, behind)
        half_done(scene, pages if steps % 3 else pages[:1])
        if steps % 4 == 0:
            scene.project()

    state.before = meanwhile
    assert named(scene) == []
    assert steps > limits.BUCKETS * 1.5  # most buckets differ at first sight


def test_what_is_wrong_is_found_at_any_traffic(scene: Scene, state: WatchedState) -> None:
    """An object without further operations stays wrong until it is reported."""
    remove(scene, "video/c")
    state.before = lambda: half_done(scene, [scene.post(op("a"))])

    assert named(scene) == ["missing video/c"]


@pytest.fixture
def given_up(scene: Scene) -> Scene:
    """Set up a, b and c on three pages that only the archive has, followed by d."""
    scene.archived()
    trimmed(scene, 4)
    scene.projected(op("d", "insert"))
    return scene


@pytest.fixture
def archive(given_up: Scene) -> ArchiveReader:
    return ArchiveReader(given_up.archive, given_up.count)


def test_what_is_older_than_the_log_is_compared(given_up: Scene, archive: ArchiveReader) -> None:
    """The log alone cannot judge such rows."""
    remove(given_up, "video/c")
    alter(given_up, "video/a", slot=0)

    assert named(given_up) == []
    assert named(given_up, archive) == ["missing video/c", "stale video/a"]


def test_it_is_put_right(given_up: Scene, archive: ArchiveReader) -> None:
    """Then the state is the fold of all that ever was."""
    before = rows(given_up.state)
    for key in ("video/a", "video/c"):
        remove(given_up, key)

    assert rebuilt(given_up, archive) == Repaired(2, 0)
    assert rows(given_up.state) == before
    assert named(given_up, archive) == []


def test_what_compaction_left_is_the_same_measure(given_up: Scene, archive: ArchiveReader) -> None:
    """The latest operation of each object, at the slot that it had."""
    for span in given_up.archive.list(FEED, 0, 9):
        pages = decode(given_up.archive.get(FEED, span) or b"")
        left = encode(keep_entries(pages, {(2, 0), (2, 1), (3, 0)}))
        given_up.archive.put(FEED, *left)

    assert named(given_up, archive) == []
    remove(given_up, "video/a")
    assert named(given_up, archive) == ["missing video/a"]


def test_it_begins_behind_the_last_hole(given_up: Scene, archive: ArchiveReader) -> None:
    """Rows from before it are older than the known pages, and are counted."""
    given_up.post_each("e", "e")
    given_up.project()
    given_up.archived()
    (first, _) = given_up.archive.list(FEED, 0, 9)
    trimmed(given_up, 6)
    assert verifier(given_up, archive=archive).floor == 1
    given_up.archive.remove(FEED, first)

    assert verifier(given_up, archive=archive).floor == 4
    assert sum(each.older for each in compared(given_up, archive)) == 3


def test_a_part_that_cannot_be_read_is_no_measure(given_up: Scene, archive: ArchiveReader) -> None:
    """Nothing is called wrong because of it."""
    (span,) = given_up.archive.list(FEED, 0, 9)
    given_up.archive.put(FEED, span, b"rubbish")

    with pytest.raises(LogIncomplete):
        compared(given_up, archive)


def test_without_a_floor_above_its_pages_the_archive_says_nothing(scene: Scene) -> None:
    """The log has all of it."""
    made = verifier(scene, archive=ArchiveReader(scene.archive, scene.count))

    assert (made.floor, made.page) == (1, 3)


_OPS = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.sampled_from(["insert", "update", "delete"])),
    min_size=1,
    max_size=4,
)
_HANDS = st.lists(
    st.tuples(
        st.sampled_from("abcdefxyz"),
        st.sampled_from(["remove", "line", "stale", "alien", "expiry"]),
    ),
    max_size=3,
    unique_by=lambda each: each[0],
)


def broke(scene: Scene, name: str, how: str, floor: int) -> bool:
    """Break the object in this way; return True if that was possible."""
    key, row = f"video/{name}", rows(scene.state).get(f"video/{name}")
    if row is None or row.page < floor:
        scene.state.write(FEED, [Row(key, 99, 0, NOW, line(name))] if how == "alien" else [])
        return how == "alien"
    if how == "remove":
        remove(scene, key)
        return True
    fields: dict[str, dict[str, Any]] = {
        "stale": {"page": 0},
        "alien": {"page": 99},
        "expiry": {"expires_ms": 0 if row.deleted else NOW},
        "line": {"line": line(name, event_of(row.line), parents=["by hand"])},
    }
    alter(scene, key, **fields[how])
    return True


@given(st.lists(_OPS, min_size=1, max_size=6), st.integers(1, 4), _HANDS)
def test_exactly_what_was_broken_is_named(
    history: list[list[tuple[str, str]]], floor: int, hands: list[tuple[str, str]]
) -> None:
    """For any history and any floor: each object that was changed by hand, and no other."""
    scene = Scene()
    for ops in history:
        scene.post(*(op(name, event) for name, event in ops))
    scene.project()
    low = min(floor, len(history))
    trimmed(scene, low)
    broken = {f"video/{name}" for name, how in hands if broke(scene, name, how, low)}

    assert {each.key for each in differences(scene)} == broken
    assert sum(each.rows for each in compared(scene)) == len(rows(scene.state))


BUCKETS = range(limits.BUCKETS)


def verifier(
    scene: Scene, buckets: Collection[int] = BUCKETS, archive: ArchiveReader | None = None
) -> Verifier:
    """Return a verifier that has read the log, and before it *archive*."""
    made = Verifier(
        feed=FEED,
        states=scene.state,
        reader=scene.reader,
        spill=MemorySpill(buckets),
        tombstone_ms=TOMBSTONE_MS,
        archive=archive,
    )
    for _ in made.read():
        pass
    return made


def compared(scene: Scene, archive: ArchiveReader | None = None) -> list[Compared]:
    made = verifier(scene, archive=archive)
    return [made.compare(bucket) for bucket in made.spill.buckets]


def differences(scene: Scene, archive: ArchiveReader | None = None) -> list[Difference]:
    return [each for result in compared(scene, archive) for each in result.differences]


def named(scene: Scene, archive: ArchiveReader | None = None) -> list[str]:
    """Return `stale video/a`, ..."""
    return sorted(f"{each.kind.value} {each.key}" for each in differences(scene, archive))


def rebuilt(scene: Scene, archive: ArchiveReader | None = None) -> Repaired:
    rebuilder = Rebuilder(verifier(scene, archive=archive), scene.state)
    return sum((rebuilder.repair(bucket) for bucket in BUCKETS), Repaired(0, 0))


def rows(state: MemoryState) -> dict[str, Row]:
    return {row.key: row for bucket in BUCKETS for row in state.read(FEED, bucket)}


def alter(scene: Scene, key: str, **fields: Any) -> Row:
    """Change the row of *key* by hand; how it was."""
    before = rows(scene.state)[key]
    scene.state._buckets[FEED, before.bucket][key] = before._replace(**fields)
    return before


def remove(scene: Scene, key: str) -> Row:
    row = rows(scene.state)[key]
    scene.state._buckets[FEED, row.bucket].pop(key)
    return row


def break_all(scene: Scene) -> dict[str, Row]:
    """Break one row of each kind; return the rows from before."""
    before = rows(scene.state)
    remove(scene, "video/a")
    alter(scene, "video/b", page=1, line=line("b"), expires_ms=0)
    alter(scene, "video/c", line=line("c", parents=["p"]))
    scene.state.write(FEED, [Row("video/z", 2, 7, NOW, line("z"))])
    return before


def test_each_kind_is_put_right(scene: Scene) -> None:
    """The state is what it was, and a second run finds nothing to do."""
    before = break_all(scene)

    assert rebuilt(scene) == Repaired(4, 0)
    assert rows(scene.state) == before
    assert named(scene) == []
    assert rebuilt(scene) == Repaired(0, 0)


def test_what_is_older_than_the_log_is_kept(scene: Scene) -> None:
    """Such an object could not be restored from the log."""
    trimmed(scene, 3)
    alter(scene, "video/c", line=line("c", parents=["p"]))
    before = rows(scene.state)

    assert rebuilt(scene) == Repaired(0, 0)
    assert rows(scene.state) == before


def test_a_row_in_a_wrong_bucket_is_removed_there(scene: Scene, state: WatchedState) -> None:
    """The row in its own bucket stays."""
    row = rows(state)["video/c"]
    wrong = (row.bucket + 1) % len(BUCKETS)
    state._buckets[FEED, wrong][row.key] = row

    assert rebuilt(scene) == Repaired(1, 0)
    assert state.read(FEED, row.bucket) == [row]
    assert row not in state.read(FEED, wrong)


@pytest.mark.parametrize("saved", [True, False])
def test_what_the_follower_writes_meanwhile_stands(
    scene: Scene, state: WatchedState, saved: bool
) -> None:
    """A newer row wins, whatever was wrong with the old one; no repair overwrites it."""
    break_all(scene)
    posted: list[str] = []

    def meanwhile() -> None:
        if not posted:
            posted.extend(("a", "b", "c", "z"))
            page = scene.post(*(op(name, "update", parents=["new"]) for name in posted))
            scene.project() if saved else scene.projector.handle(FEED, [page])

    state.before_repair = meanwhile
    done = rebuilt(scene)

    written = rows(state)
    assert {row.page for row in written.values()} == {4}
    assert done.moved >= 1
    state.before_repair = lambda: None
    scene.project()
    assert named(scene) == []


@pytest.mark.parametrize("steps", range(4))
def test_killed_and_run_again_it_ends_the_same(
    scene: Scene, state: WatchedState, steps: int
) -> None:
    """This holds for a kill after any number of repairs."""
    before = break_all(scene)
    state.dies_after = steps
    with pytest.raises(Unavailable):
        rebuilt(scene)
    state.dies_after = 10**6

    assert rebuilt(scene) == Repaired(4 - steps, 0)
    assert rows(state) == before


def test_two_at_once_agree(scene: Scene, state: WatchedState) -> None:
    """A row that the other one has repaired counts as correct."""
    remove(scene, "video/a")
    other = Rebuilder(verifier(scene), state)
    bucket = bucket_of("video/a")

    def meanwhile() -> None:
        state.before_repair = lambda: None
        assert other.repair(bucket) == Repaired(1, 0)

    state.before_repair = meanwhile
    assert Rebuilder(verifier(scene), state).repair(bucket) == Repaired(1, 0)

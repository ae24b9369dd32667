"""Followers: wake-ups, leases, checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.following import trimmed
from tests.unit.core.scene import FEED, NOW, Scene, line, op, unavailable
from tidings.core import limits
from tidings.core.errors import FellOff, LeaseLost, Unavailable
from tidings.core.followers.leases import Lease, Observation
from tidings.core.model.pages import Page


@dataclass
class Diary:
    """A handler that writes down what it sees; *first* runs before a read, *then* after a batch."""

    seen: list[int] = field(default_factory=list)
    prepared: list[int] = field(default_factory=list)
    first: Callable[[], object] = lambda: None
    then: Callable[[], object] = lambda: None
    name: str = "diary"
    until: int = 2**40
    rounds: int = 0
    goes_on: bool = False
    start: int = 0
    left: bytes = b""

    def begin(self, lease: Lease) -> int:
        self.left = lease.note
        return max(lease.checkpoint, self.start)

    def note(self, feed: str) -> bytes:
        return b"seen %d" % len(self.seen)

    def prepare(self, feed: str, checkpoint: int) -> bool:
        self.prepared.append(checkpoint)
        self.first()
        self.rounds -= 1
        return self.rounds > 0

    def handle(self, feed: str, pages: Sequence[Page]) -> int:
        taken = [page.number for page in pages if page.number <= self.until]
        self.seen += taken
        self.then()
        return len(taken)

    def on_checkpoint(self, feed: str) -> None:
        """Do nothing: no follower depends on this one."""

    def on_pages_lost(self, feed: str) -> bool:
        return self.goes_on


def take(scene: Scene, owner: str = "somebody") -> Lease:
    """Take the lease as if its holder had crashed."""
    leases = [each for each in scene.followers.leases(FEED) if each.name == "diary"]
    seen = Observation(leases[0].fence, leases[0].beat) if leases else None
    lease = scene.followers.take(FEED, "diary", owner=owner, now_ms=scene.now_ms, over=seen)
    assert lease.owner == owner
    return lease


def checkpoint(scene: Scene) -> int:
    return scene.followers.checkpoints(FEED)["diary"]


@given(st.lists(st.integers(0, 3), max_size=8))
def test_every_page_once_in_order(pages_between_wake_ups: list[int]) -> None:
    """This holds for any number of wake-ups, and any number of pages for each."""
    scene, diary = Scene(), Diary()

    for count in pages_between_wake_ups:
        for _ in range(count):
            scene.post(op())
        assert scene.follower.run(FEED, diary) == count

    assert diary.seen == list(range(1, sum(pages_between_wake_ups) + 1))


def test_a_run_moves_the_checkpoint_and_lets_go(scene: Scene) -> None:
    """The next one can start at once, from there."""
    scene.post(op())
    scene.post(op())

    assert scene.follower.run(FEED, Diary()) == 2

    assert checkpoint(scene) == 2
    assert take(scene).checkpoint == 2
    assert scene.counted["FollowerPages"] == 2


def test_prepare_comes_before_each_read(scene: Scene) -> None:
    """With the last page handled, also when there is nothing to read."""
    diary = Diary()
    scene.follower.run(FEED, diary)
    scene.post(op())
    scene.follower.run(FEED, diary)

    assert diary.prepared == [0, 0]
    assert diary.seen == [1]


def test_a_wake_during_a_run_leaves_a_mark(scene: Scene) -> None:
    """It does nothing itself; the holder checks for the mark before it releases the lease."""
    diary, other = Diary(), Diary()

    def mark_and_page() -> None:
        if len(diary.seen) == 1:
            scene.post(op())
            assert scene.follower.run(FEED, other) == 0

    diary.then = mark_and_page
    scene.post(op())

    assert scene.follower.run(FEED, diary) == 2
    assert diary.seen == [1, 2] and other.seen == []


def test_who_finds_the_holder_dead_takes_over(scene: Scene) -> None:
    """It takes over from the last checkpoint when the lease was unchanged for long enough; the old
    holder cannot save.
    """
    scene.post(op())
    zombie = take(scene)
    diary = Diary()
    assert scene.follow(diary) == 0
    scene.now_ms += limits.LEASE_LATE_MS

    assert scene.follow(diary) == 1

    assert diary.seen == [1]
    with pytest.raises(LeaseLost):
        scene.followers.save(zombie, 0, now_ms=scene.now_ms)


def test_a_holder_that_lost_its_lease_stops(scene: Scene) -> None:
    """Nothing it does afterwards moves the checkpoint."""
    scene.post(op())
    scene.log.take(FEED)
    scene.post(op())

    with pytest.raises(LeaseLost, match="main/diary: lease 1 was taken over"):
        scene.follower.run(FEED, Diary(then=lambda: take(scene, "thief")))
    assert checkpoint(scene) == 0


def test_a_handler_that_fails_keeps_the_checkpoint(scene: Scene) -> None:
    """The lease runs out and the pages are handled again: at least once, never zero times."""
    scene.post(op())
    with pytest.raises(ZeroDivisionError):
        scene.follower.run(FEED, Diary(then=lambda: 1 // 0))
    assert checkpoint(scene) == 0

    scene.now_ms += limits.LEASE_MS
    diary = Diary()
    assert scene.follow(diary) == 1
    assert diary.seen == [1]


def test_before_a_hole_it_waits_for_the_writer(scene: Scene) -> None:
    """A short while, in small steps; the late page is handled in its place."""
    late = scene.log.take(FEED)
    scene.post(op("b"))

    def arrives() -> None:
        if len(scene.waits) == 3:
            scene.log.put(FEED, Page(late, line("a"), "late", NOW))

    diary = Diary(first=arrives)
    assert scene.follower.run(FEED, diary) == 2
    assert diary.seen == [1, 2]
    assert scene.waits == [limits.HOLE_POLL_MS] * 3
    assert scene.counted["HolesFilled"] == 0


def test_an_overdue_hole_is_closed(scene: Scene) -> None:
    """Its writer never wrote the page; the follower continues after the grace period."""
    scene.log.take(FEED)
    scene.post(op("b"))
    diary = Diary()

    assert scene.follower.run(FEED, diary) == 2

    assert diary.seen == [1, 2]
    assert scene.counted["HolesFilled"] == 1
    assert limits.HOLE_GRACE_MS <= scene.now_ms - NOW < 2 * limits.HOLE_GRACE_MS


def test_while_it_waits_the_checkpoint_is_saved(scene: Scene) -> None:
    """The pages before the hole are not handled again if the run is killed."""
    scene.post(op("a"))
    scene.log.take(FEED)
    scene.post(op("c"))
    seen: list[int] = []

    def look_and_wait(ms: int) -> None:
        seen.append(checkpoint(scene))
        scene.wait(ms)

    runtime = replace(scene.runtime, sleep=look_and_wait)
    replace(scene.follower, runtime=runtime).run(FEED, Diary())
    assert set(seen) == {1}


def test_a_run_that_takes_too_long_yields(scene: Scene) -> None:
    """It releases the lease and wakes itself, so that the lease changes hands."""

    def never_done() -> None:
        scene.post(op())
        scene.followers.mark(FEED, "diary")
        scene.wait(limits.FOLLOW_RUN_MS // 4)

    scene.post(op())
    assert scene.follower.run(FEED, Diary(then=never_done)) == 4

    assert scene.waker.woken == [(FEED, "diary")]
    assert take(scene).checkpoint == checkpoint(scene) == 4


def test_a_clock_that_is_set_back_prolongs_no_run(scene: Scene) -> None:
    """A run in the event loop of a server would block it for as long."""

    def twenty() -> None:
        if scene.log.head(FEED) < 20:
            scene.post(op())
            scene.followers.mark(FEED, "diary")
        scene.wait(limits.FOLLOW_RUN_MS // 4)
        scene.now_ms -= limits.FOLLOW_RUN_MS
        scene.set_back_ms += limits.FOLLOW_RUN_MS

    scene.post(op())
    assert scene.follower.run(FEED, Diary(then=twenty)) == 4


def test_who_fell_off_the_log_stands_still(scene: Scene) -> None:
    """No page is skipped: each run raises the error and releases the lease."""
    scene.post(op())
    trimmed(scene, 5)

    for _ in range(2):
        with pytest.raises(
            FellOff, match="main/diary: is at page 0, but the log begins with page 5"
        ):
            scene.follower.run(FEED, Diary())
    assert checkpoint(scene) == 0
    assert scene.counted["FollowerFellOff"] == 2


def test_who_can_go_on_does_and_says_so(scene: Scene) -> None:
    """Pages that were trimmed before its first run do not count as missed."""
    for _ in range(5):
        scene.post(op())
    trimmed(scene, 3)
    diary = Diary(goes_on=True)

    scene.follower.run(FEED, diary)
    assert diary.seen == [3, 4, 5] and scene.counted["FollowerFellOff"] == 0
    for _ in range(3):
        scene.post(op())
    trimmed(scene, 8)
    scene.follower.run(FEED, diary)
    assert diary.seen == [3, 4, 5, 8] and scene.counted["FollowerFellOff"] == 1


def test_a_long_log_is_read_in_many_reads(scene: Scene) -> None:
    """Each read is bounded by the store; the checkpoint moves with each."""
    for _ in range(6):
        scene.log.put(FEED, Page(scene.log.take(FEED), "x" * 300_000, "id", NOW))
    diary = Diary()

    assert scene.follower.run(FEED, diary) == 6
    assert diary.prepared[0] == 0 and len(diary.prepared) >= 2


def test_a_turn_handles_no_more_than_it_has_time_for(scene: Scene) -> None:
    """Packed pages hold far more operations than one turn can write before its time limit."""
    batch = limits.REQUEST_OPERATIONS_MAX
    pages = 4 * limits.FOLLOW_OPERATIONS_MAX // batch + 1
    scene.fill(pages, *["{}"] * batch)
    taken: list[int] = []
    diary = Diary(then=lambda: taken.append(len(diary.seen)))

    assert scene.follower.run(FEED, diary) == pages

    steps = [after - before for before, after in zip([0, *taken], taken, strict=False)]
    assert steps[0] == limits.FOLLOW_OPERATIONS_FIRST // batch
    assert max(steps) == limits.FOLLOW_OPERATIONS_MAX // batch
    assert diary.seen == list(range(1, pages + 1))


def test_operations_are_counted_with_the_checkpoint(scene: Scene) -> None:
    """A turn that fails counts nothing, and the one that handles the pages again counts once."""
    scene.post(op("a"), op("b"))
    scene.post(op("c"))

    with pytest.raises(Unavailable):
        scene.follower.run(FEED, Diary(then=unavailable))
    assert [each.operations for each in scene.followers.leases(FEED)] == [0]
    scene.now_ms += limits.LEASE_MS
    scene.follow(Diary())
    scene.post(op("d"))
    scene.follower.run(FEED, Diary())
    scene.follower.run(FEED, Diary())

    assert [each.operations for each in scene.followers.leases(FEED)] == [4]


def test_what_is_not_handled_stays_for_the_next_wake(scene: Scene) -> None:
    """A handler that waits for something releases the lease after the pages it has handled."""
    for _ in range(3):
        scene.post(op())
    diary = Diary(until=2)

    assert scene.follower.run(FEED, diary) == 2
    assert scene.follower.run(FEED, diary) == 0
    diary.until = 3
    assert scene.follower.run(FEED, diary) == 1
    assert (diary.seen, checkpoint(scene)) == ([1, 2, 3], 3)


def test_a_wake_while_it_waits_is_answered(scene: Scene) -> None:
    """Its condition is met just before it would release the lease: the mark keeps it running."""
    scene.post(op())
    diary = Diary(until=0)

    def comes() -> None:
        if diary.until == 0:
            assert scene.followers.mark(FEED, "diary") is not None
        diary.until = 1

    diary.then = comes
    assert scene.follower.run(FEED, diary) == 1


def test_those_behind_are_told_after_the_checkpoint(scene: Scene) -> None:
    """It is called once for each batch that moved the checkpoint, and not otherwise."""
    diary, stood = Diary(), list[int]()
    diary.on_checkpoint = lambda feed: stood.append(checkpoint(scene))  # type: ignore[method-assign]
    scene.post(op())
    scene.follower.run(FEED, diary)
    scene.follower.run(FEED, diary)

    assert stood == [1]


def test_a_run_goes_on_while_there_is_more_to_prepare(scene: Scene) -> None:
    """This holds without pages too: a wake-up that was handled in part is not sent again."""
    diary = Diary(rounds=3)
    scene.follower.run(FEED, diary)

    assert diary.prepared == [0, 0, 0]
    assert take(scene)

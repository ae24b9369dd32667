"""Followers: wake-ups, leases, checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.patterns.stores import Breaking
from tests.unit.core.following import trimmed
from tests.unit.core.scene import FEED, NOW, Scene, line, op, unavailable
from tidings.core import limits
from tidings.core.errors import FellOff, LeaseLost, Unavailable
from tidings.core.followers.follower import FollowerConfig
from tidings.core.followers.leases import Lease, Observation
from tidings.core.model.pages import Page
from tidings.core.state.rows import Overwritten, Row


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


def test_no_clock_takes_a_lease_over(scene: Scene) -> None:
    """A process whose clock is years ahead may begin to observe; the holder only has to renew the
    lease.
    """
    scene.post(op())
    holder, diary = take(scene), Diary()
    ahead = replace(
        scene.follower, reader=replace(scene.reader, clock=lambda: scene.now_ms + 10**12)
    )
    assert ahead.run(FEED, diary) == 0

    seen = scene.waker.observations.pop()[2]
    for _ in range(10):
        assert ahead.run(FEED, diary, seen) == 0
        scene.followers.save(holder, 0, now_ms=scene.now_ms)
        seen = scene.waker.observations.pop(0)[2]

    assert diary.seen == [] and scene.followers.release(scene.followers.leases(FEED)[0])


def test_a_lease_is_taken_over_when_it_stood_still_for_long(scene: Scene) -> None:
    """It is not taken over earlier, nor after observing another holder; each observer waits half of
    the time.
    """
    scene.post(op())
    take(scene)
    scene.now_ms += limits.LEASE_LATE_MS
    diary = Diary()
    assert scene.follower.run(FEED, diary) == 0
    looked = []
    while scene.waker.observations:
        seen = scene.waker.observations.pop()[2]
        looked.append((seen.ms, scene.follower.run(FEED, diary, seen)))

    assert looked == [(0, 0), (limits.LEASE_LOOK_MS, 0), (limits.LEASE_MS, 1)]
    assert scene.waits == [limits.LEASE_LOOK_MS] * 2


def test_one_at_a_time_looks_on(scene: Scene) -> None:
    """However many wake-ups find the lease held, one process observes; another starts if that one
    is lost.
    """
    scene.post(op())
    take(scene)
    for _ in range(3):
        scene.follower.run(FEED, Diary())
    assert scene.waker.observations == []  # its holder was here a moment ago

    scene.now_ms += limits.LEASE_LATE_MS
    for _ in range(3):
        scene.follower.run(FEED, Diary())
    assert len(scene.waker.observations) == 1
    scene.now_ms += limits.LEASE_LOOK_AGAIN_MS
    for _ in range(3):
        scene.follower.run(FEED, Diary())
    assert len(scene.waker.observations) == 2


def test_clocks_that_differ_do_not_wake_each_other(scene: Scene) -> None:
    """After an observer with a clock that is ahead, processes with correct clocks start no second
    one."""
    scene.post(op())
    take(scene)
    ahead_ms, began_ms = 10 * limits.LEASE_LOOK_AGAIN_MS, scene.now_ms + limits.LEASE_LATE_MS
    for _ in range(5):
        for scene.now_ms in (began_ms + ahead_ms, began_ms):
            scene.follower.run(FEED, Diary())
    assert len(scene.waker.observations) == 1


def test_who_looked_on_at_another_holder_only_leaves_a_mark(scene: Scene) -> None:
    """Its observation is of an earlier holder; it marks the lease, so the current holder reads
    again."""
    scene.post(op())
    old = take(scene)
    new = take(scene, "next")
    seen = Observation(old.fence, old.beat, limits.LEASE_MS)

    assert scene.follower.run(FEED, Diary(), seen) == 0
    assert not scene.followers.release(new)


@pytest.mark.parametrize("age_ms", [limits.LEASE_LATE_MS, -limits.CLOCK_SKEW_MS_MAX - 1])
def test_who_renewed_in_the_future_is_late(scene: Scene, age_ms: int) -> None:
    """A holder whose clock was an hour ahead crashed: without this no process would observe for an
    hour.
    """
    lease = take(scene)
    renewed_ms = scene.now_ms
    assert lease.is_late(renewed_ms + age_ms)
    assert not lease.is_late(renewed_ms + limits.LEASE_LATE_MS - 1)
    assert not lease.is_late(renewed_ms - limits.CLOCK_SKEW_MS_MAX)
    assert not replace(lease, owner="").is_late(renewed_ms + age_ms)


def test_an_observation_is_of_one_lease_without_a_renewal() -> None:
    """A renewal or another holder makes it history; a mark does not."""
    lease = Lease("main", "push", owner="me", fence=1, marks=0, checkpoint=7, expires_ms=9)
    seen = Observation(lease.fence, lease.beat)
    assert seen.is_of(lease) and seen.is_of(replace(lease, marks=7))
    assert not seen.is_of(replace(lease, beat=1)) and not seen.is_of(replace(lease, fence=2))
    assert not seen.is_long_enough and replace(seen, ms=limits.LEASE_MS).is_long_enough


def test_who_cannot_handle_pages_lets_go(scene: Scene) -> None:
    """The next holder need not wait: a late write of this one does not set rows back."""
    scene.post(op("x"))
    state = scene.state
    broken = replace(scene.projector, states=Breaking())
    with pytest.raises(Unavailable):
        scene.follower.run(FEED, broken)

    assert scene.followers.leases(FEED)[0].owner == ""
    assert scene.project() == 1 and state.find(FEED, ["video/x"])


@pytest.mark.parametrize("error", [Unavailable("disk I/O error"), ValueError("a mistake")])
@pytest.mark.parametrize(
    "step", ["begin", "prepare", "note", "handle", "on_checkpoint", "read", "count"]
)
def test_a_run_that_fails_anywhere_releases_its_lease(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, step: str, error: Exception
) -> None:
    """The next run resumes at the last stored checkpoint without waiting."""
    for name in ("x", "y"):
        scene.post(op(name))

    def fail(*_: object, **__: object) -> None:
        raise error

    diary = Diary()
    with monkeypatch.context() as patched:
        if step in ("read", "count"):
            reader = replace(scene.reader, count=fail if step == "count" else scene.reader.count)
            broken = replace(scene.follower, reader=reader)
            if step == "read":
                patched.setattr(scene.log, "read", fail)
        else:
            broken = scene.follower
            patched.setattr(diary, step, fail)
        with pytest.raises(type(error)):
            broken.run(FEED, diary)
    (left,) = scene.followers.leases(FEED)
    assert left.owner == ""
    scene.follower.run(FEED, diary)
    assert scene.followers.checkpoints(FEED) == {diary.name: 2}


def test_a_checkpoint_that_may_be_stored_is_not_taken_back(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The floor may have passed the checkpoint, so the lease is not released but taken over."""
    for name in ("x", "y"):
        scene.post(op(name))
    save = scene.followers.save

    def lose_the_answer(lease: Lease, checkpoint: int, *, now_ms: int) -> Lease:
        save(lease, checkpoint, now_ms=now_ms)
        raise Unavailable("no answer")

    monkeypatch.setattr(scene.followers, "save", lose_the_answer)
    small = replace(
        scene.follower, follower_config=FollowerConfig(operations_first=1, operations_max=1)
    )
    with pytest.raises(Unavailable):
        small.run(FEED, Diary())
    (left,) = scene.followers.leases(FEED)
    assert (left.checkpoint, left.owner != "") == (1, True)


def test_a_lease_that_cannot_be_let_go_is_left_to_be_taken_over(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control table is unavailable as well; the first error is raised."""
    scene.post(op("x"))
    broken = replace(scene.projector, states=Breaking())
    monkeypatch.setattr(scene.followers, "release", unavailable)
    with pytest.raises(Unavailable, match="the state did not answer"):
        scene.follower.run(FEED, broken)
    assert scene.followers.leases(FEED)[0].owner


@pytest.mark.parametrize("skew_ms", [1_000, 21_000, 10**9])
def test_a_second_follower_writes_nothing_beside_a_living_one(scene: Scene, skew_ms: int) -> None:
    """This holds however far its clock is ahead: the first one's pending writes land before its
    own."""
    scene.post(op("x", tags=["one"]))
    write = scene.state.write
    others: list[int] = []

    def meanwhile(feed: str, rows: Sequence[Row]) -> list[Overwritten | None]:
        if not others:
            scene.post(op("x", tags=["two"]))
            reader = replace(scene.reader, clock=lambda: scene.now_ms + skew_ms)
            other = replace(scene.follower, reader=reader)
            others.append(other.run(FEED, scene.projector))
        return write(feed, rows)

    scene.state.write = meanwhile  # type: ignore[method-assign]
    scene.project()

    assert others == [0] and "two" in scene.rows()["video/x"]


_PAGES = 1_000  # of a thousand operations each: a million


class Killed(BaseException):
    """Simulates the end of a process: none of its clean-up code runs."""


class Slow(Diary):
    """Takes *page_ms* for each page, a thousand operations; is killed at *limit_ms*."""

    def __init__(self, scene: Scene, page_ms: int) -> None:
        super().__init__()
        self.scene, self.page_ms, self.limit_ms = scene, page_ms, 0

    def handle(self, feed: str, pages: Sequence[Page]) -> int:
        self.scene.now_ms += self.page_ms * len(pages)
        if self.scene.now_ms >= self.limit_ms:
            raise Killed
        return super().handle(feed, pages)


@pytest.fixture
def with_backlog(scene: Scene) -> Scene:
    """Append a million operations that no follower has handled."""
    scene.fill(_PAGES, *["{}"] * 1000)
    return scene


def wake(scene: Scene, slow: Slow, limit_ms: int, seen: Observation | None = None) -> bool:
    """Run once, and kill the run after *limit_ms*; return True if it was killed."""
    slow.limit_ms = scene.now_ms + limit_ms
    try:
        scene.follower.run(FEED, slow, seen)
    except Killed:
        return True
    return False


def succeed(scene: Scene) -> Observation:
    """Return the observation that allows the lease of a dead holder to be taken over."""
    (lease,) = scene.followers.leases(FEED)
    scene.now_ms += limits.LEASE_MS
    return Observation(lease.fence, lease.beat, limits.LEASE_MS)


@pytest.mark.parametrize("page_ms", [20, 400, 7_000])
def test_a_million_operations_though_runs_are_killed(with_backlog: Scene, page_ms: int) -> None:
    """On a store of any speed the checkpoint moves in each run that has time for one page."""
    random, slow, killed = Random(page_ms), Slow(with_backlog, page_ms), 0
    seen: Observation | None = None
    while slow.seen[-1:] != [_PAGES]:
        before = checkpoint(with_backlog) if slow.seen else 0
        limit_ms = random.randint(page_ms + 1, max(3_000, 2 * page_ms))
        dead = wake(with_backlog, slow, limit_ms, seen)
        seen = succeed(with_backlog) if dead else None
        killed += dead
        assert checkpoint(with_backlog) > before
    assert killed and sorted(set(slow.seen)) == list(range(1, _PAGES + 1))


def test_what_was_read_and_not_handled_is_not_read_again(scene: Scene) -> None:
    """A read may be enough for many batches; only pages that do not fill a batch are read again."""
    scene.fill(40, *["{}"] * 1000)
    reads, diary = scene.reads(), Diary()
    assert scene.follower.run(FEED, diary) == 40
    assert diary.seen == list(range(1, 41)) and len(reads) <= 4

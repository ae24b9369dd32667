"""Taking over: a lease changes hands when it was unchanged for long, whatever clocks say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.patterns.stores import Breaking
from tests.unit.core.followers.test_follower import Diary, take
from tests.unit.core.scene import FEED, Scene, op, unavailable
from tidings.core import limits
from tidings.core.errors import Unavailable
from tidings.core.followers.follower import FollowerConfig
from tidings.core.followers.leases import Lease, Observation
from tidings.core.state.rows import Overwritten, Row


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

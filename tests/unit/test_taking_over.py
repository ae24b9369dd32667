"""Taking over: a lease changes hands when it stood still, whatever clocks say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tidings.core import limits
from tidings.core.leases import Observation
from tidings.core.state import Row

from tests.unit.scene import FEED, Scene, op
from tests.unit.test_followers import Diary, take


def test_no_clock_takes_a_lease_over(scene: Scene) -> None:
    """One that is years ahead may begin to look; who holds it has only to renew it."""
    scene.post(op())
    holder, diary = take(scene), Diary()
    ahead = replace(scene.follower, clock=lambda: scene.now_ms + 10**12)
    assert ahead.run(FEED, diary) == 0

    seen = scene.bells.observations.pop()[2]
    for _ in range(10):
        assert ahead.run(FEED, diary, seen) == 0
        scene.followers.save(holder, 0, now_ms=scene.now_ms)
        seen = scene.bells.observations.pop(0)[2]

    assert diary.seen == [] and scene.followers.release(scene.followers.standings(FEED)[0])


def test_a_lease_is_taken_over_when_it_stood_still_for_long(scene: Scene) -> None:
    """Neither sooner, nor by who has seen another one; each looks for half of the time."""
    scene.post(op())
    take(scene)
    scene.now_ms += limits.LEASE_LATE_MS
    diary = Diary()
    assert scene.follower.run(FEED, diary) == 0
    looked = []
    while scene.bells.observations:
        seen = scene.bells.observations.pop()[2]
        looked.append((seen.ms, scene.follower.run(FEED, diary, seen)))

    assert looked == [(0, 0), (limits.LEASE_LOOK_MS, 0), (limits.LEASE_MS, 1)]
    assert scene.waits == [limits.LEASE_LOOK_MS] * 2


def test_one_at_a_time_looks_on(scene: Scene) -> None:
    """However many bells find the lease held, and again where that one was lost on the way."""
    scene.post(op())
    take(scene)
    for _ in range(3):
        scene.follower.run(FEED, Diary())
    assert scene.bells.observations == []  # its holder was here a moment ago

    scene.now_ms += limits.LEASE_LATE_MS
    for _ in range(3):
        scene.follower.run(FEED, Diary())
    assert len(scene.bells.observations) == 1
    scene.now_ms += limits.LEASE_LOOK_AGAIN_MS
    for _ in range(3):
        scene.follower.run(FEED, Diary())
    assert len(scene.bells.observations) == 2


def test_who_looked_on_at_another_holder_only_leaves_a_mark(scene: Scene) -> None:
    """What it has seen is history; the holder of now reads again."""
    scene.post(op())
    old = take(scene)
    new = take(scene, "next")
    seen = Observation(old.fence, old.beat, limits.LEASE_MS)

    assert scene.follower.run(FEED, Diary(), seen) == 0
    assert not scene.followers.release(new)


@pytest.mark.parametrize("skew_ms", [1_000, 21_000, 10**9])
def test_a_second_follower_writes_nothing_beside_a_living_one(scene: Scene, skew_ms: int) -> None:
    """However far its clock is ahead: what the first one has on its way lands in its turn."""
    scene.post(op("x", tags=["one"]))
    write = scene.state.write
    others: list[int] = []

    def meanwhile(feed: str, rows: Sequence[Row]) -> None:
        if not others:
            scene.post(op("x", tags=["two"]))
            other = replace(scene.follower, clock=lambda: scene.now_ms + skew_ms)
            others.append(other.run(FEED, scene.projector))
        write(feed, rows)

    scene.state.write = meanwhile  # type: ignore[method-assign]
    scene.project()

    assert others == [0] and "two" in scene.rows()["video/x"]

"""Idle feeds: which feeds a sweep visits, and when it visits one again."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import pytest

from tests.unit.core.scene import (
    FEED,
    FEEDS,
    NOW,
    PAGE_MS,
    RETENTION,
    Scene,
    op,
    unavailable,
    with_step,
)
from tidings.core import limits
from tidings.core.consumers.consumer import Change, Consumer, Note
from tidings.core.consumers.service import Reason
from tidings.core.erasure.entries import Entry
from tidings.core.erasure.records import Phase
from tidings.core.maintenance.sweep import FeedVisit, Sweeper
from tidings.core.model.feeds import FixedFeeds, Retention
from tidings.core.model.filters import Filter
from tidings.core.model.timestamps import DAY_MS

MINUTE, HOUR = limits.SWEEP_EVERY_MS, 3_600_000


def sweeps(
    scene: Scene, visit: FeedVisit | None = None, count: int = 1, **changed: Any
) -> list[str]:
    """Sweep *count* times, a minute apart; return the feeds that the last one visited."""
    names: list[str] = []
    visit = replace(visit or scene.sweeper.visit, about=names.append)
    sweeper: Sweeper = replace(scene.sweeper, visit=visit, **changed)
    for _ in range(count):
        names.clear()
        scene.now_ms += MINUTE
        sweeper.run()
    assert names.pop() == ""
    return sorted(names)


def settle(scene: Scene) -> None:
    """Handle all pages, and sweep until the feeds are settled."""
    for feed in FEEDS:
        scene.project(feed)
        scene.push(feed)
    assert sweeps(scene, count=3) == []


def next_visit(scene: Scene) -> int | None:
    """Return the time at which FEED becomes due."""
    return scene.due_feeds._times.get(FEED)


def test_a_sweep_ends_before_its_function_is_killed() -> None:
    """It visits one feed at least, and the next sweeps begin with other feeds."""
    scene, visited = Scene(), set[str]()
    for _ in FEEDS:
        times = count(0, limits.SWEEP_VISITS_MS - 1)
        found = sweeps(scene, runtime=replace(scene.runtime, steady=partial(next, times)))
        assert len(found) == 1
        visited.update(found)
    assert visited == set(FEEDS)


def test_a_feed_without_work_is_not_visited() -> None:
    """A feed is settled by the second visit without a change between."""
    scene = Scene()
    assert sweeps(scene) == sorted(FEEDS)
    assert sweeps(scene) == sorted(FEEDS)
    assert sweeps(scene) == []


def test_a_visit_reads_nothing_of_other_feeds(scene: Scene) -> None:
    settle(scene)
    scene.projected(op())
    scene.push()
    leases, read = scene.followers.leases, list[str]()
    scene.followers.leases = lambda feed: (read.append(feed), leases(feed))[1]  # type: ignore
    assert sweeps(scene) == [FEED]
    assert read == [FEED]


def test_a_page_makes_its_feed_due_until_it_is_handled(scene: Scene) -> None:
    """The wake-up may be lost: each sweep wakes the followers again."""
    settle(scene)
    scene.post(op())
    for _ in range(3):
        scene.waker.woken.clear()
        assert sweeps(scene, count=2) == [FEED]
        assert [name for _, name in scene.waker.woken] == ["state", "push"] * 2
    scene.project()
    scene.push()
    assert sweeps(scene, count=3) == []


def test_a_lease_that_is_held_keeps_its_feed_due(scene: Scene) -> None:
    """Its holder may have crashed, and the lease must then be observed."""
    scene.followers.take(FEED, "state", owner="killed", now_ms=scene.now_ms)
    assert sweeps(scene, count=3) == [FEED]
    scene.waker.woken.clear()
    scene.now_ms += limits.LEASE_MS
    assert sweeps(scene) == [FEED]
    assert (FEED, "state") in scene.waker.woken


def test_a_log_that_grows_each_minute_stays_due(scene: Scene) -> None:
    """To settle it each time, and to mark it again, would cost writes."""
    settle(scene)
    for _ in range(4):
        scene.projected(op())
        scene.push()
        assert sweeps(scene) == [FEED]
        assert next_visit(scene) == 0


def test_a_feed_is_visited_when_its_oldest_page_can_be_trimmed(scene: Scene) -> None:
    scene.projected(op())
    scene.push()
    later = scene.now_ms = NOW + 10 * MINUTE
    scene.projected(op())
    scene.push()
    assert sweeps(scene, count=3) == []
    assert next_visit(scene) == NOW + RETENTION.age_ms

    scene.now_ms = NOW + RETENTION.age_ms - MINUTE
    assert sweeps(scene) == [FEED] and scene.log.floor(FEED) == 2
    assert next_visit(scene) == later + RETENTION.age_ms
    scene.now_ms = later + RETENTION.age_ms - MINUTE
    assert sweeps(scene) == [FEED] and scene.log.floor(FEED) == 3
    assert next_visit(scene) is None


@pytest.mark.parametrize("records_min", [1, 3, 100])
def test_pages_that_stay_are_renewed_although_the_feed_is_idle(records_min: int) -> None:
    """The sweep visits the feed a few times in each lifetime of a page, and no page expires."""
    scene = Scene(retention=Retention(RETENTION.age_ms, records_min))
    for _ in range(5):
        scene.projected(op())
        scene.push()
        scene.now_ms += 7 * MINUTE
    visits = 0
    end_ms = scene.now_ms + 10 * PAGE_MS
    while scene.now_ms < end_ms:
        visits += sweeps(scene).count(FEED)
        if not scene.due_feeds.due(scene.now_ms):
            scene.now_ms += HOUR
        pages = scene.log._feeds[FEED].pages
        kept = [number for number in pages if number >= scene.log.floor(FEED)]
        assert min(pages[number].expires_ms for number in kept) > scene.now_ms
    assert len(kept) == min(5, records_min)
    assert 3 < visits < 40


def test_a_rule_of_an_owner_applies_to_an_idle_feed(scene: Scene) -> None:
    scene.projected(op())
    scene.push()
    settle(scene)
    scene.configure(max_age_s=60)
    assert sweeps(scene) == [FEED]
    assert scene.log.floor(FEED) == 2


def register(scene: Scene) -> None:
    consumer = Consumer(FEED, "billing", Filter())
    assert scene.consumers.write(FEED, "billing", 0, Change(consumer))


def test_a_consumer_that_is_behind_keeps_its_feed_due(scene: Scene) -> None:
    """Its lag is measured each minute, so that an alarm can see it."""
    scene.projected(op())
    scene.push()
    settle(scene)
    register(scene)
    assert sweeps(scene, count=4) == [FEED]
    scene.counted.clear()
    assert sweeps(scene) == [FEED] and scene.counted["ConsumerLag"] == 1
    scene.host.consumers.mark(FEED, "billing", "now", Reason("ops", "test"))
    assert sweeps(scene, count=3) == []
    scene.host.consumers.mark(FEED, "billing", "oldest", Reason("ops", "test"))
    assert sweeps(scene, count=3) == [FEED]


def test_a_change_during_a_visit_is_not_overlooked(scene: Scene) -> None:
    """Each kind of change, while the second visit is about to settle the feed."""
    register(scene)

    def pause() -> None:
        stored = scene.consumers.consumer(FEED, "billing")
        assert stored is not None
        note = Note(NOW, "ops", "paused", "")
        assert scene.consumers.write(FEED, "billing", stored.version, Change(stored, note))

    for change in (pause, lambda: scene.configure(max_age_s=60), lambda: scene.post(op())):
        settle(scene)
        scene.due_feeds.mark(FEED)
        sweeps(scene)

        def hurry(feed: str, _: object, change: Any = change) -> None:
            if feed == FEED:
                change()

        visit = with_step(scene.sweeper, "the erasures", hurry).visit
        assert sweeps(scene, visit) == [FEED]
        assert next_visit(scene) == 0


def test_a_feed_with_a_failed_step_stays_due(scene: Scene) -> None:
    floor = scene.log.floor
    for _ in range(3):
        scene.log.floor = unavailable  # type: ignore[method-assign]
        with pytest.raises(ExceptionGroup):
            sweeps(scene)
        scene.log.floor = floor  # type: ignore[method-assign]
        assert {each.feed for each in scene.due_feeds.due(scene.now_ms)} == FEEDS
    assert sweeps(scene, count=3) == []


def test_connections_are_checked_although_no_due_feed_can_be_listed(scene: Scene) -> None:
    scene.due_feeds.due = unavailable  # type: ignore[method-assign]
    scene.connect("old")
    scene.now_ms += limits.CONNECTION_MS_MAX + 1
    with pytest.raises(ExceptionGroup, match="1 steps of the sweep failed"):
        scene.sweeper.run()
    assert scene.connections.get("old") is None


def test_a_deleted_feed_is_not_visited(scene: Scene) -> None:
    """A slow process may still write to it and make it due."""
    scene.post(op())
    left = FixedFeeds(FEEDS - {FEED})
    assert sweeps(scene, feed_names=left) == [*left.known]
    assert next_visit(scene) is None


def test_a_feed_is_visited_when_its_erasure_is_due(scene: Scene) -> None:
    """After the content, the entry is erased at the end of the tombstone."""
    scene.projected(op())
    erasure = scene.host.erasures.request(FEED, Entry("video", "x1", "ops", "", ()))
    settle_ms = scene.now_ms + 4 * MINUTE
    scene.project()
    scene.push()
    assert scene.erasures.unfinished(FEED)

    def sweep() -> list[str]:
        scene.sweeper = with_step(
            scene.sweeper, "the erasures", lambda feed, _: scene.host.wake_due_erasures(feed, True)
        )
        return sweeps(scene, count=3)

    assert sweep() == [FEED]
    stored = scene.erasures.erasure(FEED, erasure.id)
    assert stored is not None
    until_ms = settle_ms + HOUR
    assert scene.erasures.save(FEED, replace(stored, phase=Phase.KEPT, until_ms=until_ms))
    assert sweep() == []
    assert next_visit(scene) == until_ms


def test_a_feed_is_visited_when_a_deletion_is_to_be_forgotten(scene: Scene) -> None:
    scene.configure(forget_after_days=1)
    scene.projected(op(event="delete"))
    scene.push()
    woken: list[str] = []
    scene.host.wake_eraser = woken.append  # type: ignore[method-assign, assignment]
    scene.host.forget_every_ms = MINUTE
    keeps = Retention(10 * DAY_MS, 0)
    service = replace(scene.retention_service, retention=keeps)
    sweeper = with_step(
        scene.sweeper, "the retention", lambda feed, look: service.run(feed, look).next_ms
    )
    for _ in range(3):
        scene.now_ms += MINUTE
        sweeper.run()
    assert woken == []
    assert next_visit(scene) is not None and next_visit(scene) <= NOW + DAY_MS  # type: ignore
    scene.now_ms = NOW + DAY_MS
    sweeper.run()
    assert woken == [FEED]

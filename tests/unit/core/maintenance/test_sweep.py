"""Sweeping: the safety net under everything that is woken by events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import pytest

from tests.fakes import MemoryOutbox
from tests.unit.core.scene import (
    FEED,
    FEEDS,
    NOW,
    PAGE_MS,
    RETENTION,
    Scene,
    op,
    unavailable,
    with_archive,
    with_step,
)
from tidings.core import limits
from tidings.core.changeagent.tag_index import Indexer
from tidings.core.consumers.consumer import Change, Consumer, Note
from tidings.core.consumers.service import Reason
from tidings.core.erasure.entries import Entry
from tidings.core.erasure.records import Phase
from tidings.core.errors import Unavailable
from tidings.core.followers.follower import FOLLOWERS, STATE
from tidings.core.followers.leases import Lease
from tidings.core.ingest.outbox import OutboxMessage
from tidings.core.maintenance.sweep import FeedVisit, Sweeper
from tidings.core.model.feeds import FixedFeeds, Retention
from tidings.core.model.filters import Filter
from tidings.core.model.timestamps import DAY_MS
from tidings.core.replication.source import Source
from tidings.core.websocket.connections import Connection
from tidings.core.websocket.session import State


def sweep(scene: Scene) -> None:
    scene.waker.woken.clear()
    scene.waker.replays.clear()
    scene.sweeper.run()


def archiving(scene: Scene, wait_ms: int = 0) -> Sweeper:
    """Return the sweeper of a host with an archive."""
    visit = scene.sweeper.visit
    followers = replace(with_archive(visit.followers, archives=True), archive_wait_ms=wait_ms)
    return replace(scene.sweeper, visit=replace(visit, followers=followers))


def with_steps(scene: Scene) -> Sweeper:
    """Return the sweeper with the steps for the monitors that the host has now."""
    visit = replace(scene.sweeper.visit, steps=scene.host.sweep_steps())
    return replace(scene.sweeper, visit=visit)


def test_late_followers_are_rung(scene: Scene) -> None:
    """In each feed those that lag are woken; the lag is counted."""
    scene.post(op())
    scene.projected(op())
    sweep(scene)

    late = [(FEED, name) for name in FOLLOWERS if name != STATE]
    assert scene.waker.woken == late
    assert scene.counted["FollowerLag"] == 2 * len(late)


def test_a_follower_at_rest_beside_a_page_that_waited_was_not_woken(scene: Scene) -> None:
    """The stream wakes it within a second. A follower that is running, or has only a new page, is
    not counted.
    """

    def missed() -> int:
        before = scene.counted["WakeupsMissed"]
        sweep(scene)
        return scene.counted["WakeupsMissed"] - before

    scene.post(op())
    assert missed() == 0
    scene.now_ms += limits.WAKE_LATE_MS
    assert missed() == 2
    assert scene.counted["FollowerAge"] == 2 * limits.WAKE_LATE_MS // 1000
    for name in ("state", "push"):
        scene.followers.take(FEED, name, owner="somebody", now_ms=scene.now_ms)
    assert missed() == 0


def test_each_figure_is_of_the_feed_that_is_swept(scene: Scene) -> None:
    """The feed is announced before it is swept; connections belong to no feed."""
    names: list[str] = []
    replace(scene.sweeper, visit=replace(scene.sweeper.visit, about=names.append)).run()
    assert set(names[:-1]) == FEEDS and names[-1] == ""


def test_a_few_pages_wait_for_the_archive(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run costs two writes and a part: it is woken after some time, or with enough pages for a
    part.
    """
    monkeypatch.setattr(limits, "ARCHIVE_PAGES", 3)
    sweeper = archiving(scene, wait_ms=900_000)

    def wakes_of_archive() -> int:
        scene.waker.woken.clear()
        sweeper.run()
        return scene.waker.woken.count((FEED, "archive"))

    assert wakes_of_archive() == 0
    scene.post(op())
    scene.now_ms += 899_999
    assert wakes_of_archive() == 0
    scene.now_ms += 1
    assert wakes_of_archive() == 1
    scene.archived()
    for expected in (0, 0, 1):
        scene.post(op())
        assert wakes_of_archive() == expected


def test_the_index_is_woken_for_a_summary_or_now_and_then(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not woken without need: pages without a summary are read from the log."""
    monkeypatch.setattr(limits, "SUMMARY_PAGES", 3)
    woken: list[str] = []
    tags = scene.host.stores.tags
    scene.host.wake = lambda job, feed: woken.append(feed)  # type: ignore[method-assign]
    sweeper = with_steps(scene)
    scene.now_ms -= scene.now_ms % (limits.INDEX_EVERY * limits.SWEEP_EVERY_MS)

    def wakes() -> list[str]:
        woken.clear()
        sweeper.run()
        return [*woken]

    assert wakes() == []
    scene.post(op())
    assert wakes() == [FEED]
    scene.now_ms += limits.SWEEP_EVERY_MS
    assert wakes() == []
    scene.post(op())
    scene.post(op())
    assert wakes() == [FEED]
    Indexer(tags, scene.reader, scene.runtime.steady, PAGE_MS).run(FEED)
    assert wakes() == []
    scene.now_ms += (limits.INDEX_EVERY - 1) * limits.SWEEP_EVERY_MS
    assert wakes() == []


def test_messages_that_wait_in_the_outbox_are_forwarded(scene: Scene) -> None:
    """The forwarder is woken; the age of the oldest message is counted if its id has a time."""
    woken: list[str] = []
    outbox = MemoryOutbox()
    scene.host.stores.outbox = outbox  # type: ignore[misc]
    scene.host.wake = lambda job, feed: woken.append(feed)  # type: ignore[method-assign]
    sweeper = with_steps(scene)
    sweeper.run()
    assert woken == [] and "OutboxAge" not in scene.counted
    outbox.leave(FEED, OutboxMessage(f"{NOW - 7_000:013d}-aa", "operations", "{}"))
    sweeper.run()
    assert woken == [FEED] and scene.counted["OutboxAge"] == 7
    assert OutboxMessage("of-somebody-else", "items", "{}").at_ms == 0


def test_the_archive_is_rung_by_the_sweep_alone(scene: Scene) -> None:
    """It is woken if there is one and it lags. Its lag is a time, counted in seconds."""
    sweeper = archiving(scene)
    scene.projected(op())
    scene.push()
    scene.now_ms += 61_000
    sweep(scene)
    assert scene.waker.woken == [] and "ArchiveLag" not in scene.counted

    sweeper.run()
    assert scene.waker.woken == [(FEED, "archive")]
    assert scene.counted["ArchiveLag"] == 61
    scene.archived()
    scene.waker.woken.clear()
    sweeper.run()
    assert scene.waker.woken == []
    assert scene.counted["ArchiveLag"] == 61


def test_a_chained_feed_is_woken_each_minute(scene: Scene) -> None:
    """Its relay wakes itself when a run ends; one that was killed did not."""
    sources = {FEED: Source("https://master.example/feeds/main")}
    scene.host.settings = replace(scene.host.settings, sources=sources)
    replace(with_steps(scene), chained=sources).run()
    assert scene.waker.woken == [(FEED, "relay")]


def test_a_feed_that_fails_stops_no_other(scene: Scene) -> None:
    """Its other steps and connections run too; the sweep ends with all errors, each with its
    name."""
    for feed in ("main", "other"):
        scene.post(op(), feed=feed)
    failing = {"main"}
    checkpoints, leases = scene.followers.checkpoints, scene.followers.leases

    def throttled(feed: str) -> dict[str, int]:
        if feed in failing:
            raise Unavailable("a hot partition")
        return checkpoints(feed)

    def also_throttled(feed: str) -> Sequence[Lease]:
        throttled(feed)
        return leases(feed)

    scene.followers.checkpoints = throttled  # type: ignore[method-assign]
    scene.followers.leases = also_throttled  # type: ignore[method-assign]
    old = Connection("old", NOW - limits.CONNECTION_MS_MAX - 1)
    scene.connections.open(old)
    for minute in range(2):
        scene.now_ms += minute * limits.SWEEP_EVERY_MS
        scene.waker.woken.clear()
        with pytest.raises(ExceptionGroup) as failed:
            scene.sweeper.run()
        notes = {note for error in failed.value.exceptions for note in error.__notes__}
        assert notes == {"the followers of the feed main", "the retention of the feed main"}
        assert scene.waker.woken == [("other", name) for name in FOLLOWERS]

    assert scene.counted["SweepStepsFailed"] == 4
    assert scene.connections.get("old") is None


def test_a_connection_that_fails_stops_no_other(scene: Scene) -> None:
    """If many fail, some errors are raised, and all are counted."""
    late = NOW - limits.CONNECTION_MS_MAX - 1
    for number in range(limits.SWEEP_ERRORS_MAX + 5):
        scene.connections.open(Connection(f"c{number:02}", late))
    scene.connections.open(Connection("z", late))
    remove = scene.connections.remove

    def throttled(connection_id: str) -> None:
        if connection_id != "z":
            raise Unavailable("throttled")
        remove(connection_id)

    scene.connections.remove = throttled  # type: ignore[method-assign]
    with pytest.raises(ExceptionGroup) as failed:
        scene.sweeper.run()

    assert len(failed.value.exceptions) == limits.SWEEP_ERRORS_MAX
    assert scene.counted["SweepStepsFailed"] == limits.SWEEP_ERRORS_MAX + 5
    assert scene.connections.get("z") is None


def test_each_minute_another_feed_is_the_first(scene: Scene) -> None:
    """Sweeps that are killed at their time limit have covered every feed after some minutes."""
    for feed in FEEDS:
        scene.post(op(), feed=feed)
    firsts = set()
    for _ in FEEDS:
        sweep(scene)
        firsts.add(scene.waker.woken[0][0])
        scene.now_ms += limits.SWEEP_EVERY_MS

    assert firsts == FEEDS


def test_nothing_to_do(scene: Scene) -> None:
    """No follower is woken; open and live connections need no repair."""
    scene.connect("open")
    scene.connections.open(Connection("live", NOW, State.LIVE, FEED))
    scene.projected(op())
    scene.push()
    sweep(scene)

    assert scene.waker.woken == [] and scene.waker.replays == []
    assert scene.inbox.list(FEED) == []


def test_a_number_taken_and_never_written_is_a_lag(scene: Scene) -> None:
    """A follower is woken for it, as it is unknown whether its writer is alive."""
    scene.log.take(FEED)
    sweep(scene)

    assert scene.waker.woken == [(FEED, name) for name in FOLLOWERS]


def test_who_is_on_a_socket_is_told(scene: Scene) -> None:
    """Connections with a subscription are counted for each feed, for longer than until the next
    sweep."""
    for name in ("a", "b", "c"):
        scene.say(scene.connect(name), action="subscribe")
    scene.connect("idle")
    scene.say("c", action="unsubscribe")
    sweep(scene)

    subscribed = [name for name in "abc" if scene.connection(name).feed]
    until_ms = scene.now_ms + limits.SWEPT_PRESENCE_MS
    assert scene.counters.totals(FEED, now_ms=until_ms - 1).clients == len(subscribed) > 1
    assert scene.counters.totals(FEED, now_ms=until_ms).clients == 0
    assert limits.SWEPT_PRESENCE_MS > 2 * 60_000
    assert scene.counters.totals("other", now_ms=scene.now_ms).clients == 0


def test_a_replay_that_died_is_rung_again(scene: Scene) -> None:
    """It is woken as soon as its lease has expired, not before."""
    connection = Connection("c", NOW, State.CATCHING_UP, FEED, progress="{}", runner="r")
    scene.connections.open(replace(connection, runner_expires_ms=NOW + 1))
    sweep(scene)
    assert scene.waker.replays == []

    scene.now_ms += 1
    sweep(scene)
    assert scene.waker.replays == ["c"]


def test_a_join_that_was_never_handed_over(scene: Scene) -> None:
    """The writer of the connection crashed before it notified the push follower."""
    scene.post(op("a"))
    scene.connections.open(Connection("c", NOW, State.JOINING, FEED, since=0))
    sweep(scene)
    assert (FEED, "push") in scene.waker.woken
    scene.push()

    assert scene.connection("c").state is State.LIVE
    assert scene.events("c") == ["a"]


def test_connections_end_after_two_hours(scene: Scene) -> None:
    """API Gateway cuts them without a word sometimes; then they are forgotten here too."""
    scene.connect("old")
    scene.now_ms += limits.CONNECTION_MS_MAX
    sweep(scene)
    assert scene.connections.get("old") is not None

    scene.now_ms += 1
    scene.connect("new")
    sweep(scene)
    assert scene.connections.get("old") is None
    assert scene.connections.get("new") is not None
    assert scene.sockets.closed == ["old"]


def test_a_connection_of_a_clock_that_was_ahead_is_closed(scene: Scene) -> None:
    """Its age is unknown; clocks may differ by a minute."""
    for name, ahead_ms in (("near", limits.CLOCK_SKEW_MS_MAX), ("far", 2 * 3_600_000)):
        scene.connections.open(Connection(name, scene.now_ms + ahead_ms))
    sweep(scene)
    assert scene.sockets.closed == ["far"]


def test_a_dead_holder_is_found_before_the_next_page_comes(scene: Scene) -> None:
    """No follower lags yet, but the next one would have to wait: the sweep starts to observe the
    lease.
    """
    scene.followers.take(FEED, "push", owner="dead", now_ms=scene.now_ms)
    scene.sweeper.run()
    assert scene.waker.woken == []

    scene.now_ms += limits.LEASE_LATE_MS
    scene.sweeper.run()
    assert scene.waker.woken == [(FEED, "push")]


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
    assert sweeps(scene, feed_names=left) == [*left.configured]
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
    scene.host.wake = lambda job, feed: woken.append(feed)  # type: ignore[method-assign]
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

"""Clocks that are set, forward or back."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from tests.fakes import MemoryOutbox
from tests.fakes.runtime import runtime_of
from tests.fakes.state import MemoryTags
from tests.unit.core.hooks.hook_scene import hooked
from tests.unit.core.ingest.test_ingest import forwarder, message
from tests.unit.core.scene import FEED, PAGE_MS, Scene, op
from tests.unit.core.sync.test_apply import A, B, corrector, outcome, part
from tidings.core import limits
from tidings.core.changeagent.list import Query
from tidings.core.changeagent.tag_index import Indexer
from tidings.core.consumers import consumer as consumers
from tidings.core.consumers.consumer import Consumer
from tidings.core.effects import has_passed, is_ahead
from tidings.core.model.cursors import START, Place
from tidings.core.replication.election import LeaderLease
from tidings.core.replication.relay import Relay
from tidings.core.tracing import REQUESTED, Tracer
from tidings.server.memory import MemoryKeyUsage

NOW, AHEAD_MS = 1_700_000_000_000, 2 * 3600 * 1000


def test_a_deadline_is_over_when_it_is_further_away_than_it_can_be() -> None:
    """To the millisecond, but for what clocks may differ by."""
    most = 30_000 + limits.CLOCK_SKEW_MS_MAX
    assert [is_ahead(NOW + ms, NOW, 30_000) for ms in (-1, 0, 1, most, most + 1)] == [
        False,
        False,
        True,
        True,
        False,
    ]
    assert [has_passed(NOW + ms, NOW, 5) for ms in (-6, -5, -4, 0, 1)] == [
        True,
        True,
        False,
        False,
        True,
    ]


def test_no_lease_outlives_a_clock_that_was_ahead() -> None:
    """P14.3: this covers leases of consumers, relays and leaders; each has its usual length."""
    ahead = NOW + AHEAD_MS
    worked = consumers.acquire(Consumer("main", "c", position=Place(1, 0, 0)), "a", ahead)
    relay = Relay("main", owner="a", lease_until_ms=ahead + limits.RELAY_LEASE_MS)
    lease = LeaderLease("c", 0, "a", until_ms=ahead + limits.LEADER_LEASE_MS)
    for held in (worked, relay, lease):
        assert held.is_held(ahead)
        assert not held.is_held(NOW)
    taken_over = consumers.acquire(worked, "b", NOW)
    assert (taken_over.owner, taken_over.fence) == ("b", worked.fence + 1)


def test_a_stream_of_a_process_that_died_does_not_count_for_hours() -> None:
    """This holds although its hold was written with a clock that was ahead."""
    holds, ahead = MemoryKeyUsage(), NOW + AHEAD_MS
    holds.hold("main", "k", "old", until_ms=ahead + limits.STREAM_HOLD_MS, now_ms=ahead)
    until_ms = NOW + limits.STREAM_HOLD_MS
    assert holds.hold("main", "k", "new", until_ms=until_ms, now_ms=NOW) == 1


HOUR_MS = 3_600_000
TRACE = f"00-{'a' * 32}-{'b' * 16}-01"


@dataclass
class SteppingScene(Scene):
    """A scene in which the wall clock is set ahead by an hour each time that it is read."""

    def clock(self) -> int:
        self.now_ms += HOUR_MS
        self.set_back_ms -= HOUR_MS
        return self.now_ms


@pytest.fixture
def scene() -> SteppingScene:
    return SteppingScene()


def test_the_tag_index_reads_to_the_end(scene: Scene) -> None:
    for number in range(limits.SUMMARY_PAGES):
        scene.post(op(str(number)))
    indexer = Indexer(MemoryTags(), scene.reader, scene.runtime.steady, PAGE_MS)
    assert indexer.run(FEED) == limits.SUMMARY_PAGES


def test_the_outbox_is_emptied(scene: Scene) -> None:
    outbox = MemoryOutbox()
    for number in range(3):
        outbox.leave(FEED, message(str(number), op()))
    assert forwarder(scene, outbox).run(FEED) == 3


def test_a_replay_reaches_the_frontier(scene: Scene) -> None:
    scene.post_each("a", "b")
    scene.connect("c")
    scene.say("c", action="resume", cursor=START.encode())
    scene.replayer.run("c")
    assert scene.events("c") == ["a", "b"]


def test_a_list_of_changes_is_complete(scene: Scene) -> None:
    scene.post_each("a", "b")
    listing = scene.lister().list(FEED, Query())
    assert len(listing.entries) == 2 and listing.at_end


def test_a_plan_is_applied(scene: Scene) -> None:
    scene.projected(op("a"), op("b"))
    assert corrector(scene).apply(FEED, 1, part(A, B)) == outcome(2)


def test_a_sweep_looks_after_all_connections(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SWEEP_PAGE", 1)
    for name in ("a", "b", "c"):
        scene.connect(name)
    scene.now_ms += limits.CONNECTION_MS_MAX
    scene.sweeper.run()
    assert sorted(scene.sockets.closed) == ["a", "b", "c"]


def test_a_webhook_sends_what_is_due() -> None:
    """The time of the attempt is of the wall clock; it signs the message."""
    hook = hooked("a", "b")
    times = iter(range(hook.scene.now_ms, 2**62, HOUR_MS))
    began_ms = hook.scene.now_ms
    runtime = runtime_of(lambda: next(times), steady=lambda: began_ms)
    hook.delivery = replace(hook.delivery, runtime=runtime)
    hook.run()
    assert hook.endpoint.told == ["0", "1"]


def test_requests_are_traced_after_a_clock_that_was_ahead() -> None:
    now = {"wall": 10**12, "steady": 0}
    tracer = Tracer(
        REQUESTED,
        runtime_of(
            lambda: now["wall"], steady=lambda: now["steady"] + 10**9, new_id=lambda: "d" * 32
        ),
    )
    assert tracer.choose(TRACE)
    now["wall"] -= 2 * HOUR_MS
    now["steady"] += 1000 // limits.TRACES_PER_S
    assert tracer.choose(TRACE)

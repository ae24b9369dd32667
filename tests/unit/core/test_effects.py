"""The effects that remain of a clock that was ahead and was corrected."""

from __future__ import annotations

from tidings.core import limits
from tidings.core.consumers import consumer as consumers
from tidings.core.consumers.consumer import Consumer
from tidings.core.effects import has_passed, is_ahead
from tidings.core.model.cursors import Place
from tidings.core.replication.election import LeaderLease
from tidings.core.replication.relay import Relay
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

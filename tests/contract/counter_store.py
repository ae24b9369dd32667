"""The contract of stores of counters: `Counters`."""

from __future__ import annotations

from tests.contract.stores import Stores
from tidings.core.counters import Totals

NOW = 4_102_444_700_000  # in 2100: an engine deletes what has expired while a test looks


class TestCounters:
    def test_a_new_feed_has_counted_nothing(self, stores: Stores, feed: str) -> None:
        """All zeros, and no feed sees another one's counts."""
        stores.counters.refuse(f"{feed}-other")
        assert stores.counters.totals(feed, now_ms=NOW) == Totals()

    def test_counts_add_up(self, stores: Stores, feed: str) -> None:
        """By every writer: refused requests, streams opened, events sent."""
        for _ in range(3):
            stores.counters.refuse(feed)
        stores.counters.serve(feed, connections=1, sent=0)
        stores.counters.serve(feed, connections=0, sent=1000)
        stores.counters.serve(feed, connections=2, sent=5)
        found = stores.counters.totals(feed, now_ms=NOW)
        assert found == Totals(refused=3, connections=3, sent=1005)

    def test_clients_are_those_of_all_places(self, stores: Stores, feed: str) -> None:
        """Each place says its own number again, and it replaces the one before."""
        stores.counters.attend(feed, "a", 2, until_ms=NOW + 1000)
        stores.counters.attend(feed, "b", 5, until_ms=NOW + 1000)
        stores.counters.attend(feed, "a", 1, until_ms=NOW + 1000)
        stores.counters.attend(f"{feed}-other", "a", 9, until_ms=NOW + 1000)
        assert stores.counters.totals(feed, now_ms=NOW).clients == 6

    def test_a_place_that_falls_silent_is_forgotten(self, stores: Stores, feed: str) -> None:
        """At its time, to the millisecond, although DynamoDB deletes it later."""
        stores.counters.attend(feed, "killed", 7, until_ms=NOW + 1000)
        assert stores.counters.totals(feed, now_ms=NOW + 999).clients == 7
        assert stores.counters.totals(feed, now_ms=NOW + 1000).clients == 0

    def test_a_clock_that_was_ahead_keeps_no_place(self, stores: Stores, feed: str) -> None:
        """No place is recorded for longer than two minutes from now."""
        stores.counters.attend(feed, "killed", 7, until_ms=NOW + 2 * 3_600_000)
        assert stores.counters.totals(feed, now_ms=NOW).clients == 0

    def test_a_place_that_empties_leaves_nothing(self, stores: Stores, feed: str) -> None:
        """A repetition does no harm, nor does a place that never had a client."""
        stores.counters.attend(feed, "a", 1, until_ms=NOW + 1000)
        for _ in range(2):
            stores.counters.attend(feed, "a", 0, until_ms=NOW + 1000)
        assert stores.counters.totals(feed, now_ms=NOW) == Totals()

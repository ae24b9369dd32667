"""The contracts of followers, of feeds that are due, and of counters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.contract.stores import Stores
from tidings.core import limits
from tidings.core.changeagent.documents import OperatorDocument
from tidings.core.consumers.consumer import Change, Consumer, Note
from tidings.core.counters import Totals
from tidings.core.errors import LeaseLost
from tidings.core.followers.leases import Lease, Observation
from tidings.core.log.due import NEXT_SWEEP, Due
from tidings.core.model.filters import Filter
from tidings.core.settings.profiles import Profile

NOW = 4_102_444_700_123  # in 2100: an engine deletes what has expired while a test looks


def take(stores: Stores, feed: str, owner: str = "a", over: Lease | None = None) -> Lease:
    seen = Observation(over.fence, over.beat) if over else None
    lease = stores.followers.take(feed, "state", owner=owner, now_ms=NOW, over=seen)
    assert lease.owner == owner
    return lease


class TestFollowers:
    def test_a_new_follower_starts_before_the_first_page(self, stores: Stores, feed: str) -> None:
        """Its first lease has fence 1, no marks and checkpoint 0."""
        until = NOW + limits.LEASE_MS
        assert take(stores, feed) == Lease(feed, "state", "a", 1, 0, 0, until, beat=1)
        assert stores.followers.checkpoints(feed) == {"state": 0}

    def test_a_live_lease_is_exclusive(self, stores: Stores, feed: str) -> None:
        """No other owner gets it, at any clock time; other followers and feeds are free."""
        held, late = take(stores, feed), NOW + 10 * limits.LEASE_MS
        assert stores.followers.take(feed, "state", owner="b", now_ms=late) == held
        assert stores.followers.take(feed, "push", owner="b", now_ms=NOW).owner == "b"
        assert stores.followers.take(f"{feed}-other", "state", owner="b", now_ms=NOW).owner == "b"

    def test_a_repeated_take_of_one_owner_is_one_take(self, stores: Stores, feed: str) -> None:
        """An owner that lost the answer gets its lease, not a new fence."""
        assert take(stores, feed) == take(stores, feed)

    def test_who_has_seen_it_still_takes_it_over(self, stores: Stores, feed: str) -> None:
        """The next holder continues at the checkpoint, with a higher fence."""
        held = stores.followers.save(take(stores, feed), 7, now_ms=NOW)
        taken = take(stores, feed, "b", over=held)
        assert (taken.fence, taken.checkpoint, taken.owner) == (2, 7, "b")
        assert taken.beat > held.beat

    def test_a_renewed_lease_is_not_taken_over(self, stores: Stores, feed: str) -> None:
        """Nor one that another has taken since: both are not what was seen."""
        first = take(stores, feed)
        held = stores.followers.save(first, 0, now_ms=NOW)
        seen = Observation(first.fence, first.beat)
        found = stores.followers.take(feed, "state", owner="b", now_ms=NOW, over=seen)
        assert found == held
        other = take(stores, feed, "b", over=held)
        seen = Observation(held.fence, held.beat)
        assert stores.followers.take(feed, "state", owner="c", now_ms=NOW, over=seen) == other

    def test_who_looks_on_says_so(self, stores: Stores, feed: str) -> None:
        """With a mark: the next one gets the previous look; a mark alone changes nothing."""
        held = take(stores, feed)
        assert stores.followers.mark(feed, "state", look="1.1.7") == ""
        assert stores.followers.mark(feed, "state") == "1.1.7"
        assert stores.followers.mark(feed, "state", look="1.1.8") == "1.1.7"
        assert stores.followers.mark(feed, "state", look="1.1.8") == "1.1.8"
        found = stores.followers.take(feed, "state", owner="b", now_ms=NOW)
        assert (found.owner, found.look) == (held.owner, "1.1.8")
        assert stores.followers.save(held, 0, now_ms=NOW).marks == held.marks + 4

    def test_save_moves_the_checkpoint_and_renews(self, stores: Stores, feed: str) -> None:
        """Every process sees the checkpoint; the lease lasts from now on."""
        saved = stores.followers.save(take(stores, feed), 5, now_ms=NOW + 1000)
        assert (saved.checkpoint, saved.expires_ms) == (5, NOW + 1000 + limits.LEASE_MS)
        assert stores.followers.checkpoints(feed) == {"state": 5}

    def test_save_by_an_old_fence_writes_nothing(self, stores: Stores, feed: str) -> None:
        """A holder that was overtaken learns it and leaves the checkpoint alone."""
        old = take(stores, feed)
        new = take(stores, feed, "b", over=old)
        stores.followers.save(new, 3, now_ms=NOW)
        with pytest.raises(LeaseLost):
            stores.followers.save(old, 9, now_ms=NOW)
        assert stores.followers.checkpoints(feed) == {"state": 3}

    def test_save_after_letting_go_writes_nothing(self, stores: Stores, feed: str) -> None:
        """A released lease is lost, even before another owner takes it."""
        lease = take(stores, feed)
        assert stores.followers.release(lease)
        with pytest.raises(LeaseLost):
            stores.followers.save(lease, 9, now_ms=NOW)
        assert stores.followers.checkpoints(feed) == {"state": 0}

    def test_release_stores_the_checkpoint_and_frees(self, stores: Stores, feed: str) -> None:
        """The next owner takes it at once and continues there."""
        assert stores.followers.release(replace(take(stores, feed), checkpoint=4))
        assert take(stores, feed, "b").checkpoint == 4

    def test_a_mark_keeps_the_holder(self, stores: Stores, feed: str) -> None:
        """Release refuses after a mark and writes nothing; a save shows the mark."""
        lease = take(stores, feed)
        assert stores.followers.mark(feed, "state") is not None
        assert not stores.followers.release(replace(lease, checkpoint=4))
        assert stores.followers.checkpoints(feed) == {"state": 0}
        saved = stores.followers.save(lease, 4, now_ms=NOW)
        assert saved.marks == lease.marks + 1
        assert stores.followers.release(saved)

    def test_force_lets_go_in_spite_of_a_mark(self, stores: Stores, feed: str) -> None:
        """And stores the checkpoint too."""
        lease = take(stores, feed)
        assert stores.followers.mark(feed, "state") is not None
        assert stores.followers.release(replace(lease, checkpoint=4), force=True)
        assert take(stores, feed, "b").checkpoint == 4

    def test_marks_of_former_holders_do_not_count(self, stores: Stores, feed: str) -> None:
        """A new holder has seen what was marked before it came."""
        old = take(stores, feed)
        assert stores.followers.mark(feed, "state") is not None
        assert stores.followers.release(take(stores, feed, "b", over=old))

    def test_a_free_lease_takes_no_mark(self, stores: Stores, feed: str) -> None:
        """Never taken or released: a waker has to take the lease itself."""
        assert stores.followers.mark(feed, "state") is None
        assert stores.followers.checkpoints(feed) == {}
        assert stores.followers.release(take(stores, feed))
        assert stores.followers.mark(feed, "state", look="1.1.7") is None

    @pytest.mark.parametrize("force", [False, True])
    def test_release_by_an_old_fence_is_harmless(
        self, stores: Stores, feed: str, force: bool
    ) -> None:
        """It counts as released; the new holder keeps lease and checkpoint."""
        old = take(stores, feed)
        new = take(stores, feed, "b", over=old)
        assert stores.followers.release(replace(old, checkpoint=9), force=force)
        assert stores.followers.save(new, 1, now_ms=NOW).fence == new.fence

    @pytest.mark.parametrize("force", [False, True])
    def test_operations_stand_with_the_checkpoint(
        self, stores: Stores, feed: str, force: bool
    ) -> None:
        """Saved and released together; the next holder continues to count there."""
        lease = replace(take(stores, feed), checkpoint=2, operations=30)
        saved = stores.followers.save(lease, 3, now_ms=NOW)
        assert (saved.checkpoint, saved.operations) == (3, 30)
        assert stores.followers.release(replace(saved, checkpoint=4, operations=45), force=force)
        taken = take(stores, feed, "b")
        assert (taken.checkpoint, taken.operations) == (4, 45)

    @pytest.mark.parametrize("force", [False, True])
    def test_a_note_stands_with_the_checkpoint(
        self, stores: Stores, feed: str, force: bool
    ) -> None:
        """Any bytes, saved and released together with it, until others or none are left."""
        note = bytes(range(256)) * 2
        assert take(stores, feed).note == b""
        lease = replace(take(stores, feed), checkpoint=2, note=note)
        saved = stores.followers.save(lease, 3, now_ms=NOW)
        assert saved.note == note
        assert stores.followers.release(replace(saved, note=note[1:]), force=force)
        taken = take(stores, feed, "b")
        assert (taken.checkpoint, taken.note) == (3, note[1:])
        assert [each.note for each in stores.followers.leases(feed)] == [note[1:]]
        assert stores.followers.save(replace(taken, note=b""), 3, now_ms=NOW).note == b""

    def test_standings_tell_who_is_at_work(self, stores: Stores, feed: str) -> None:
        """The lease of each follower, by name; a released one has no owner."""
        assert list(stores.followers.leases(feed)) == []
        working = stores.followers.take(feed, "push", owner="a", now_ms=NOW)
        stores.followers.release(replace(take(stores, feed), checkpoint=4, operations=9))
        push, state = stores.followers.leases(feed)
        assert push == working and push.is_held(NOW) and not push.is_held(NOW + limits.LEASE_MS)
        assert (state.name, state.checkpoint, state.operations) == ("state", 4, 9)
        assert not state.is_held(NOW)

    def test_checkpoints_of_all_followers(self, stores: Stores, feed: str) -> None:
        """By name; a new feed has none."""
        assert stores.followers.checkpoints(feed) == {}
        for name, page in (("push", 3), ("state", 5)):
            lease = stores.followers.take(feed, name, owner="a", now_ms=NOW)
            assert lease is not None
            stores.followers.save(lease, page, now_ms=NOW)
        assert stores.followers.checkpoints(feed) == {"push": 3, "state": 5}


SWEPT_MS, LATER = 1_763_000_000_000, 1_763_000_060_000


def due(stores: Stores, feed: str, now_ms: int = SWEPT_MS) -> Due | None:
    """Return the visit of *feed* that is due at *now_ms*."""
    return next((each for each in stores.due.due(now_ms) if each.feed == feed), None)


def settle(stores: Stores, feed: str, next_ms: int | None) -> None:
    visit = due(stores, feed)
    assert visit is not None
    assert stores.due.settle(visit, next_ms, head=stores.log.head(feed))


def register(stores: Stores, feed: str) -> None:
    consumer = Consumer(feed, "billing", Filter())
    assert stores.consumers.write(feed, "billing", 0, Change(consumer))


def pause(stores: Stores, feed: str) -> None:
    consumer = stores.consumers.consumer(feed, "billing")
    assert consumer is not None
    paused = Change(replace(consumer, paused=True), Note(SWEPT_MS, "ops", "paused", "test"))
    assert stores.consumers.write(feed, "billing", consumer.version, paused)


CHANGES: dict[str, Callable[[Stores, str], object]] = {
    "number of the log": lambda stores, feed: stores.log.take(feed),
    "jump of the log": lambda stores, feed: stores.numbers.raise_head(feed, 1_000),
    "profile": lambda stores, feed: stores.profiles.save(feed, Profile(max_age_s=3_600)),
    "document": lambda stores, feed: stores.documents.write(
        feed, "configuration", OperatorDocument("{}")
    ),
    "new consumer": register,
    "change of a consumer": pause,
}


class TestDueFeeds:
    def test_a_new_feed_is_not_due(self, stores: Stores, feed: str) -> None:
        assert due(stores, feed) is None

    def test_a_marked_feed_is_due_until_it_is_settled(self, stores: Stores, feed: str) -> None:
        """Other feeds are not, and a mark may be repeated."""
        for _ in range(2):
            stores.due.mark(feed)
        assert due(stores, feed) is not None
        assert due(stores, f"{feed}-other") is None
        settle(stores, feed, None)
        assert due(stores, feed, LATER) is None

    def test_a_feed_becomes_due_at_its_time(self, stores: Stores, feed: str) -> None:
        stores.due.mark(feed)
        settle(stores, feed, LATER)
        assert due(stores, feed, LATER - 1) is None
        visit = due(stores, feed, LATER)
        assert visit is not None and visit.at_ms == LATER

    def test_a_mark_counts_before_the_time(self, stores: Stores, feed: str) -> None:
        stores.due.mark(feed)
        settle(stores, feed, LATER)
        stores.due.mark(feed)
        visit = due(stores, feed)
        assert visit is not None and visit.at_ms == NEXT_SWEEP

    @pytest.mark.parametrize("next_ms", [None, LATER])
    def test_a_feed_that_was_marked_during_the_visit_stays_due(
        self, stores: Stores, feed: str, next_ms: int | None
    ) -> None:
        """Whether it was due because of a mark or because of its time."""
        for _ in range(2):
            stores.due.mark(feed)
            visit = due(stores, feed)
            assert visit is not None
            stores.due.mark(feed)
            assert not stores.due.settle(visit, next_ms, head=0)
            assert due(stores, feed) is not None
            settle(stores, feed, SWEPT_MS)

    @pytest.mark.parametrize("what", CHANGES)
    def test_a_change_makes_the_feed_due(self, stores: Stores, feed: str, what: str) -> None:
        """Also during a visit, whatever the visit has read before."""
        if what == "change of a consumer":
            register(stores, feed)
        stores.due.mark(feed)
        visit, head = due(stores, feed), stores.log.head(feed)
        assert visit is not None
        settle(stores, feed, None)

        CHANGES[what](stores, feed)

        assert not stores.due.settle(visit, None, head=head)
        assert due(stores, feed) is not None


COUNTED_MS = 4_102_444_700_000  # in 2100: an engine deletes what has expired while a test looks


class TestCounters:
    def test_a_new_feed_has_counted_nothing(self, stores: Stores, feed: str) -> None:
        """All zeros, and no feed sees another one's counts."""
        stores.counters.refuse(f"{feed}-other")
        assert stores.counters.totals(feed, now_ms=COUNTED_MS) == Totals()

    def test_counts_add_up(self, stores: Stores, feed: str) -> None:
        """By every writer: refused requests, streams opened, events sent."""
        for _ in range(3):
            stores.counters.refuse(feed)
        stores.counters.serve(feed, connections=1, sent=0)
        stores.counters.serve(feed, connections=0, sent=1000)
        stores.counters.serve(feed, connections=2, sent=5)
        found = stores.counters.totals(feed, now_ms=COUNTED_MS)
        assert found == Totals(refused=3, connections=3, sent=1005)

    def test_clients_are_those_of_all_places(self, stores: Stores, feed: str) -> None:
        """Each place says its own number again, and it replaces the one before."""
        stores.counters.attend(feed, "a", 2, until_ms=COUNTED_MS + 1000)
        stores.counters.attend(feed, "b", 5, until_ms=COUNTED_MS + 1000)
        stores.counters.attend(feed, "a", 1, until_ms=COUNTED_MS + 1000)
        stores.counters.attend(f"{feed}-other", "a", 9, until_ms=COUNTED_MS + 1000)
        assert stores.counters.totals(feed, now_ms=COUNTED_MS).clients == 6

    def test_a_place_that_falls_silent_is_forgotten(self, stores: Stores, feed: str) -> None:
        """At its time, to the millisecond, although DynamoDB deletes it later."""
        stores.counters.attend(feed, "killed", 7, until_ms=COUNTED_MS + 1000)
        assert stores.counters.totals(feed, now_ms=COUNTED_MS + 999).clients == 7
        assert stores.counters.totals(feed, now_ms=COUNTED_MS + 1000).clients == 0

    def test_a_clock_that_was_ahead_keeps_no_place(self, stores: Stores, feed: str) -> None:
        """No place is recorded for longer than two minutes from now."""
        stores.counters.attend(feed, "killed", 7, until_ms=COUNTED_MS + 2 * 3_600_000)
        assert stores.counters.totals(feed, now_ms=COUNTED_MS).clients == 0

    def test_a_place_that_empties_leaves_nothing(self, stores: Stores, feed: str) -> None:
        """A repetition does no harm, nor does a place that never had a client."""
        stores.counters.attend(feed, "a", 1, until_ms=COUNTED_MS + 1000)
        for _ in range(2):
            stores.counters.attend(feed, "a", 0, until_ms=COUNTED_MS + 1000)
        assert stores.counters.totals(feed, now_ms=COUNTED_MS) == Totals()


class TestKeyUsage:
    def test_what_was_used_adds_up(self, stores: Stores, feed: str) -> None:
        """For each key and each window."""
        window = 410_244_480
        assert stores.key_usage.add(feed, "a", window, 3) == 3
        assert stores.key_usage.add(feed, "a", window, 4) == 7
        assert stores.key_usage.add(feed, "b", window, 1) == 1
        assert stores.key_usage.add(feed, "a", window + 1, 1) == 1
        assert stores.key_usage.add(f"{feed}-other", "a", window, 1) == 1

    def test_what_is_held_is_counted_until_its_time(self, stores: Stores, feed: str) -> None:
        """For each key; released or expired ones do not count."""
        held, now, later = stores.key_usage, 4_102_444_800_000, 4_102_444_900_000
        assert held.hold(feed, "a", "x", until_ms=now + 5, now_ms=now) == 1
        assert held.hold(feed, "a", "y", until_ms=later, now_ms=now) == 2
        assert held.hold(feed, "b", "z", until_ms=later, now_ms=now) == 1
        assert held.hold(f"{feed}-other", "a", "z", until_ms=later, now_ms=now) == 1
        held.release(feed, "a", "y", later)
        held.release(feed, "a", "none", later)
        assert held.hold(feed, "a", "z", until_ms=later, now_ms=now + 4) == 2
        assert held.hold(feed, "a", "v", until_ms=later, now_ms=now + 5) == 2

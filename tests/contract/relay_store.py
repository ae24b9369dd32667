"""What every store of relays keeps to, and every place where clusters agree."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.contract.stores import Stores, unset
from tidings.core import limits
from tidings.core.counters import LogCounter
from tidings.core.model.pages import Page, encode
from tidings.core.replication.election import LeaderLease, Member
from tidings.core.replication.relay import Copy, Counts, Relay, RelayStatus, Wanted
from tidings.core.replication.source import Role

AT = 4_102_444_800_000  # in 2100: pages expire


def page(number: int, *lines: str) -> Page:
    body = encode(lines) if lines else ""
    return Page(number, body, "relay", AT + number, AT + 10**9)


def full(feed: str) -> Relay:
    """Return a relay without a default value in any field."""
    return Relay(
        feed,
        id="0" * 31 + "1",
        wanted=Wanted.PAUSE,
        condition=RelayStatus.COPYING,
        owner="somebody",
        lease_until_ms=AT,
        checkpoint=7,
        seconds=AT // 1000,
        low_watermark=3,
        copy=Copy(9, 5, 2, empty=True, after="video/x"),
        via=("a", "b"),
        upstream="https://one.example/feeds/main",
        master="https://two.example/feeds/main",
        role=Role.FOLLOWER,
        term=4,
        failures=2,
        attempt_ms=AT + 1,
        error="it broke \u00e4",
        counts=Counts(1, 2, 3, 4),
        upstream_read_ms=AT + 2,
        master_read_ms=AT + 3,
        upstream_head=8,
        upstream_ended=True,
        page_at_ms=AT + 4,
        transitions=5,
        changed_ms=AT + 5,
        why="a test",
        compared_ms=AT + 6,
        compared_page=6,
        mended=7,
        counted=8,
        lost=((3, 9), (20, 30)),
    )


class TestRelays:
    def test_a_relay_comes_back(self, stores: Stores, feed: str) -> None:
        """Every field, with the next version; an empty one if it is missing."""
        wanted, other = full(feed), Relay(f"{feed}-other")
        assert unset(wanted) == ["version"]
        assert stores.relays.relay(feed) == Relay(feed)
        assert stores.relays.write(Relay(feed), wanted)
        assert stores.relays.write(other, other)
        assert stores.relays.relay(feed) == replace(wanted, version=1)
        assert stores.relays.relay(other.feed) == replace(other, version=1)

    def test_two_who_write_at_once_cannot_undo_each_other(self, stores: Stores, feed: str) -> None:
        """The second one finds another version, with or without a stored relay."""
        fresh = Relay(feed)
        assert stores.relays.write(fresh, full(feed))
        assert not stores.relays.write(fresh, replace(fresh, error="late"))
        standing = stores.relays.relay(feed)
        assert stores.relays.write(standing, replace(standing, error="first"))
        assert not stores.relays.write(standing, replace(standing, error="second"))
        assert stores.relays.relay(feed).error == "first"

    def test_D5_pages_are_written_with_the_checkpoint(self, stores: Stores, feed: str) -> None:
        """Pages, relay and head at once; operations are counted."""
        before = Relay(feed)
        after = replace(before, checkpoint=2, counts=Counts(pages=2, operations=3))
        pages = [page(1, '{"a":1}', '{"a":2}'), page(2, '{"a":3}')]
        assert stores.relays.append(before, after, pages)
        assert stores.relays.relay(feed) == replace(after, version=1)
        found = stores.log.read(feed, 0)
        assert [(each.number, each.text, each.at_ms) for each in found] == [
            (each.number, each.text, each.at_ms) for each in pages
        ]
        assert stores.log.head(feed) == 2
        assert stores.log.log_counter(feed) == LogCounter(2, 3)

    def test_D31_without_the_checkpoint_no_page_is_written(self, stores: Stores, feed: str) -> None:
        """An overtaken writer has written nothing."""
        before = Relay(feed)
        assert stores.relays.write(before, replace(before, error="an operator was here"))
        assert not stores.relays.append(before, replace(before, checkpoint=1), [page(1, "{}")])
        assert stores.log.read(feed, 0) == []
        assert stores.log.head(feed) == 0
        assert stores.relays.relay(feed).checkpoint == 0

    def test_D8_a_page_is_never_written_twice(self, stores: Stores, feed: str) -> None:
        """If one of many numbers is taken, nothing is written, and the checkpoint stays."""
        stores.log.put(feed, page(2, '{"of":"somebody else"}'))
        before = Relay(feed)
        after = replace(before, checkpoint=3)
        pages = [page(number, f'{{"n":{number}}}') for number in (1, 2, 3)]
        assert not stores.relays.append(before, after, pages)
        assert [each.text for each in stores.log.read(feed, 0)] == ['{"of":"somebody else"}']
        assert stores.relays.relay(feed) == before
        assert stores.log.head(feed) == 0

    def test_the_head_moves_without_a_page(self, stores: Stores, feed: str) -> None:
        """For example at the end of a copy."""
        before = Relay(feed)
        assert stores.relays.append(before, replace(before, checkpoint=70), [])
        assert stores.log.head(feed) == 70
        assert stores.log.read(feed, 0) == []

    def test_as_many_pages_as_a_relay_writes_fit(self, stores: Stores, feed: str) -> None:
        """In one transaction, some of them without anything left."""
        pages = [
            page(number, '{"n":1}', '{"n":2}').only([(1, '{"n":2}')] if number % 2 else [])
            for number in range(1, limits.BATCH_PAGES_MAX + 1)
        ]
        before = Relay(feed)
        assert stores.relays.append(before, replace(before, checkpoint=len(pages)), pages)
        found = stores.log.read(feed, 0)
        assert [list(each.entries()) for each in found] == [list(each.entries()) for each in pages]


class TestCoordinator:
    @pytest.fixture
    def cluster(self, feed: str) -> str:
        return f"cluster-of-{feed}"

    def test_a_lease_is_taken_by_one(self, stores: Stores, cluster: str) -> None:
        """The first one has the term and time; the other one has written nothing."""
        free = LeaderLease(cluster, 0)
        one = LeaderLease(cluster, 0, "https://one.example", 1, AT)
        other = LeaderLease(cluster, 0, "https://other.example", 1, AT + 1)
        assert list(stores.clusters.leases(cluster)) == []
        assert stores.clusters.take(free, one)
        assert not stores.clusters.take(free, other)
        assert list(stores.clusters.leases(cluster)) == [one]

    def test_a_lease_that_was_renewed_is_not_taken(self, stores: Stores, cluster: str) -> None:
        """The other member saw an older time, at which it had expired."""
        one = LeaderLease(cluster, 0, "https://one.example", 1, AT)
        renewed = replace(one, until_ms=AT + 1)
        other = LeaderLease(cluster, 0, "https://other.example", 2, AT + 5)
        assert stores.clusters.take(LeaderLease(cluster, 0), one)
        assert stores.clusters.take(one, renewed)
        assert not stores.clusters.take(one, other)
        assert stores.clusters.take(renewed, other)
        assert list(stores.clusters.leases(cluster)) == [other]

    def test_a_lease_is_given_up(self, stores: Stores, cluster: str) -> None:
        """Its term stays, so that the next one's is higher."""
        one = LeaderLease(cluster, 0, "https://one.example", 3, AT)
        assert stores.clusters.take(LeaderLease(cluster, 0), one)
        assert stores.clusters.take(one, replace(one, address="", until_ms=0))
        assert list(stores.clusters.leases(cluster)) == [LeaderLease(cluster, 0, "", 3, 0)]

    def test_leases_are_listed_by_number(self, stores: Stores, cluster: str) -> None:
        """The leases of this cluster alone."""
        leases = [
            LeaderLease(cluster, number, "https://one.example", 1, AT) for number in (1, 0, 7)
        ]
        for lease in [*leases, replace(leases[0], cluster=f"{cluster}-other")]:
            assert stores.clusters.take(LeaderLease(lease.cluster, lease.number), lease)
        assert [lease.number for lease in stores.clusters.leases(cluster)] == [0, 1, 7]

    def test_members_are_listed_by_address(self, stores: Stores, cluster: str) -> None:
        """With their last known state, those of this cluster alone."""
        one = Member(
            cluster=cluster,
            address="https://one.example",
            feed="main",
            role=Role.LEADER,
            checkpoint=7,
            heard_ms=AT,
        )
        other = Member(
            cluster=cluster,
            address="https://another.example",
            feed="m",
            role=Role.FOLLOWER,
            checkpoint=0,
            heard_ms=AT,
        )
        stranger = replace(other, cluster=f"{cluster}-other")
        for member in (one, other, stranger, replace(one, checkpoint=8, heard_ms=AT + 1)):
            stores.clusters.announce(member)
        found = list(stores.clusters.members(cluster))
        assert found == [other, replace(one, checkpoint=8, heard_ms=AT + 1)]

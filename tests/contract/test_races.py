"""The winners of concurrent writes. Not on moto, which loses updates of threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.contract.stores import DYNAMODB_LOCAL, Stores, on
from tests.contract.test_connections import connection
from tests.contract.test_followers import NOW, take
from tests.contract.test_log import CLAIM
from tests.contract.test_log import NOW as CLAIMED
from tidings.core.followers.leases import Observation

if TYPE_CHECKING:
    from tidings.core.followers.leases import Lease
    from tidings.core.log.append import Claim


@on("memory", "sqlite", DYNAMODB_LOCAL)
class TestRaces:
    def test_nobody_shares_a_number(self, stores: Stores, feed: str) -> None:
        """Eight writers at once get eighty different numbers."""
        with ThreadPoolExecutor(8) as pool:
            taken = list(pool.map(lambda _: stores.log.take(feed), range(80)))
        assert sorted(taken) == list(range(1, 81))

    def test_of_many_takers_one_gets_the_lease(self, stores: Stores, feed: str) -> None:
        """Eight takers, one lease."""

        def attempt(owner: int) -> Lease:
            return stores.followers.take(feed, "state", owner=str(owner), now_ms=NOW)

        with ThreadPoolExecutor(8) as pool:
            leases = list(pool.map(attempt, range(8)))
        assert [lease.owner for lease in leases] == [leases[0].owner] * 8
        assert {lease.fence for lease in leases} == {1}

    def test_of_many_who_saw_it_still_one_takes_it_over(self, stores: Stores, feed: str) -> None:
        """The others find it in the hands of that one."""
        seen = Observation(take(stores, feed).fence, 1)

        def attempt(owner: int) -> Lease:
            return stores.followers.take(feed, "state", owner=str(owner), now_ms=NOW, over=seen)

        with ThreadPoolExecutor(8) as pool:
            leases = list(pool.map(attempt, range(8)))
        assert {lease.fence for lease in leases} == {2}

    def test_a_mark_and_a_release_never_miss_each_other(self, stores: Stores, feed: str) -> None:
        """In either order the mark is refused or the release is, never neither."""
        for turn in range(20):
            lease = take(stores, feed, f"owner-{turn}")
            with ThreadPoolExecutor(2) as pool:
                marking = pool.submit(stores.followers.mark, feed, "state")
                releasing = pool.submit(stores.followers.release, lease)
            assert (marking.result() is not None) != releasing.result()
            stores.followers.release(lease, force=True)

    def test_of_many_claims_one_stands(self, stores: Stores, feed: str) -> None:
        """Eight requests with one key agree on one claim."""

        def attempt(page: int) -> Claim:
            return stores.claims.claim(feed, replace(CLAIM, page=page), now_ms=CLAIMED)

        with ThreadPoolExecutor(8) as pool:
            assert len(set(pool.map(attempt, range(1, 9)))) == 1

    def test_of_many_moves_one_counts(self, stores: Stores, feed: str) -> None:
        """Eight retries at once agree on one page."""
        stores.claims.claim(feed, CLAIM, now_ms=CLAIMED)
        with ThreadPoolExecutor(8) as pool:
            moves = pool.map(lambda page: stores.claims.move(feed, CLAIM, page), range(11, 19))
        assert len({claim.page for claim in moves}) == 1

    def test_of_many_updates_at_once_one_counts(self, stores: Stores, feed: str) -> None:
        """Eight runners try to update the connection, one succeeds."""
        old = connection(feed)
        stores.connections.open(old)

        def attempt(runner: int) -> bool:
            return stores.connections.update(old, replace(old, runner=f"r{runner}"))

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(attempt, range(8))) == 1

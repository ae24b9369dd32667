"""What every store of what is remembered of deletions keeps to: `TombstoneStore`."""

from __future__ import annotations

from tidings.core.state.tombstones import Remembered

from tests.contract.stores import Stores

ONE = Remembered(691_200_000, 608_400_000, 1_763_000_000_123)
TWO = Remembered(1_000_000_000_000, 691_200_000, 0)


class TombstoneStoreContract:
    def test_it_is_kept_whole(self, stores: Stores, feed: str) -> None:
        """Every field, under its feed alone; of a feed without one nothing is known."""
        assert stores.tombstones.remembered(feed) is None
        assert stores.tombstones.remember(feed, None, ONE)
        assert stores.tombstones.remembered(feed) == ONE
        assert stores.tombstones.remembered(f"{feed}-other") is None
        assert stores.tombstones.remember(feed, ONE, TWO)
        assert stores.tombstones.remembered(feed) == TWO

    def test_the_second_of_two_who_change_it_is_told(self, stores: Stores, feed: str) -> None:
        """Neither undoes the other unseen, not even with the first note of a feed."""
        assert stores.tombstones.remember(feed, None, ONE)
        assert not stores.tombstones.remember(feed, None, TWO)
        assert not stores.tombstones.remember(feed, TWO, TWO.then(5, 6))
        assert stores.tombstones.remembered(feed) == ONE

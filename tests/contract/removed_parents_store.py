"""The contract of stores of removed parents: `RemovedParentsStore`."""

from __future__ import annotations

from tests.contract.state_store import row
from tests.contract.stores import Stores
from tidings.core.state.removed_parents import RemovedBySlot, RemovedParents, encode

LEFT: RemovedBySlot = {0: ("user/ann",), 17: ("channel/ä€𝄞", "user/bob")}
EXPIRES = 4_102_444_800_000  # in 2100: an engine deletes what has expired while a test looks


def removed_parents(page: int, left: RemovedBySlot = LEFT) -> RemovedParents:
    body = encode(left)
    assert body is not None
    return RemovedParents(page, body)


class TestRemovedParents:
    def test_removed_parents_come_back_as_they_were(self, stores: Stores, feed: str) -> None:
        """Small ones as text, large ones deflated; and none is not the same as unknown."""
        many: RemovedBySlot = {slot: (f"user/{slot}",) for slot in range(1000)}
        written = [removed_parents(1), removed_parents(2, {}), removed_parents(4, many)]
        stores.removed_parents.write(feed, written)
        assert stores.removed_parents.read(feed, 1, 4) == written
        found = stores.removed_parents.read(feed, 1, 4)
        assert [each.by_slot for each in found] == [LEFT, {}, many]

    def test_only_the_pages_asked_for_are_read(self, stores: Stores, feed: str) -> None:
        """Both ends included, in the order of the pages whatever the digits of their numbers."""
        stores.removed_parents.write(feed, [removed_parents(page) for page in (100, 9, 10, 99)])
        assert [each.page for each in stores.removed_parents.read(feed, 10, 99)] == [10, 99]
        assert [each.page for each in stores.removed_parents.read(feed, 0, 2**40 - 1)] == [
            9,
            10,
            99,
            100,
        ]
        assert stores.removed_parents.read(feed, 11, 98) == []

    def test_many_are_all_written(self, stores: Stores, feed: str) -> None:
        """More than a batch, and more than one answer holds."""
        large: RemovedBySlot = {slot: (f"{slot:0640}",) for slot in range(60)}
        written = [
            RemovedParents(page, str(removed_parents(page, large).by_slot)) for page in range(1, 61)
        ]
        stores.removed_parents.write(feed, written)
        assert stores.removed_parents.read(feed, 1, 60) == written

    def test_the_first_ones_of_a_page_stand(self, stores: Stores, feed: str) -> None:
        """A late write changes nothing, but its other pages are written."""
        stores.removed_parents.write(feed, [removed_parents(1)])
        stores.removed_parents.write(feed, [removed_parents(1, {}), removed_parents(2, {})])
        stores.removed_parents.write(feed, [RemovedParents(2, removed_parents(2).body, EXPIRES)])
        assert stores.removed_parents.read(feed, 1, 2) == [
            removed_parents(1),
            removed_parents(2, {}),
        ]

    def test_they_stay_apart_from_rows_and_other_feeds(self, stores: Stores, feed: str) -> None:
        """A copy of the state never meets them, nor does another feed."""
        stores.removed_parents.write(feed, [removed_parents(1)])
        stores.removed_parents.write(feed, [])
        stores.state.write(feed, [row("video/x")])
        assert stores.state.read(feed, row("video/x").bucket) == [row("video/x")]
        assert stores.removed_parents.read(f"{feed}-other", 1, 1) == []

"""What every store of durable streams keeps to: `StreamStore`."""

from __future__ import annotations

from dataclasses import replace

from tests.contract.stores import NOT_ON_A_STAGE, Stores, unset
from tidings.core.durable_streams.stream import Extent, Producer, Stream
from tidings.core.model.cursors import Place

BEGINS = Place(3, 0x7FFFFF, 1_700_000_000)
PLAIN = Stream("log", "text/plain", BEGINS, BEGINS)
FULL = Stream(
    "a/ä€𝄞 b",
    "application/json; charset=utf-8",
    BEGINS,
    Place(2**40 - 1, 999, 1_700_000_009),
    closed=True,
    seq="09",
    producers=(Producer("one", 0, 2**53 - 1), Producer("ü", 7, 0)),
)
# Each but the first begins where the one before ends.
PAGES = [Place(page, slot, 1_700_000_000 + page) for page, slot in ((4, 2), (9, 0), (10, 5))]
EXTENTS = [Extent(before, last) for before, last in zip([BEGINS, *PAGES], PAGES, strict=False)]


@NOT_ON_A_STAGE
class TestStreams:
    def test_a_stream_comes_back_as_it_was(self, stores: Stores, feed: str) -> None:
        """All of its fields; missing before, and under that name in another feed."""
        assert unset(FULL) == []
        assert stores.streams.stream(feed, FULL.name) is None
        for stream in (PLAIN, FULL):
            stores.streams.write(feed, stream)

        assert stores.streams.stream(feed, PLAIN.name) == PLAIN
        assert stores.streams.stream(feed, FULL.name) == FULL
        assert stores.streams.stream(f"{feed}-other", FULL.name) is None

    def test_written_again_it_is_replaced(self, stores: Stores, feed: str) -> None:
        """Whatever was there, and its pages stay."""
        stores.streams.write(feed, PLAIN, EXTENTS[0])
        changed = replace(PLAIN, tail=EXTENTS[0].last, closed=True)
        stores.streams.write(feed, changed)

        assert stores.streams.stream(feed, PLAIN.name) == changed
        assert stores.streams.extents(feed, PLAIN.name, BEGINS, 9) == EXTENTS[:1]

    def test_pages_with_messages_behind_a_place_are_told(self, stores: Stores, feed: str) -> None:
        """In order, including the one around the place, as many as requested."""
        for extent in EXTENTS:
            stores.streams.write(feed, replace(PLAIN, tail=extent.last), extent)

        def told(page: int, slot: int, limit: int = 9) -> list[Extent]:
            return list(stores.streams.extents(feed, PLAIN.name, Place(page, slot, 0), limit))

        assert told(3, 0x7FFFFF) == told(0, 0) == told(4, 1) == EXTENTS
        assert told(4, 2) == told(8, 5) == EXTENTS[1:]
        assert told(0, 0, limit=2) == EXTENTS[:2]
        assert told(10, 5) == told(11, 0) == []

    def test_a_stream_that_is_removed_leaves_nothing(self, stores: Stores, feed: str) -> None:
        """Only that stream is removed; a repetition is fine."""
        other = replace(PLAIN, name="other")
        for stream in (PLAIN, other):
            stores.streams.write(feed, stream, EXTENTS[0])
        for _ in range(2):
            stores.streams.remove(feed, PLAIN.name)

        assert stores.streams.stream(feed, PLAIN.name) is None
        assert stores.streams.extents(feed, PLAIN.name, BEGINS, 9) == []
        assert stores.streams.extents(feed, other.name, BEGINS, 9) == EXTENTS[:1]

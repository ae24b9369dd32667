"""What every archive keeps to: `ArchiveStore`."""

from __future__ import annotations

from typing import Any

import pytest
from tidings.core.archive.segments import Span
from tidings.core.archive.stores import ArchiveStore

PARTS = [Span(last=9, first=1), Span(last=10, first=10), Span(last=1200, first=11)]


class ArchiveStoreContract:
    @pytest.fixture
    def archive(self) -> ArchiveStore:
        raise NotImplementedError

    def test_a_part_comes_back(self, archive: ArchiveStore, feed: str) -> None:
        """By its span and its feed; what is no part there is None."""
        archive.put(feed, PARTS[0], b"\x1f\x8b\x00part")

        assert archive.get(feed, PARTS[0]) == b"\x1f\x8b\x00part"
        assert archive.get(feed, PARTS[1]) is None
        assert archive.get(f"{feed}-other", PARTS[0]) is None

    def test_parts_are_listed_from_a_page_on(self, archive: ArchiveStore, feed: str) -> None:
        """Those that end behind it, in the order of their last pages, as many as are asked for."""
        for span in reversed(PARTS):
            archive.put(feed, span, span.name.encode())
        archive.put(f"{feed}.x", Span(last=5, first=5), b"of another feed")

        assert list(archive.list(feed, 0, 10)) == PARTS
        assert list(archive.list(feed, 8, 10)) == PARTS
        assert list(archive.list(feed, 9, 10)) == PARTS[1:]
        assert list(archive.list(feed, 10, 10)) == PARTS[2:]
        assert list(archive.list(feed, 1200, 10)) == []
        assert list(archive.list(feed, 0, 2)) == PARTS[:2]
        assert list(archive.list(f"{feed}-none", 0, 2)) == []

    def test_parts_that_overlap_are_all_listed(self, archive: ArchiveStore, feed: str) -> None:
        """Also where two of them end with the same page."""
        spans = [Span(last=9, first=1), Span(last=9, first=4), Span(last=12, first=1)]
        for span in spans:
            archive.put(feed, span, b"x")

        assert list(archive.list(feed, 0, 10)) == spans
        assert list(archive.list(feed, 9, 10)) == spans[2:]

    def test_a_part_is_replaced_whole(self, archive: ArchiveStore, feed: str) -> None:
        """A shorter body leaves nothing of the longer one."""
        archive.put(feed, PARTS[0], b"longer")
        archive.put(feed, PARTS[0], b"new")

        assert archive.get(feed, PARTS[0]) == b"new"
        assert list(archive.list(feed, 0, 10)) == PARTS[:1]

    def test_the_size_of_all_parts(self, archive: ArchiveStore, feed: str) -> None:
        """Of the one feed, as they are now; of none nothing."""
        sizes: Any = archive  # what operators ask for is no part of the port
        assert sizes.size(feed) == 0
        for span, body in zip(PARTS, (b"1", b"22", b"333"), strict=True):
            archive.put(feed, span, body)
        archive.put(f"{feed}-other", PARTS[0], b"4444")

        assert sizes.size(feed) == 6

    def test_a_part_is_removed(self, archive: ArchiveStore, feed: str) -> None:
        """Twice is as good as once; others stay."""
        for span in PARTS:
            archive.put(feed, span, b"x")
        archive.remove(feed, PARTS[1])
        archive.remove(feed, PARTS[1])

        assert archive.get(feed, PARTS[1]) is None
        assert list(archive.list(feed, 0, 10)) == [PARTS[0], PARTS[2]]

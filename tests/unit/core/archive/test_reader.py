"""Reading the archive: overlapping parts, holes, and parts that change during a read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import MemoryArchive
from tests.unit.core.scene import FEED, line, page
from tidings.core import limits
from tidings.core.archive.reader import ArchiveReader, all_spans, covered_page, holes
from tidings.core.archive.segments import Span, encode
from tidings.core.errors import TooLarge


class Archive(MemoryArchive):
    """An archive with a reader; it counts the requests to the store."""

    def __init__(self, *spans: tuple[int, int]) -> None:
        super().__init__()
        self.counted: Counter[str] = Counter()
        self.reader = ArchiveReader(self, self._count)
        for first, last in spans:
            self.add(first, last)

    def _count(self, metric: str, value: int) -> None:
        self.counted[metric] += value

    def add(self, first: int, last: int) -> None:
        self.put(FEED, *encode([page(number, line("x")) for number in range(first, last + 1)]))

    def get(self, feed: str, span: Span) -> bytes | None:
        self.counted["get"] += 1
        return super().get(feed, span)

    def numbers(self, after: int, until: int) -> list[int]:
        """Return the numbers of all pages, read as a replay does."""
        numbers: list[int] = []
        while pages := self.reader.read(FEED, after, until):
            numbers += [page.number for page in pages]
            after = numbers[-1]
        return numbers

    def list(self, feed: str, after: int, limit: int) -> Sequence[Span]:
        self.counted["list"] += 1
        return super().list(feed, after, limit)


def test_pages_come_in_order_from_part_to_part() -> None:
    """A read returns the pages after one page, up to another one, until the first hole."""
    archive = Archive((1, 3), (4, 4), (5, 9), (11, 12))

    assert archive.numbers(0, 99) == list(range(1, 10))
    assert archive.numbers(2, 7) == [3, 4, 5, 6, 7]
    assert archive.numbers(7, 7) == []
    assert archive.numbers(10, 99) == [11, 12]
    assert archive.numbers(12, 99) == []


def test_a_replay_reads_each_part_once_and_lists_once() -> None:
    """One part is held at a time, and spans that were listed are still good."""
    archive = Archive((1, 3), (4, 4), (5, 9))
    archive.numbers(0, 9)

    assert archive.counted == {"list": 1, "get": 3}


@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(0, 6)), max_size=8),
    st.integers(0, 12),
    st.integers(0, 14),
)
def test_parts_that_overlap(parts: list[tuple[int, int]], after: int, until: int) -> None:
    """For any spans, exactly the pages that they cover are readable, and `reaches` agrees with
    it."""
    archive = Archive(*((first, first + more) for first, more in parts))
    held = {number for first, more in parts for number in range(first, first + more + 1)}
    end = after
    while end + 1 in held:
        end += 1

    assert archive.numbers(after, until) == list(range(after + 1, min(end, until) + 1))
    assert archive.reader.reaches(FEED, after, until) is (end >= until)
    assert covered_page(archive.list(FEED, after, 99), after) <= end


def test_holes_lie_between_parts() -> None:
    """Holes are found in any order of the parts, and only between the first part and the last
    one."""
    spans = [Span(last=9, first=8), Span(last=4, first=3), Span(last=5, first=2)]

    assert holes(spans) == [(6, 7)]
    assert holes([*spans, Span(last=7, first=5), Span(last=20, first=12)]) == [(10, 11)]
    assert holes([]) == holes([Span(last=9, first=5)]) == []


def test_no_part_is_forgotten_between_listings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing continues correctly if parts with the same last page are split between two
    results."""
    monkeypatch.setattr(limits, "ARCHIVE_LISTED", 3)
    store = MemoryArchive()
    spans = [Span(2, 1), Span(5, 3), Span(9, 6), Span(9, 8), Span(9, 9), Span(12, 10)]
    for span in spans:
        store.put(FEED, span, b"")

    assert list(all_spans(store, FEED)) == spans


def test_where_it_begins_without_a_hole() -> None:
    """`begins` searches backwards from a page; if that page is missing, it returns the page after
    it."""
    archive = Archive((1, 2), (4, 6), (6, 9), (5, 7))

    assert archive.reader.begins(FEED, 9) == archive.reader.begins(FEED, 7) == 4
    assert archive.reader.begins(FEED, 2) == 1
    assert archive.reader.begins(FEED, 10) == 11
    assert archive.reader.begins(FEED, 0) == 1


def test_one_page() -> None:
    """A page is found by its number; page 0 does not exist."""
    archive = Archive((1, 3))

    page = archive.reader.at(FEED, 2)
    assert page is not None and page.number == 2
    assert archive.reader.at(FEED, 4) is archive.reader.at(FEED, 0) is None
    assert archive.reader.at("other", 2) is None


def test_parts_merged_while_they_are_read() -> None:
    """The listed parts were removed in the meantime; the reader finds the merged part instead."""
    archive = Archive((1, 2), (3, 4), (5, 6))
    assert [page.number for page in archive.reader.read(FEED, 0, 6)] == [1, 2]

    archive.add(1, 6)
    for first, last in ((5, 6), (3, 4), (1, 2)):
        archive.remove(FEED, Span(last=last, first=first))

    assert archive.numbers(2, 6) == [3, 4, 5, 6]


BROKEN = {
    "empty": b"",
    "no part": b"rubbish",
    "cut": encode([page(2, line())])[1][:-1],
    "another page": encode([page(5, line())])[1],
}


@pytest.mark.parametrize("body", BROKEN.values(), ids=list(BROKEN))
def test_a_part_that_cannot_be_read_is_a_hole(body: bytes) -> None:
    """A broken part is counted and none of its pages is served; another part with the page is
    used."""
    archive = Archive((1, 1), (3, 3))
    archive.put(FEED, Span(last=2, first=2), body)

    assert archive.numbers(0, 3) == [1]
    assert archive.counted["PartsBroken"] > 0
    archive.add(1, 3)
    assert archive.numbers(1, 3) == [2, 3]


def test_a_part_that_nobody_could_hold_is_a_hole_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store refuses to read it; a consumer's replay does not end with that."""
    archive = Archive((1, 2))

    def refuse(feed: str, span: Span) -> bytes | None:
        raise TooLarge("a part holds less")

    monkeypatch.setattr(archive, "get", refuse)
    assert archive.numbers(0, 2) == []
    assert archive.counted["PartsBroken"] == 1


def test_a_part_is_read_again_after_a_while() -> None:
    """An erasure may have rewritten it; a process that runs the erasure forgets it at once."""
    archive, now = Archive((1, 3)), [0]
    archive.reader.aging = lambda: now[0]
    for now_ms, gets in (
        (0, 1),
        (limits.ARCHIVE_CACHE_MS - 1, 1),
        (limits.ARCHIVE_CACHE_MS, 2),
        (limits.ARCHIVE_CACHE_MS + 1, 2),
    ):
        now[0] = now_ms
        archive.numbers(0, 3)
        assert archive.counted["get"] == gets
    archive.reader.forget()
    archive.numbers(0, 3)
    assert archive.counted["get"] == 3


def test_a_read_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large part is returned in several reads, each with at least one page."""
    archive = Archive((1, 5))
    monkeypatch.setattr(limits, "ARCHIVE_STEP_BYTES", 2 * len(line("x")))

    assert [page.number for page in archive.reader.read(FEED, 0, 5)] == [1, 2]
    assert archive.numbers(0, 5) == [1, 2, 3, 4, 5]
    assert archive.counted["get"] == 1


def test_a_hole_is_looked_for_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """With more parts than the search reads, a hole is found only when a reader comes to it."""
    monkeypatch.setattr(limits, "ARCHIVE_LISTED", 2)
    archive = Archive(*((number, number) for number in range(1, 8)), (9, 9))

    assert not archive.reader.reaches(FEED, 0, 9)
    assert archive.reader.reaches(FEED, 0, 7)
    monkeypatch.setattr(limits, "ARCHIVE_LISTS_MAX", 2)
    assert archive.reader.reaches(FEED, 0, 9)

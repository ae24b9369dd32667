"""The index of tags: nothing is ever overlooked, and little is read in vain."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import MemoryTags
from tests.unit.core.scene import FEED, PAGE_MS, Scene, line, op, page
from tidings.core import limits
from tidings.core.changeagent.tag_index import Indexer, Summary, summary_of, summed_up


@given(st.sets(st.text(), max_size=50))
def test_what_is_there_is_never_ruled_out(tags: set[str]) -> None:
    """This holds for any tags."""
    summary = summary_of([page(1, line())], tags, page_ms=0)

    assert all(summary.may_hold([tag]) for tag in tags)
    assert not summary.may_hold([])


def test_little_is_read_in_vain() -> None:
    """Fewer than one in a hundred tags that are not there seem to be."""
    there = {f"user/{number}" for number in range(1000)}
    summary = summary_of([page(1, line())], there, page_ms=0)
    wrong = sum(summary.may_hold([f"other/{number}"]) for number in range(10_000))

    assert wrong < 100
    assert len(summary.bits) == 1500


def test_small_pages_are_summed_up_together() -> None:
    """A summary covers 64 pages; the last few pages wait for more, unless all are asked for."""
    pages = [page(number, line(str(number))) for number in range(1, 131)]
    summaries = list(summed_up(pages, page_ms=PAGE_MS, all_of_it=False))

    assert [(each.first, each.last) for each in summaries] == [(1, 64), (65, 128)]
    assert summaries[0].expires_ms == pages[63].at_ms + PAGE_MS
    rest = list(summed_up(pages, page_ms=PAGE_MS, all_of_it=True))
    assert [(each.first, each.last) for each in rest] == [(1, 64), (65, 128), (129, 130)]


def test_a_large_page_has_a_summary_of_its_own() -> None:
    """Otherwise a tag in it would make readers read other pages."""
    many = [line(str(n), parents=[f"user/{n}"]) for n in range(limits.REQUEST_OPERATIONS_MAX)]
    summaries = list(summed_up([page(1, *many), page(2, *many)], page_ms=0, all_of_it=False))

    assert [(each.first, each.last) for each in summaries] == [(1, 1), (2, 2)]


class Indexed:
    def __init__(self, pages: int) -> None:
        self.scene, self.tags = Scene(), MemoryTags()
        for number in range(pages):
            self.scene.post(op(str(number)))
        scene = self.scene
        self.indexer = Indexer(self.tags, scene.reader, scene.runtime.steady, PAGE_MS)

    def run(self) -> list[tuple[int, int]]:
        self.indexer.run(FEED)
        return [(each.first, each.last) for each in self.tags.read(FEED, 0, 100)]


def test_a_run_goes_on_where_the_last_one_ended() -> None:
    """Without enough new pages it does nothing."""
    indexed = Indexed(70)
    assert indexed.run() == indexed.run() == [(1, 64)]
    for number in range(60):
        indexed.scene.post(op(str(number)))
    assert indexed.run() == [(1, 64), (65, 128)]


def test_nothing_behind_a_hole_is_summed_up() -> None:
    """A writer in flight may still put anything there."""
    indexed = Indexed(10)
    indexed.scene.log.take(FEED)
    for number in range(100):
        indexed.scene.post(op(str(number)))
    assert indexed.run() == []


def test_what_is_trimmed_is_passed_over() -> None:
    """The index starts again at the floor; no reader reads the gap."""
    indexed = Indexed(200)
    indexed.scene.log.raise_floor(FEED, 101)
    assert indexed.run() == [(101, 164)]


def test_a_run_is_bounded_in_time() -> None:
    """The next run does the rest."""
    indexed = Indexed(70)
    moments = iter([0, limits.INDEX_RUN_MS])
    late = Indexer(indexed.tags, indexed.scene.reader, lambda: next(moments), PAGE_MS)

    assert late.run(FEED) == 0
    assert indexed.tags.read(FEED, 0, 1) == []
    assert Summary(1, 2, b"\xff").may_hold(["anything"])

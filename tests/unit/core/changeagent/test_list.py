"""Listing: the contents of a reply, where it ends, and which pages are not read for it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import MemoryLog, MemoryTags
from tests.unit.core.scene import FEED, PAGE_MS, Scene, line, op, page
from tidings.core import limits
from tidings.core.changeagent.changes import Change, end_of, line_of, number_of
from tidings.core.changeagent.list import Listing, Query, extend_listing, parse
from tidings.core.changeagent.tag_index import Indexer, Summary, summary_of, summed_up
from tidings.core.errors import BelowFloor, InvalidChange, UnknownChange
from tidings.core.model.pages import Pages
from tidings.core.settings.profiles import Losses


class CountingLog(MemoryLog):
    """Knows which pages were read."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def read(
        self, feed: str, after: int, limit: int | None = None, *, eventual: bool = False
    ) -> Pages:
        pages = super().read(feed, after, limit, eventual=eventual)
        self.seen += [each.number for each in pages]
        return pages


class Feed:
    def __init__(self) -> None:
        self.log = CountingLog()
        self.scene = Scene(log=self.log)
        self.tags = MemoryTags()
        self.lister = self.scene.lister(self.tags)
        scene = self.scene
        self.indexer = Indexer(self.tags, scene.reader, scene.runtime.steady, PAGE_MS)

    def post(self, *tags: str, data: str = "1") -> int:
        kept = line_of(Change(data, tags), name="n", now_ms=self.scene.now_ms)
        return number_of(self.scene.appender.append(FEED, [kept]).number, 0)

    def reply(self, *tags: str, **query: Any) -> Listing:
        return self.lister.list(FEED, Query(tags=frozenset(tags), **query))

    def ids(self, *tags: str, **query: Any) -> list[int]:
        return ids(self.reply(*tags, **query))


@pytest.fixture
def feed() -> Feed:
    return Feed()


def ids(listing: Listing) -> list[int]:
    return [json.loads(entry)["_id"] for entry in listing.entries]


@given(st.lists(st.integers(1, 5), max_size=12), st.integers(0, 20), st.data())
def test_pages_of_any_size_are_told_once_each_in_order(
    sizes: list[int], limit: int, data: st.DataObject
) -> None:
    """This holds from any id, with any limit, and following `next` to the end."""
    feed = Feed()
    posted = []
    for size in sizes:
        made = feed.scene.post(*(op(str(at)) for at in range(size)))
        posted += [number_of(made.number, slot) for slot in range(size)]
    since = data.draw(st.integers(0, end_of(len(sizes) + 1)))
    wanted = [number for number in posted if number > since]
    reply = feed.reply(since=since, limit=limit)

    assert ids(reply) == wanted[:limit]
    assert reply.at_end == (len(wanted) <= limit)
    assert reply.at_start == (since < number_of(1, 0))
    later = feed.ids(since=reply.next, limit=1000)
    assert ids(reply) + later == wanted


def test_bytes_bound_a_reply(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    """One entry at least; the rest with the next reply."""
    monkeypatch.setattr(limits, "CHANGES_BYTES_MAX", 1000)
    numbers = [feed.post(data=json.dumps("x" * 450)) for _ in range(5)]
    large = feed.post(data=json.dumps("x" * 5000))
    first = feed.reply()
    last = feed.reply(since=numbers[-1])

    assert 1 <= len(first.entries) < 5 and not first.at_end
    assert ids(first) + feed.ids(since=first.next) == numbers[: 2 * len(first.entries)]
    assert ids(last) == [large]


def test_a_rare_tag_is_found_without_reading_the_log(feed: Feed) -> None:
    """Only the pages that may have it, and those that are not summed up yet."""
    numbers = [feed.post("rare" if at in (700, 701) else f"t{at % 7}") for at in range(1000)]
    feed.indexer.run(FEED)
    feed.log.seen.clear()
    reply = feed.reply("rare")

    assert ids(reply) == [numbers[700], numbers[701]] and reply.at_end
    assert len(feed.log.seen) < 2 * limits.SUMMARY_PAGES + 1000 % limits.SUMMARY_PAGES + 1
    assert feed.ids("rare", since=reply.next) == []


@given(st.lists(st.sampled_from(["a", "b", "c"]), max_size=200), st.integers(0, 200), st.data())
def test_with_and_without_an_index_it_is_the_same(
    tags: list[str], summed: int, data: st.DataObject
) -> None:
    """This holds for an index with gaps, and for one that lags."""
    feed = Feed()
    numbers = []
    for at, tag in enumerate(tags):
        numbers.append(feed.post(tag))
        if at == summed:
            feed.indexer.run(FEED)
    if data.draw(st.booleans()):
        feed.tags._feeds[FEED].pop(limits.SUMMARY_PAGES, None)
    wanted = [number for number, tag in zip(numbers, tags, strict=True) if tag == "a"]

    assert feed.ids("a", limit=1000) == wanted


def test_what_has_no_summary_is_read(feed: Feed) -> None:
    """This is also so if the summaries of later pages exclude the tag."""
    numbers = [feed.post("a" if at == 5 else "b") for at in range(3 * limits.SUMMARY_PAGES)]
    feed.indexer.run(FEED)
    later = MemoryTags()
    later.write(FEED, feed.tags.read(FEED, limits.SUMMARY_PAGES, 10))
    feed.lister.index = later

    assert feed.ids("a") == [numbers[5]]


def test_a_hole_is_the_end_and_not_the_end(feed: Feed) -> None:
    """Pages after it may not be listed yet, and the reply does not say that it is the end."""
    first = feed.post()
    feed.log.take(FEED)
    behind = feed.post()
    reply = feed.reply()

    assert (ids(reply), reply.at_end, reply.waiting) == ([first], False, True)
    assert reply.head == first
    feed.scene.now_ms += limits.HOLE_GRACE_MS
    assert feed.scene.filler.close_hole(FEED, 1)
    assert feed.ids(since=first) == [behind]


def test_the_head_is_known_in_the_middle(feed: Feed) -> None:
    """It is taken from the followers' checkpoints, and never includes pages that cannot be read
    yet."""
    numbers = [feed.post() for _ in range(200)]
    feed.scene.project()
    feed.log.take(FEED)
    feed.post()

    assert feed.reply(limit=1).head == numbers[-1]
    beyond = feed.reply(since=2**52)
    assert (beyond.entries, beyond.head, beyond.page) == ([], numbers[-1], 200)


def test_a_deep_page_costs_what_the_first_does(feed: Feed) -> None:
    """Pages read for a hundred entries, at the start and in the middle."""
    numbers = [feed.post() for _ in range(3000)]
    feed.scene.project()
    costs = []
    for since in (0, numbers[1500]):
        feed.log.seen.clear()
        feed.reply(since=since)
        costs.append(len(feed.log.seen))

    assert 101 <= costs[0] <= costs[1] <= costs[0] + 4 <= 110


def test_a_slow_search_says_how_far_it_came(feed: Feed) -> None:
    """It ends in time, and the next one continues from there."""
    for _ in range(300):
        feed.post("often")
    moments = iter([0, 0, 0, *[limits.CHANGES_SCAN_MS] * 9])
    feed.lister = replace(feed.lister, steady=lambda: next(moments))
    reply = feed.reply("rare")

    assert reply.entries == [] and not reply.at_end
    assert 0 < reply.next < number_of(300, 0)


def test_a_strict_reader_is_told_that_it_fell_behind(feed: Feed) -> None:
    """At the floor it is not: there nothing is missing."""
    numbers = [feed.post() for _ in range(10)]
    feed.log.raise_floor(FEED, 5)

    assert feed.ids() == numbers[4:]
    with pytest.raises(BelowFloor) as refused:
        feed.reply(since=numbers[1], strict=True)
    assert feed.ids(since=refused.value.floor, strict=True) == numbers[4:]
    with pytest.raises(UnknownChange):
        feed.lister.one(FEED, numbers[3])


def test_what_comes_while_a_client_waits_is_put_behind(feed: Feed) -> None:
    """The new pages come from memory under the same query; entries that do not match are
    skipped."""
    query = Query(tags=frozenset({"a"}))
    empty = feed.lister.list(FEED, query)
    kept = [line_of(Change("1", (tag,)), name="n", now_ms=0) for tag in "bab"]
    reply = extend_listing(empty, query, [page(1, *kept[:1]), page(2, *kept[1:])])

    assert ids(reply) == [number_of(2, 0)]
    assert (reply.at_end, reply.at_start, reply.page) == (True, True, 2)
    assert reply.next == end_of(2) and reply.head == number_of(2, 1)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"strict": ["1"]}, "Invalid strict"),
        ({"tag": [str(at) for at in range(101)]}, "Invalid tag"),
    ],
)
def test_a_query_that_breaks_a_rule_is_refused(given: dict[str, list[str]], text: str) -> None:
    """The error names the parameter; 12.4-parameters covers the numbers."""
    with pytest.raises(InvalidChange, match=text):
        parse(given)


def test_what_is_not_asked_for_has_defaults() -> None:
    """The first value counts, and an empty one is ignored; of tags all values count."""
    assert parse({}) == parse({"since": [""], "limit": [""]}) == Query()
    assert parse({"since": ["7", "x"], "tag": ["a", "b"], "block": ["5"], "strict": ["true"]}) == (
        Query(since=7, block_s=5, tags=frozenset("ab"), strict=True)
    )


def test_who_heard_what_a_restore_lost_is_told(feed: Feed) -> None:
    """One reply has `lost`, with or without changes; a strict reader is refused."""
    for _ in range(7):
        feed.post()
    profiles = feed.scene.profiles
    profiles.save(FEED, replace(profiles.profile(FEED), lost=((4, 6),)))
    feed.lister.losses = Losses(profiles)

    before, within, behind = (feed.reply(since=number_of(at, 0)) for at in (3, 5, 7))

    assert [each.lost for each in (before, within, behind)] == [False, True, False]
    assert json.loads(within.to_json())["lost"] is True
    assert "lost" not in json.loads(before.to_json())
    with pytest.raises(BelowFloor, match="names a page that was lost"):
        feed.reply(since=number_of(5, 0), strict=True)


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

"""Serving pages and rows to feeds that copy this one: the requests and the replies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.scene import FEED, NOW, PAGE_MS, UPSTREAM, Scene, line, op, page
from tidings.core import limits
from tidings.core.changeagent.changes import Change, line_of
from tidings.core.errors import (
    BrokenBatch,
    InvalidCursor,
    InvalidFilter,
    InvalidPagesRequest,
    LogFellOff,
    Rejected,
)
from tidings.core.model.cursors import PAGE_END, START, Place
from tidings.core.model.filters import parse
from tidings.core.model.operations import event_of
from tidings.core.model.pages import Page, Pages, encode, filler
from tidings.core.replication import serve
from tidings.core.replication.serve import PagesRequest, ReplicationReader, RowsRequest
from tidings.core.replication.source import ALL, Mod, Range, Selection, hash_of, parse_share, select
from tidings.core.replication.wire import (
    ReplicationBatch,
    Rows,
    UpstreamStatus,
    decode_batch,
    decode_rows,
    encode_batch,
    encode_rows,
)
from tidings.core.state.rows import Row, bucket_of

SIZE = limits.BATCH_BYTES
MASTER = "https://a.example/feeds/main"
VIDEOS = Selection(parse("video", None))
ANNS = Selection(parse(None, "user/ann", "true"))


@pytest.fixture
def teller(scene: Scene) -> ReplicationReader:
    return ReplicationReader(scene.catch_up, scene.host.losses)


def copied(
    teller: ReplicationReader, after: Place = START, selection: Selection = ALL, size: int = SIZE
) -> list[Page]:
    """Return the pages as a copy receives them."""
    return list(decode_batch(encode_batch(teller.pages(FEED, after, selection, size))).pages)


def chained(scene: Scene, **known: object) -> ReplicationReader:
    """Return the reader of the same feed as a copy that has *known* in its relay document."""
    return ReplicationReader(scene.catch_up, scene.chained(**known))


def test_D16_what_is_gone_is_told_at_once(scene: Scene, teller: ReplicationReader) -> None:
    """This holds although pages below the floor are still stored; the error names the first page of
    the log.
    """
    first, *_ = scene.post_each(*"abcd")
    scene.log.raise_floor(FEED, 3)

    for place in (START, first.end):
        with pytest.raises(LogFellOff, match="begins with page 3") as error:
            teller.pages(FEED, place, ALL, SIZE)
        assert error.value.body()["floor"] == 3


def test_D16_also_where_the_floor_rises_meanwhile(scene: Scene, teller: ReplicationReader) -> None:
    """The floor rises after it was checked and before the pages are read."""
    first = scene.post(op("a"))
    scene.now_ms += 2 * PAGE_MS
    second = scene.post(op("b"))
    read = scene.log.read

    def raised(feed: str, after: int, limit: int | None = None, *, eventual: bool = False) -> Pages:
        scene.log.raise_floor(FEED, 2)
        scene.log.expire(scene.now_ms)
        scene.log.read = read  # type: ignore[method-assign]
        return read(feed, after, limit, eventual=eventual)

    scene.log.read = raised  # type: ignore[method-assign]
    assert [page.number for page in copied(teller, first.end)] == [second.number]
    with pytest.raises(LogFellOff):
        teller.pages(FEED, START, ALL, SIZE)


def test_D17_the_page_before_the_floor_is_enough(scene: Scene, teller: ReplicationReader) -> None:
    """A copy with that page misses no page. A position within a page is refused."""
    pages = scene.post_each(*"abc")
    scene.log.raise_floor(FEED, 3)
    scene.log.expire(NOW + 2 * PAGE_MS)

    scene.log.put(FEED, pages[2])
    assert [page.number for page in copied(teller, pages[1].end)] == [3]
    with pytest.raises(InvalidCursor, match="the end of a page"):
        serve.parse_pages_request({"after": [f"{pages[1].id_prefix}000000"]})


def test_D18_an_empty_page_is_told(scene: Scene, teller: ReplicationReader) -> None:
    """Page numbers have no hole: the filler is sent like other pages."""
    first = scene.post(op("a"))
    empty = filler(scene.log.take(FEED), at_ms=NOW, expires_ms=NOW + PAGE_MS)
    scene.log.put(FEED, empty)
    scene.post(op("b"))

    hole, behind = copied(teller, first.end)
    assert (hole.number, hole.lines, behind.number) == (2, [], 3)
    assert [page.number for page in copied(teller, empty.end)] == [3]


def test_D21_an_upstream_that_is_behind_has_no_news(scene: Scene) -> None:
    """Its head shows that it lags; once it has the next page, that page is sent."""
    scene.post(op("a"))
    ahead, teller = Place(3, PAGE_END, NOW // 1000), chained(scene, checkpoint=1)

    assert teller.pages(FEED, ahead, ALL, SIZE).status.head < 3
    assert copied(teller, ahead) == []
    scene.post_each(*"bcd")
    assert [page.number for page in copied(teller, ahead)] == [4]


def test_who_stands_at_the_end_is_checked_once(scene: Scene, teller: ReplicationReader) -> None:
    """Only the first request reads the page before the end as well."""
    page = scene.post(op("a"))
    reads: list[int] = []
    read = scene.log.read

    def noted(feed: str, after: int, limit: int | None = None, *, eventual: bool = False) -> Pages:
        if not eventual:
            reads.append(after)
        return read(feed, after, limit, eventual=eventual)

    scene.log.read = noted  # type: ignore[method-assign]
    for _ in range(3):
        assert copied(teller, page.end) == []
    assert reads == [0, 1, 1]


def test_a_page_in_flight_ends_a_reply(scene: Scene, teller: ReplicationReader) -> None:
    """Pages after a hole wait for it."""
    scene.post(op("a"))
    scene.log.take(FEED)
    scene.post(op("b"))

    batch = teller.pages(FEED, START, ALL, SIZE)

    assert [page.number for page in batch.pages] == [1]
    assert batch.status.head == 1


@given(st.integers(1, 6000), st.lists(st.integers(0, 900), min_size=1, max_size=6))
def test_D26_size_bounds_the_bytes_of_a_reply(size: int, pages: list[int]) -> None:
    """This holds for pages of any size, and no page is lost between two replies."""
    scene = Scene()
    for length in pages:
        scene.post(op("ä", data="€" * length))
    teller = ReplicationReader(scene.catch_up, scene.host.losses)
    after, numbers = START, [0]

    while received := (batch := teller.pages(FEED, after, ALL, size)).pages:
        assert len(encode_batch(batch).encode()) <= size
        numbers += [page.number for page in received]
        after = received[-1].end

    assert all(low + 1 == high for low, high in pairwise(numbers))
    assert (numbers[-1] == len(pages)) == (batch.pending == 0)


def test_a_reply_holds_as_many_pages_as_one_write(scene: Scene, teller: ReplicationReader) -> None:
    """The next reply has the rest."""
    for _ in range(limits.BATCH_PAGES_MAX + 2):
        scene.post(op())

    first = copied(teller)

    assert len(first) == limits.BATCH_PAGES_MAX
    assert len(copied(teller, first[-1].end)) == 2


def test_a_page_that_fills_a_read_by_itself(scene: Scene, teller: ReplicationReader) -> None:
    """A position at that page is accepted, and the later pages are sent."""
    large = Page(1, "x" * limits.READ_PAGES_BYTES_MAX, "", NOW)
    scene.log.put(FEED, large)
    scene.log.put(FEED, replace(large, number=2, body="{}"))

    assert [page.number for page in copied(teller, large.end)] == [2]


def test_D14_a_selection_keeps_the_numbers_of_pages(
    scene: Scene, teller: ReplicationReader
) -> None:
    """The slots of the remaining entries stay too; the others are counted."""
    scene.post(op("a"), op("b", type="user"), op("c"))
    scene.post(op("d", type="user"))

    batch = teller.pages(FEED, START, VIDEOS, SIZE)

    assert [(page.number, page.slots) for page in batch.pages] == [(1, (0, 2)), (2, ())]
    assert batch.filtered == 2
    assert [page.slots for page in copied(teller, START, VIDEOS)] == [(0, 2), ()]


@given(st.lists(st.text("abc/%", min_size=1, max_size=3), min_size=1, max_size=9))
def test_D43_shares_make_up_the_whole(names: list[str]) -> None:
    """Every entry is in one share of each division, and counted as left out by the others."""
    scene = Scene()
    scene.post(*map(op, names))
    teller = ReplicationReader(scene.catch_up, scene.host.losses)
    remainders = ["mod:3:0", "mod:3:1+2"]
    ranges = ["range:00000000-7fffffff", "range:80000000-ffffffff"]

    for shares in (remainders, ranges):
        selections = [Selection(share=parse_share(share)) for share in shares]
        batches = [teller.pages(FEED, START, each, SIZE) for each in selections]
        slots = sorted(slot for batch in batches for slot, _ in batch.pages[0].entries())
        assert slots == list(range(len(names)))
        assert sum(batch.filtered for batch in batches) == len(names)


def test_what_lost_its_parent_is_told_as_a_deletion(
    scene: Scene, teller: ReplicationReader
) -> None:
    """Pages are sent up to the state's checkpoint: until there the removed parents are known."""
    scene.keep_removed_parents()
    scene.projected(op("a", parents=["user/ann"]), op("b"))
    scene.post(op("a"), op("b", parents=["user/bob"]))

    assert [page.number for page in copied(teller, START, ANNS)] == [1]
    scene.project()
    first, second = copied(teller, START, ANNS)
    assert [slot for slot, _ in first.entries()] == [0]
    assert [(slot, line[:18]) for slot, line in second.entries()] == [(0, '{"event":"delete",')]


def test_D34_where_a_feed_stands(scene: Scene, teller: ReplicationReader) -> None:
    """The first page, the last one that can be read, and how far its state is."""
    scene.post_each("a", "b")
    scene.project()
    scene.post(op("c"))

    assert teller.status(FEED) == UpstreamStatus(1, 2, 2, master_read_ms=NOW)
    assert teller.pages(FEED, START, ALL, SIZE).status == UpstreamStatus(
        1, 3, 2, master_read_ms=NOW
    )


def test_D34_where_a_copy_stands(scene: Scene) -> None:
    """The status names its master and the chain of feeds, so that a feed can detect a cycle."""
    scene.post(op())
    known: dict[str, Any] = {"master": MASTER, "via": ("m", "ours"), "master_read_ms": NOW - 5}

    assert chained(scene, checkpoint=1, **known).status(FEED) == UpstreamStatus(1, 1, 0, **known)
    assert chained(scene, id="ours").status(FEED) == UpstreamStatus(1, 0, 0, UPSTREAM, ("ours",))


def rows_of(teller: ReplicationReader, key: str, selection: Selection = ALL) -> list[str]:
    """Return the keys of the bucket's rows as a copy receives them."""
    rows = teller.rows(FEED, bucket_of(key), None, selection)
    assert rows.after is None
    return [row.key for row in decode_rows(encode_rows(rows)).rows]


def test_rows_of_a_selection(scene: Scene, teller: ReplicationReader) -> None:
    """Rows are selected by type, share and parent; a deleted object may have had any parent."""
    scene.projected(op("a", parents=["user/ann"]), op("b"), op("c", "delete"), op("d", type="user"))

    def kept(selection: Selection) -> set[str]:
        keys = ("video/a", "video/b", "video/c", "user/d")
        return {key for key in keys if key in rows_of(teller, key, selection)}

    assert kept(ALL) == {"video/a", "video/b", "video/c", "user/d"}
    assert kept(VIDEOS) == {"video/a", "video/b", "video/c"}
    assert kept(ANNS) == {"video/a", "video/c"}
    assert kept(Selection(parse("user", "user/ann", "true"))) == set()
    for part in range(3):
        share = Mod(3, frozenset({part}))
        assert kept(Selection(share=share)) == {key for key in kept(ALL) if share.holds(key)}


def test_rows_go_on_where_they_are_many(scene: Scene, teller: ReplicationReader) -> None:
    """Each row comes once, also if a reply has no matching row."""
    large = [op(f"{number}", data="x" * 60_000) for number in range(2000)]
    in_one = [each for each in large if bucket_of(f"video/{each['id']}") == 7]
    assert len(in_one) > 20
    for operation in in_one:
        scene.post(operation)
    scene.project()

    for selection, count in ((ALL, len(in_one)), (Selection(parse("user", None)), 0)):
        keys, after, replies = [], None, 0
        while replies == 0 or after is not None:
            rows = teller.rows(FEED, 7, after, selection)
            keys += [row.key for row in rows.rows]
            after, replies = rows.after, replies + 1
            assert len(encode_rows(rows).encode()) < limits.BATCH_BYTES_MAX
        assert len(set(keys)) == len(keys) == count
        assert replies > 1 or not keys  # rows of other types are not read, and not named


def test_what_is_asked() -> None:
    """All parameters except the bucket are optional; a wait above the limit is reduced."""
    place = Place(7, PAGE_END, NOW // 1000)
    query = {"after": place.encode(), "types": "a,b", "share": "mod:2:1", "size": "9", "block": "3"}
    selection = Selection(parse("a,b", None), Mod(2, frozenset({1})))

    assert serve.parse_pages_request({}) == PagesRequest()
    assert serve.parse_pages_request(several(query)) == PagesRequest(place, selection, 9, 3)
    assert serve.parse_pages_request({"block": ["999"]}).block_s == limits.BATCH_BLOCK_S_MAX
    assert serve.parse_pages_request({"parents": ["p"]}).selection.filter.leave
    assert serve.parse_rows_request({"bucket": ["0"]}) == RowsRequest(0)
    query = {"bucket": "63", "after": "video/ä", "parents": "p"}
    assert serve.parse_rows_request(several(query)) == RowsRequest(
        63, "video/ä", Selection(parse(None, "p", "true"))
    )


# The others are played by 16.3-refused and 16.7-refused.
REFUSED: dict[str, tuple[Callable[..., object], dict[str, str], type[Rejected]]] = {
    "an id of a row": (serve.parse_pages_request, {"after": f"{0:018x}800001"}, InvalidCursor),
    "a negative size": (serve.parse_pages_request, {"size": "-1"}, InvalidPagesRequest),
    "too many types": (
        serve.parse_pages_request,
        {"types": ",".join(map(str, range(101)))},
        InvalidFilter,
    ),
    "a key that is too long": (
        serve.parse_rows_request,
        {"bucket": "1", "after": "ä" * 513},
        InvalidPagesRequest,
    ),
}


@pytest.mark.parametrize(("parse_it", "query", "error"), REFUSED.values(), ids=list(REFUSED))
def test_what_is_refused(
    parse_it: Callable[..., object], query: dict[str, str], error: type[Rejected]
) -> None:
    """The error has the name of the parameter and the rule."""
    with pytest.raises(error) as refused:
        parse_it(several(query))
    assert refused.value.field in query or refused.value.field == "bucket"


def several(query: Mapping[str, str]) -> dict[str, list[str]]:
    return {name: [value] for name, value in query.items()}


CHANGE = line_of(Change("1"), name="n", now_ms=NOW)

HASH_MAX = 0xFFFF_FFFF  # the maximum of CRC-32


def test_the_hash_is_the_same_everywhere() -> None:
    """CRC-32 of the key's UTF-8: shares of other deployments and of later versions fit."""
    assert hash_of("123456789") == 0xCBF43926  # the check value of this CRC


@given(st.text(), st.integers(2, 9), st.integers(0, HASH_MAX - 1))
def test_D43_each_key_is_in_one_share(key: str, parts: int, cut: int) -> None:
    """This holds for shares by remainder and for shares by ranges."""
    mods = [Mod(parts, frozenset({part})) for part in range(parts)]
    ranges = [Range(0, cut), Range(cut + 1, HASH_MAX)]

    assert sum(share.holds(key) for share in mods) == 1
    assert sum(share.holds(key) for share in ranges) == 1


SHARES = [Mod(4, frozenset({0, 3})), Mod(1, frozenset({0})), Range(0, HASH_MAX), Range(7, 7)]


@pytest.mark.parametrize("share", SHARES, ids=lambda each: each.encode())
def test_a_share_reads_back(share: Mod | Range) -> None:
    """The text is that of the URL; an empty text means no share."""
    assert parse_share(share.encode()) == share
    assert parse_share("") is None


WRONG = [
    "mod",
    "mod:0:0",
    "mod:2:2",
    "mod:4097:0",
    "mod:2:",
    "mod:2:0,1",
    "range:00000002-00000001",
    "range:0-1",
    "range:00000000-0000000G",
    "all",
]


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_share(text: str) -> None:
    """The error names the rule and the value."""
    with pytest.raises(InvalidFilter, match="must be mod:PARTS") as refused:
        parse_share(text)
    assert (refused.value.field, refused.value.value) == ("share", text)


def test_everything_is_kept_as_it_is() -> None:
    """The page is returned without being read."""
    whole = page(7, line("a"), line("b"))
    assert select(whole, ALL) is whole


def test_what_loses_its_parent_is_deleted() -> None:
    """An entry becomes a delete if the page's removed parents say so, or are unknown."""
    whole = page(7, line("a", parents=["user/ann"]), line("b"), line("c"))

    known = select(whole, ANNS, {1: ("user/ann",), 2: ("user/bob",)})
    unknown = select(whole, ANNS, None)

    assert [(slot, event_of(kept)) for slot, kept in known.entries()] == [
        (0, "update"),
        (1, "delete"),
    ]
    assert [event_of(kept) for _, kept in unknown.entries()] == ["update", "delete", "delete"]
    assert known.lines[1] == line("b", "delete")


def test_an_entry_without_an_object() -> None:
    """It is in every share, and in no type and no parent."""
    assert Selection(share=Mod(2, frozenset({0}))).keeps(CHANGE) == CHANGE
    assert Selection(share=Mod(2, frozenset({1}))).keeps(CHANGE) == CHANGE
    assert Selection(parse("change", None)).keeps(CHANGE) is None


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\n"), min_size=1)
STANDINGS = st.builds(
    UpstreamStatus,
    st.integers(1, 9),
    st.integers(0, 9),
    st.integers(0, 9),
    st.text(),
    st.lists(st.text()).map(tuple),
    st.integers(0, NOW),
)
STATUS = UpstreamStatus(
    floor=1,
    head=7,
    state=5,
    master="https://a.example/feeds/main",
    via=("one", "two"),
    master_read_ms=NOW,
)


def timed_page(number: int, *lines: str, slots: tuple[int, ...] | None = None) -> Page:
    return Page(number, "\n".join(lines), "", NOW + number, slots=slots)


@given(STANDINGS, st.lists(st.lists(TEXTS, max_size=3), max_size=4), st.integers(0, 9))
def test_D2_pages_are_heard_as_they_were_told(
    status: UpstreamStatus, bodies: list[list[str]], filtered: int
) -> None:
    """This holds for any entries and for fillers; entries pass as text, so their bytes are kept."""
    pages = tuple(timed_page(number, *lines) for number, lines in enumerate(bodies, 1))
    batch = ReplicationBatch(status, pages, 0, filtered)

    assert decode_batch(encode_batch(batch)) == batch


def test_slots_are_told() -> None:
    """A page that was copied in part is sent with its slots; a packed page is sent unpacked."""
    some, none = timed_page(1, "a", "b", slots=(0, 7)), timed_page(2, slots=())
    packed = Page(3, encode([line()] * 900), "id", NOW)

    received = decode_batch(encode_batch(ReplicationBatch(STATUS, (some, none, packed))))

    assert isinstance(packed.body, bytes)
    assert received.pages == (some, none, Page(3, packed.text, "", NOW))


@given(
    STANDINGS, st.lists(st.builds(Row, TEXTS, *[st.integers(0, NOW)] * 3, TEXTS)), st.none() | TEXTS
)
def test_rows_are_heard_as_they_were_told(
    status: UpstreamStatus, rows: list[Row], after: str | None
) -> None:
    """Rows keep their positions and times; the reply has the key to continue after."""
    reply = Rows(status, tuple(rows), after)

    assert decode_rows(encode_rows(reply)) == reply


ENCODED = encode_batch(ReplicationBatch(STATUS, (timed_page(1, "a"), timed_page(2, "b"))))
ROWS = encode_rows(Rows(STATUS, tuple(Row(f"k{at}", 1, at, NOW, "l") for at in range(2))))


@pytest.mark.parametrize(("read", "text"), [(decode_batch, ENCODED), (decode_rows, ROWS)])
def test_what_ends_early_is_none(read: Callable[[str], object], text: str) -> None:
    """A text that is cut anywhere is refused: otherwise living objects would count as deleted."""
    for length in range(len(text)):
        with pytest.raises(BrokenBatch):
            read(text[:length])


FOREIGN = [
    "<html>",
    "[]\n",
    "{}\n",
    "null\n",
    ENCODED.replace('"floor":1', '"floor":"x"'),
    "\n" + ENCODED,
]


@pytest.mark.parametrize("text", FOREIGN, ids=range(len(FOREIGN)))
def test_what_is_none_is_told(text: str) -> None:
    """Every malformed text raises the same error."""
    for hear in (decode_batch, decode_rows):
        with pytest.raises(BrokenBatch):
            hear(text)

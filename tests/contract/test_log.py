"""The contracts of the log, of claims, and of the rewriting of stored bodies."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.contract.stores import DYNAMODB_LOCAL, Stores, on
from tidings.core import limits
from tidings.core.consumers.consumer import Change, Consumer, Parked
from tidings.core.counters import RESTORED, LogCounter
from tidings.core.errors import Unavailable, Yielded
from tidings.core.log.append import Claim
from tidings.core.maintenance.retention import Round, rounds_in
from tidings.core.model.pages import Page, encode, filler, jump
from tidings.core.state.removed_parents import RemovedParents

AT = 1_763_000_000_123
EXPIRES = 4_102_444_800_000  # in 2100: an engine deletes what has expired while a test looks


def page(number: int, append_id: str = "a" * 32, body: str | bytes = "{}") -> Page:
    return Page(number, body, append_id, AT + number, EXPIRES)


def seen(written: Page) -> Page:
    """Return a page as readers get it."""
    return replace(written, append_id="", expires_ms=0)


class TestLog:
    def test_numbers_start_with_one_and_follow_each_other(self, stores: Stores, feed: str) -> None:
        """The counter counts per feed; `head` is the last number taken."""
        assert stores.log.head(feed) == 0
        assert [stores.log.take(feed) for _ in range(3)] == [1, 2, 3]
        assert stores.log.head(feed) == 3
        assert stores.log.head(f"{feed}-other") == 0

    def test_operations_are_counted_with_the_number(self, stores: Stores, feed: str) -> None:
        """In the same write; a number that is taken for a retry counts nothing."""
        assert stores.log.log_counter(feed) == LogCounter(0, 0)
        for operations in (1, 100, 0):
            stores.log.take(feed, operations)
        assert stores.log.log_counter(feed) == LogCounter(3, 101)
        assert stores.log.log_counter(f"{feed}-other") == LogCounter(0, 0)

    def test_a_log_that_was_yielded_gives_no_number(self, stores: Stores, feed: str) -> None:
        """A writer that has a number writes its page; nothing is counted; it can be revoked."""
        number = stores.log.take(feed, 2)
        stores.log.yield_to(feed, "https://b.example/feeds/main")
        for _ in range(2):
            with pytest.raises(Yielded) as refused:
                stores.log.take(feed, 1)
            assert refused.value.master == "https://b.example/feeds/main"
        assert stores.log.put(feed, page(number, "ours")) == "ours"
        assert stores.log.log_counter(feed) == LogCounter(1, 2, "https://b.example/feeds/main")
        stores.log.take(f"{feed}-other")

        stores.log.yield_to(feed, RESTORED)  # then producers repeat their requests
        with pytest.raises(Unavailable):
            stores.log.take(feed)
        stores.log.yield_to(feed, "")
        assert stores.log.take(feed) == 2
        stores.log.yield_to(f"{feed}-new", "https://b.example/feeds/new")
        with pytest.raises(Yielded):
            stores.log.take(f"{feed}-new")
        assert stores.log.head(f"{feed}-new") == 0

    def test_the_first_of_two_writers_wins(self, stores: Stores, feed: str) -> None:
        """The second one learns the first one's append id and writes nothing."""
        assert stores.log.put(feed, page(1, "first", "one")) == "first"
        assert stores.log.put(feed, page(1, "second", "two")) == "first"
        assert [found.body for found in stores.log.read(feed, 0)] == ["one"]

    def test_a_retry_finds_itself(self, stores: Stores, feed: str) -> None:
        """Writing the same page again names our own append id: it is written."""
        assert stores.log.put(feed, page(1, "ours")) == "ours"
        assert stores.log.put(feed, page(1, "ours")) == "ours"

    def test_a_writer_overtaken_by_a_filler_learns_it(self, stores: Stores, feed: str) -> None:
        """The filler stays; the late page is not written."""
        closed = filler(1, at_ms=AT, expires_ms=EXPIRES)
        assert stores.log.put(feed, closed) == closed.append_id
        assert stores.log.put(feed, page(1, "late")) == closed.append_id
        assert not stores.log.read(feed, 0)[0].body

    def test_bodies_come_back_as_they_were(self, stores: Stores, feed: str) -> None:
        """Text stays text, deflated bytes stay bytes, whatever characters they hold."""
        lines = ['{"data":"ä€𝄞\\u0000\\n"}'] * 100
        pages = [page(1, body=lines[0]), page(2, body=encode(lines))]
        for each in pages:
            stores.log.put(feed, each)
        found = stores.log.read(feed, 0)
        assert found == [seen(each) for each in pages]
        assert found[1].lines == lines

    def test_a_page_comes_back_with_its_trace(self, stores: Stores, feed: str) -> None:
        """If its request was traced; other pages have no trace."""
        traced = replace(page(1), trace=f"00-{'0af7' * 8}-{'b7ad' * 4}-01")
        stores.log.put(feed, traced)
        stores.log.put(feed, page(2))
        assert stores.log.read(feed, 0) == [seen(traced), seen(page(2))]

    def test_a_page_comes_back_with_what_it_skips(self, stores: Stores, feed: str) -> None:
        """A log that was restored has such a page; another page skips nothing."""
        pages = [page(1), jump(2, 2**39, at_ms=1, expires_ms=9), page(2**39 + 1)]
        for each in pages:
            stores.log.put(feed, each)
        found = stores.log.read(feed, 0, limit=2**40)
        assert found == [seen(each) for each in pages]
        assert [each.first for each in found] == [1, 2, 2**39 + 1]

    def test_a_page_comes_back_with_its_slots(self, stores: Stores, feed: str) -> None:
        """If entries were left out, even all of them; otherwise no slots are stored."""
        whole = page(1, body=encode(["{}"] * limits.REQUEST_OPERATIONS_MAX))
        last = limits.REQUEST_OPERATIONS_MAX - 1
        pages = [whole, *(replace(whole, number=n) for n in (2, 3))]
        pages[1] = pages[1].only([(0, "{}"), (7, '{"a":1}'), (last, "{}")])
        pages[2] = pages[2].only([])
        for each in pages:
            stores.log.put(feed, each)
        found = stores.log.read(feed, 0)
        assert found == [seen(each) for each in pages]
        assert list(found[1].entries()) == [(0, "{}"), (7, '{"a":1}'), (last, "{}")]

    def test_read_neither_repeats_nor_skips(self, stores: Stores, feed: str) -> None:
        """Reading on after the last page seen gives each page once, in order."""
        for number in (1, 2, 3, 9, 10, 11, 100):  # in the order of numbers, not of text
            stores.log.put(feed, page(number))
        numbers, after = [], 0
        while found := stores.log.read(feed, after, 2):
            numbers += [each.number for each in found]
            after = found[-1].number
        assert numbers == [1, 2, 3, 9, 10, 11, 100]

    def test_read_shows_what_is_above_a_hole(self, stores: Stores, feed: str) -> None:
        """Missing numbers are simply missing; the caller judges them."""
        for number in (2, 5):
            stores.log.put(feed, page(number))
        assert [each.number for each in stores.log.read(feed, 0)] == [2, 5]
        assert [each.number for each in stores.log.read(feed, 3)] == [5]
        assert stores.log.read(feed, 5) == []

    def test_read_is_bounded_by_bytes(self, stores: Stores, feed: str) -> None:
        """Four pages of 380 KB come in more than one read; none is lost between them."""
        for number in range(1, 5):
            stores.log.put(feed, page(number, body=b"x" * limits.PAGE_BYTES_MAX))
        reads, found = 0, [0]
        while pages := stores.log.read(feed, found[-1]):
            reads += 1
            found += [each.number for each in pages]
        assert found == [0, 1, 2, 3, 4]
        assert reads > 1

    def test_a_read_that_is_cut_short_says_so(self, stores: Stores, feed: str) -> None:
        """By the limit or by bytes; the one that finds the end does not."""
        for number in (1, 2):
            stores.log.put(feed, page(number))
        assert not stores.log.read(feed, 0).more
        assert stores.log.read(feed, 0, 1).more
        assert not stores.log.read(feed, 2).more
        for number in range(3, 7):
            stores.log.put(feed, page(number, body=b"x" * limits.PAGE_BYTES_MAX))
        found = stores.log.read(feed, 0)
        assert found.more and found[-1].number < 6

    def test_an_eventually_consistent_read_tells_nothing_wrong(
        self, stores: Stores, feed: str
    ) -> None:
        """Some of the pages as they were written, in order; the others are there all the same."""
        written = [page(number) for number in range(1, 10)]
        for each in written:
            stores.log.put(feed, each)
        stale = stores.log.read(feed, 0, eventual=True)
        assert [seen(each) for each in written if seen(each) in stale] == stale
        assert stores.log.read(feed, 0) == [seen(each) for each in written]
        assert [each.number for each in stores.log.read(feed, 2, 3, eventual=True)] == [3, 4, 5]

    def test_feeds_do_not_mix(self, stores: Stores, feed: str) -> None:
        """The page of one feed is not seen in another, be its name the beginning of it."""
        stores.log.put(feed, page(1))
        assert stores.log.read(f"{feed}0", 0) == []
        assert stores.log.read(feed[:-1], 0) == []

    def test_the_floor_only_grows(self, stores: Stores, feed: str) -> None:
        """A new feed's floor is 1; raising it to less changes nothing."""
        assert stores.log.floor(feed) == 1
        for raised, floor in ((5, 5), (3, 5), (5, 5), (9, 9)):
            stores.log.raise_floor(feed, raised)
            assert stores.log.floor(feed) == floor


class TestRenewals:
    def test_renewing_a_missing_page_creates_nothing(self, stores: Stores, feed: str) -> None:
        """A page that was deleted stays deleted."""
        stores.log.renew(feed, 1, EXPIRES)
        assert stores.log.read(feed, 0) == []
        assert stores.log.put(feed, page(1, "ours")) == "ours"

    def test_renewed_pages_expire_later(self, stores: Stores, feed: str) -> None:
        """Never sooner; a page that is not to expire stays so."""
        for number in range(1, 5):
            stores.log.put(feed, page(number))
        stores.log.put(feed, Page(5, "{}", "a", AT, 0))
        stores.log.renew(feed, 2, EXPIRES + 60_000)
        stores.log.renew(feed, 2, EXPIRES)
        stores.log.renew(feed, 5, EXPIRES)
        found = [(1, EXPIRES), (2, EXPIRES + 60_000), (3, EXPIRES), (4, EXPIRES), (5, 0)]
        assert list(stores.log.expiries(feed, 0, 9)) == found
        assert list(stores.log.expiries(feed, 1, 3)) == found[1:3]
        assert list(stores.log.expiries(feed, 3, 3)) == []
        assert list(stores.log.expiries(f"{feed}0", 0, 9)) == []

    def test_a_round_is_kept_of_each_feed(self, stores: Stores, feed: str) -> None:
        """The last one that was stored."""
        rounds = rounds_in(stores.records)
        assert rounds.get(feed) is None
        for round_ in (Round(7, AT), Round(0, AT + 1), Round()):
            assert rounds.save(feed, round_)
            assert rounds.get(feed) == round_
        assert rounds.get(f"{feed}0") is None


class TestNumbers:
    def test_the_counter_goes_on_above(self, stores: Stores, feed: str) -> None:
        """Also of a feed that has none yet; and it never goes back."""
        stores.numbers.raise_head(feed, 41)
        assert stores.log.take(feed) == 42
        stores.numbers.raise_head(feed, 7)
        assert stores.log.take(feed) == 43

    def test_empty_pages_are_put_again_without_harm(self, stores: Stores, feed: str) -> None:
        """More than one batch of them, and a run that was killed puts them once more."""
        pages = [filler(number, at_ms=AT, expires_ms=EXPIRES) for number in range(3, 64)]
        stores.numbers.fill(feed, pages[:30])
        stores.numbers.fill(feed, pages)
        found = stores.log.read(feed, 0)
        assert [page.number for page in found] == list(range(3, 64))
        assert {(page.body, page.at_ms) for page in found} == {("", AT)}


NOW = 4_102_444_700_000  # in 2100: an engine deletes what has expired while a test looks


CLAIM = Claim("key ~!", "f" * 64, "a" * 32, 7, NOW + limits.CLAIM_MS)


class TestClaims:
    def test_a_claim_is_found(self, stores: Stores, feed: str) -> None:
        """Under its feed and key, as it was written."""
        assert stores.claims.find(feed, CLAIM.key, now_ms=NOW) is None
        assert stores.claims.claim(feed, CLAIM, now_ms=NOW) == CLAIM
        assert stores.claims.find(feed, CLAIM.key, now_ms=NOW) == CLAIM
        assert stores.claims.find(f"{feed}-other", CLAIM.key, now_ms=NOW) is None

    def test_the_first_claim_stands(self, stores: Stores, feed: str) -> None:
        """A second one learns the first one."""
        stores.claims.claim(feed, CLAIM, now_ms=NOW)
        second = replace(CLAIM, append_id="b" * 32, page=8)
        assert stores.claims.claim(feed, second, now_ms=NOW) == CLAIM

    def test_an_expired_claim_does_not_count(self, stores: Stores, feed: str) -> None:
        """It is not found, and the key can be claimed again."""
        stores.claims.claim(feed, CLAIM, now_ms=NOW)
        late = CLAIM.expires_ms
        assert stores.claims.find(feed, CLAIM.key, now_ms=late - 1) == CLAIM
        assert stores.claims.find(feed, CLAIM.key, now_ms=late) is None
        new = replace(CLAIM, page=9, expires_ms=late + limits.CLAIM_MS)
        assert stores.claims.claim(feed, new, now_ms=late - 1) == CLAIM
        assert stores.claims.claim(feed, new, now_ms=late) == new

    def test_a_claim_moves_once(self, stores: Stores, feed: str) -> None:
        """If two move it from the same page, the second gets the new page."""
        stores.claims.claim(feed, CLAIM, now_ms=NOW)
        moved = stores.claims.move(feed, CLAIM, 8)
        assert moved == replace(CLAIM, page=8)
        assert stores.claims.move(feed, CLAIM, 9) == moved
        assert stores.claims.move(feed, moved, 10) == replace(CLAIM, page=10)
        assert stores.claims.find(feed, CLAIM.key, now_ms=NOW) == replace(CLAIM, page=10)


TRACE = f"00-{'0af7' * 8}-{'b7ad' * 4}-01"


BODIES: list[tuple[str | bytes, str | bytes]] = [
    ("text", "other"),
    (b"\x78packed", b"\x78shorter"),
    (b"\x78packed", "now text"),
    ("text", b"\x78now packed"),
]


class TestRewrites:
    @pytest.mark.parametrize(("before", "after"), BODIES)
    def test_only_the_body_of_a_page_changes(
        self, stores: Stores, feed: str, before: str | bytes, after: str | bytes
    ) -> None:
        """Its append id, its time, its expiry, its trace and its neighbours stay."""
        written = Page(2, before, "ours", EXPIRES, EXPIRES + 1000, trace=TRACE, skipped=1)
        neighbour = Page(3, before, "theirs", EXPIRES, EXPIRES + 1000)
        for page in (written, neighbour):
            stores.log.put(feed, page)
        read = stores.log.read(feed, 1, 1)[0]

        assert stores.rewrites.rewrite_page(feed, read, after)
        assert stores.log.read(feed, 0) == [
            replace(written, body=after, append_id="", expires_ms=0),
            replace(neighbour, append_id="", expires_ms=0),
        ]
        assert stores.log.put(feed, replace(written, append_id="late")) == "ours"
        assert list(stores.log.expiries(feed, 1, 2)) == [(2, EXPIRES + 1000)]

    @on("memory", "sqlite", DYNAMODB_LOCAL)  # moto counts binary values as base64
    def test_the_largest_page_is_rewritten(self, stores: Stores, feed: str) -> None:
        """The body that was read and the new body fit one request."""
        before, after = b"x" * limits.PAGE_BYTES_MAX, b"y" * limits.ERASED_PAGE_BYTES_MAX
        stores.log.put(feed, Page(1, before, "ours", EXPIRES, EXPIRES))
        assert stores.rewrites.rewrite_page(feed, stores.log.read(feed, 0)[0], after)
        assert stores.log.read(feed, 0)[0].body == after

    def test_a_page_is_rewritten_once_or_not_at_all(self, stores: Stores, feed: str) -> None:
        """A repeated call finds its result; a page that is gone or other is left alone."""
        read = Page(1, "before", "", EXPIRES)
        assert not stores.rewrites.rewrite_page(feed, read, "after")
        assert stores.log.read(feed, 0) == []
        stores.log.put(feed, Page(1, "before", "ours", EXPIRES, EXPIRES))
        assert not stores.rewrites.rewrite_page(feed, replace(read, body="stale"), "after")
        assert stores.log.read(feed, 0)[0].body == "before"
        for _ in range(2):
            assert stores.rewrites.rewrite_page(feed, read, "after")
        assert stores.log.read(feed, 0)[0].body == "after"
        assert not stores.rewrites.rewrite_page(f"{feed}-other", read, "after")

    @pytest.mark.parametrize(("before", "after"), BODIES)
    def test_removed_parents_are_rewritten(
        self, stores: Stores, feed: str, before: str | bytes, after: str | bytes
    ) -> None:
        """Like pages: only stored ones that are as they were read."""
        removed = RemovedParents(4, before)
        assert not stores.rewrites.rewrite_removed_parents(feed, removed, after)
        assert stores.removed_parents.read(feed, 0, 9) == []
        stores.removed_parents.write(
            feed, [replace(removed, expires_ms=EXPIRES), RemovedParents(5, "{}")]
        )
        other = replace(removed, body="stale")
        assert not stores.rewrites.rewrite_removed_parents(feed, other, after)
        for _ in range(2):
            assert stores.rewrites.rewrite_removed_parents(feed, removed, after)
        found = stores.removed_parents.read(feed, 0, 9)
        assert found == [RemovedParents(4, after), RemovedParents(5, "{}")]

    def test_a_parked_message_is_rewritten(self, stores: Stores, feed: str) -> None:
        """Without a new version of its consumer, and only as it was read."""
        parked = Parked("0" * 24, '{"event":"update"}', "too long", EXPIRES, 3)
        other = replace(parked, id="1" * 24)
        changed = replace(parked, line='{"event":"delete"}', error="")
        assert not stores.rewrites.rewrite_parked(feed, "index", parked, changed)
        for version, each in enumerate((parked, other)):
            change = Change(Consumer(feed, "index", parked=version + 1), park=each)
            assert stores.consumers.write(feed, "index", version, change)
        stale = replace(parked, attempts=1)
        assert not stores.rewrites.rewrite_parked(feed, "index", stale, changed)
        for _ in range(2):
            assert stores.rewrites.rewrite_parked(feed, "index", parked, changed)
        assert list(stores.consumers.parked(feed, "index")) == [changed, other]
        consumer = stores.consumers.consumer(feed, "index")
        assert consumer is not None and consumer.version == 2

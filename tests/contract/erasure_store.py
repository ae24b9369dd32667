"""What every store of erasures keeps to: `ErasureStore` and `RewriteStore`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.contract.stores import DYNAMODB_LOCAL, Stores, on, unset
from tidings.core import limits
from tidings.core.consumers.consumer import Change, Consumer, Parked
from tidings.core.erasure.records import Erasure, Phase
from tidings.core.model.cursors import Place
from tidings.core.model.pages import Page
from tidings.core.state.removed_parents import RemovedParents

AT = 4_102_444_800_000  # in 2100
TRACE = f"00-{'0af7' * 8}-{'b7ad' * 4}-01"
FULL = Erasure(
    Place(2**33, 3, AT // 1000).encode(),
    "video",
    "a/ä€𝄞 b",
    "key 3k2m9c0q8xw1",
    'a request of "Ann"',
    AT,
    before=Place(7, 2, 5).encode(),
    as_parent=True,
    phase=Phase.ARCHIVE,
    page=2**32,
    through=2**33 + 1,
    until_ms=AT + 1,
    entries=1000,
    pages=12,
    parts=3,
    parked=2,
    texts=8,
    corrected=5,
    settled_ms=AT + 3,
    done_ms=AT + 2,
    final=True,
)
PLAIN = Erasure(Place(9, 0, AT // 1000 + 5).encode(), "video", "x", "ann", "a test", AT)


class TestErasures:
    def test_a_record_comes_back_whole(self, stores: Stores, feed: str) -> None:
        """Every field, under its feed alone, as the next version."""
        assert unset(FULL) == ["version"]
        assert stores.erasures.erasure(feed, FULL.id) is None
        for erasure in (FULL, PLAIN):
            assert stores.erasures.save(feed, erasure)
            assert stores.erasures.erasure(feed, erasure.id) == replace(erasure, version=1)
        assert stores.erasures.erasure(f"{feed}-other", FULL.id) is None

    def test_records_are_listed_by_their_pages(self, stores: Stores, feed: str) -> None:
        """Not by the times in their ids; the records of this feed alone."""
        assert list(stores.erasures.erasures(feed)) == []
        for erasure in (FULL, PLAIN):
            assert stores.erasures.save(feed, erasure)
        assert stores.erasures.save(f"{feed}-other", FULL)
        assert [each.id for each in stores.erasures.erasures(feed)] == [PLAIN.id, FULL.id]
        assert [each.id for each in stores.erasures.erasures(feed, PLAIN.id)] == [FULL.id]
        assert [each.id for each in stores.erasures.erasures(feed, limit=1)] == [PLAIN.id]

    def test_records_that_are_done_are_only_in_the_list(self, stores: Stores, feed: str) -> None:
        """A job does not read them again and again."""
        for erasure in (FULL, PLAIN):
            assert stores.erasures.save(feed, erasure)
        done = replace(PLAIN, phase=Phase.DONE, version=1)
        assert stores.erasures.save(feed, done)
        assert [each.id for each in stores.erasures.unfinished(feed)] == [FULL.id]
        assert list(stores.erasures.unfinished(f"{feed}-other")) == []
        assert list(stores.erasures.erasures(feed)) == [
            replace(done, version=2),
            replace(FULL, version=1),
        ]
        assert stores.erasures.erasure(feed, PLAIN.id) == replace(done, version=2)
        assert not stores.erasures.save(feed, PLAIN)

    def test_two_who_write_at_once_cannot_undo_each_other(self, stores: Stores, feed: str) -> None:
        """The second one finds another version, and nothing is written."""
        assert not stores.erasures.save(feed, replace(PLAIN, version=1))
        assert stores.erasures.save(feed, PLAIN)
        assert not stores.erasures.save(feed, replace(PLAIN, entries=7))
        later = replace(PLAIN, version=1, phase=Phase.DONE, object_id="")
        assert stores.erasures.save(feed, later)
        assert not stores.erasures.save(feed, later)
        assert stores.erasures.erasure(feed, PLAIN.id) == replace(later, version=2)


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
        written = Page(2, before, "ours", AT, AT + 1000, trace=TRACE, skipped=1)
        neighbour = Page(3, before, "theirs", AT, AT + 1000)
        for page in (written, neighbour):
            stores.log.put(feed, page)
        read = stores.log.read(feed, 1, 1)[0]

        assert stores.rewrites.rewrite_page(feed, read, after)
        assert stores.log.read(feed, 0) == [
            replace(written, body=after, append_id="", expires_ms=0),
            replace(neighbour, append_id="", expires_ms=0),
        ]
        assert stores.log.put(feed, replace(written, append_id="late")) == "ours"
        assert list(stores.log.expiries(feed, 1, 2)) == [(2, AT + 1000)]

    @on("memory", "sqlite", DYNAMODB_LOCAL)  # moto counts binary values as base64
    def test_the_largest_page_is_rewritten(self, stores: Stores, feed: str) -> None:
        """The body that was read and the new body fit one request."""
        before, after = b"x" * limits.PAGE_BYTES_MAX, b"y" * limits.ERASED_PAGE_BYTES_MAX
        stores.log.put(feed, Page(1, before, "ours", AT, AT))
        assert stores.rewrites.rewrite_page(feed, stores.log.read(feed, 0)[0], after)
        assert stores.log.read(feed, 0)[0].body == after

    def test_a_page_is_rewritten_once_or_not_at_all(self, stores: Stores, feed: str) -> None:
        """A repeated call finds its result; a page that is gone or other is left alone."""
        read = Page(1, "before", "", AT)
        assert not stores.rewrites.rewrite_page(feed, read, "after")
        assert stores.log.read(feed, 0) == []
        stores.log.put(feed, Page(1, "before", "ours", AT, AT))
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
            feed, [replace(removed, expires_ms=AT), RemovedParents(5, "{}")]
        )
        other = replace(removed, body="stale")
        assert not stores.rewrites.rewrite_removed_parents(feed, other, after)
        for _ in range(2):
            assert stores.rewrites.rewrite_removed_parents(feed, removed, after)
        found = stores.removed_parents.read(feed, 0, 9)
        assert found == [RemovedParents(4, after), RemovedParents(5, "{}")]

    def test_a_parked_message_is_rewritten(self, stores: Stores, feed: str) -> None:
        """Without a new version of its consumer, and only as it was read."""
        parked = Parked("0" * 24, '{"event":"update"}', "too long", AT, 3)
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

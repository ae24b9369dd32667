"""What every store of summaries keeps to: `TagStore`."""

from __future__ import annotations

from tests.contract.removed_parents_store import EXPIRES
from tests.contract.state_store import row
from tests.contract.stores import Stores
from tidings.core.changeagent.tag_index import Summary


def summary(first: int, last: int) -> Summary:
    return Summary(first, last, bytes([first % 256, 0, 255]))


class TestTags:
    def test_summaries_come_back_as_they_were(self, stores: Stores, feed: str) -> None:
        """In the order of the pages they end with, whatever the digits of their numbers."""
        written = [summary(1, 9), summary(10, 10), summary(11, 200), summary(201, 2**40 - 1)]
        stores.tags.write(feed, list(reversed(written)))

        assert stores.tags.read(feed, 0, 100) == written
        assert stores.tags.read(feed, 9, 100) == written[1:]
        assert stores.tags.read(feed, 10, 1) == written[2:3]
        assert stores.tags.read(feed, 2**40 - 1, 100) == []

    def test_the_last_page_is_known(self, stores: Stores, feed: str) -> None:
        """The last page with a summary; 0 before the first."""
        assert stores.tags.last(feed) == 0
        stores.tags.write(feed, [summary(1, 64), summary(65, 300)])
        assert stores.tags.last(feed) == 300

    def test_written_again_it_is_replaced(self, stores: Stores, feed: str) -> None:
        """Two concurrent runs do no harm; the expiry is not returned."""
        stores.tags.write(feed, [summary(1, 64)])
        stores.tags.write(feed, [Summary(1, 64, b"\0", EXPIRES)])
        assert stores.tags.read(feed, 0, 10) == [Summary(1, 64, b"\0")]

    def test_many_are_all_written(self, stores: Stores, feed: str) -> None:
        """More than a batch."""
        written = [summary(page, page) for page in range(1, 61)]
        stores.tags.write(feed, written)
        assert stores.tags.read(feed, 0, 100) == written

    def test_they_stay_apart_from_rows_and_other_feeds(self, stores: Stores, feed: str) -> None:
        """A copy of the state never meets them, nor does another feed."""
        stores.tags.write(feed, [summary(1, 64)])
        stores.tags.write(feed, [])
        stores.state.write(feed, [row("video/x")])
        assert stores.state.read(feed, row("video/x").bucket) == [row("video/x")]
        assert stores.removed_parents.read(feed, 0, 2**40 - 1) == []
        assert stores.tags.read(f"{feed}-other", 0, 10) == []

"""What every store of feeds' records keeps to: `FeedStore`."""

from __future__ import annotations

from dataclasses import replace

from tests.contract.stores import Stores, unset
from tidings.core.feeds.records import TABLES_DROPPED, TABLES_PENDING, FeedRecord, Removal

REMOVAL = Removal(3, 1_763, "1:log/4", 1, (("log", 7), ("state", 2)), TABLES_PENDING, 1_799)


def record(name: str) -> FeedRecord:
    """Return a record of *name* with every field."""
    done = Removal(2, 5, passes=2, tables=TABLES_DROPPED, done_ms=6)
    return FeedRecord(name, 3, False, 1_760, 1_763, "key 1", 2**39, (done, REMOVAL))


class TestFeeds:
    def test_a_name_without_a_feed_has_no_record(self, stores: Stores, feed: str) -> None:
        assert stores.feeds.record(feed) is None

    def test_a_record_is_kept_whole(self, stores: Stores, feed: str) -> None:
        """Every field, under its name alone, as the next version."""
        assert unset(record(feed)) == ["version"]
        assert unset(REMOVAL) == []
        assert stores.feeds.save(record(feed))
        assert stores.feeds.record(feed) == replace(record(feed), version=1)
        assert stores.feeds.record(f"{feed}-other") is None

    def test_the_second_of_two_writers_is_refused(self, stores: Stores, feed: str) -> None:
        """Also the first write of a name: two requests must not both create the feed."""
        assert stores.feeds.save(FeedRecord(feed))
        assert not stores.feeds.save(record(feed))
        assert stores.feeds.save(replace(record(feed), version=1))
        assert not stores.feeds.save(replace(record(feed), version=1))
        assert not stores.feeds.save(replace(record(feed), version=7))
        assert stores.feeds.record(feed) == replace(record(feed), version=2)

    def test_records_are_listed_by_name_in_parts(self, stores: Stores, feed: str) -> None:
        names = [f"{feed}-{each:03}" for each in range(25)]
        for name in reversed(names):
            assert stores.feeds.save(record(name))
        found: list[str] = []
        after = f"{feed}-"
        while part := stores.feeds.records(after, 10):
            assert len(part) <= 10
            found += [each.name for each in part]
            after = found[-1]
        assert [name for name in found if name in names] == names
        rest = stores.feeds.records(names[-1], 1)  # of other tests, which share DynamoDB Local
        assert not {each.name for each in rest} & {*names}

    def test_unfinished_removals_are_found(self, stores: Stores, feed: str) -> None:
        """A record is found until its last removal is done, and with all of its fields."""
        live = FeedRecord(f"{feed}-live")
        assert stores.feeds.save(live)
        assert stores.feeds.save(record(feed))
        stored = replace(record(feed), version=1)
        assert stored in stores.feeds.unfinished()
        assert live.name not in [each.name for each in stores.feeds.unfinished()]
        dropped = stored.with_removal(replace(REMOVAL, tables=TABLES_DROPPED))
        assert stores.feeds.save(dropped)
        assert feed not in [each.name for each in stores.feeds.unfinished()]

"""What every store of the feeds to visit keeps to: `DueFeeds`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.contract.stores import Stores
from tidings.core.changeagent.documents import OperatorDocument
from tidings.core.consumers.consumer import Change, Consumer, Note
from tidings.core.log.due import NEXT_SWEEP, Due
from tidings.core.model.filters import Filter
from tidings.core.settings.profiles import Profile

NOW, LATER = 1_763_000_000_000, 1_763_000_060_000


def due(stores: Stores, feed: str, now_ms: int = NOW) -> Due | None:
    """Return the visit of *feed* that is due at *now_ms*."""
    return next((each for each in stores.due.due(now_ms) if each.feed == feed), None)


def settle(stores: Stores, feed: str, next_ms: int | None) -> None:
    visit = due(stores, feed)
    assert visit is not None
    assert stores.due.settle(visit, next_ms, head=stores.log.head(feed))


def register(stores: Stores, feed: str) -> None:
    consumer = Consumer(feed, "billing", Filter())
    assert stores.consumers.write(feed, "billing", 0, Change(consumer))


def pause(stores: Stores, feed: str) -> None:
    consumer = stores.consumers.consumer(feed, "billing")
    assert consumer is not None
    paused = Change(replace(consumer, paused=True), Note(NOW, "ops", "paused", "test"))
    assert stores.consumers.write(feed, "billing", consumer.version, paused)


CHANGES: dict[str, Callable[[Stores, str], object]] = {
    "number of the log": lambda stores, feed: stores.log.take(feed),
    "jump of the log": lambda stores, feed: stores.numbers.raise_head(feed, 1_000),
    "profile": lambda stores, feed: stores.profiles.save(feed, Profile(max_age_s=3_600)),
    "document": lambda stores, feed: stores.operator_documents.write(
        feed, "configuration", OperatorDocument("{}")
    ),
    "new consumer": register,
    "change of a consumer": pause,
}


class TestDueFeeds:
    def test_a_new_feed_is_not_due(self, stores: Stores, feed: str) -> None:
        assert due(stores, feed) is None

    def test_a_marked_feed_is_due_until_it_is_settled(self, stores: Stores, feed: str) -> None:
        """Other feeds are not, and a mark may be repeated."""
        for _ in range(2):
            stores.due.mark(feed)
        assert due(stores, feed) is not None
        assert due(stores, f"{feed}-other") is None
        settle(stores, feed, None)
        assert due(stores, feed, LATER) is None

    def test_a_feed_becomes_due_at_its_time(self, stores: Stores, feed: str) -> None:
        stores.due.mark(feed)
        settle(stores, feed, LATER)
        assert due(stores, feed, LATER - 1) is None
        visit = due(stores, feed, LATER)
        assert visit is not None and visit.at_ms == LATER

    def test_a_mark_counts_before_the_time(self, stores: Stores, feed: str) -> None:
        stores.due.mark(feed)
        settle(stores, feed, LATER)
        stores.due.mark(feed)
        visit = due(stores, feed)
        assert visit is not None and visit.at_ms == NEXT_SWEEP

    @pytest.mark.parametrize("next_ms", [None, LATER])
    def test_a_feed_that_was_marked_during_the_visit_stays_due(
        self, stores: Stores, feed: str, next_ms: int | None
    ) -> None:
        """Whether it was due because of a mark or because of its time."""
        for _ in range(2):
            stores.due.mark(feed)
            visit = due(stores, feed)
            assert visit is not None
            stores.due.mark(feed)
            assert not stores.due.settle(visit, next_ms, head=0)
            assert due(stores, feed) is not None
            settle(stores, feed, NOW)

    @pytest.mark.parametrize("what", CHANGES)
    def test_a_change_makes_the_feed_due(self, stores: Stores, feed: str, what: str) -> None:
        """Also during a visit, whatever the visit has read before."""
        if what == "change of a consumer":
            register(stores, feed)
        stores.due.mark(feed)
        visit, head = due(stores, feed), stores.log.head(feed)
        assert visit is not None
        settle(stores, feed, None)

        CHANGES[what](stores, feed)

        assert not stores.due.settle(visit, None, head=head)
        assert due(stores, feed) is not None

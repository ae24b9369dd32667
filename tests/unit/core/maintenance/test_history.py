"""Rule 9.10: samples of the last hour, without a read of idle feeds."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tidings.core import limits
from tidings.core.errors import FeedDeleted
from tidings.core.maintenance.history import Figures, History

MINUTE = limits.SWEEP_EVERY_MS


@dataclass
class Feeds:
    """Feeds with figures that a test changes; *looked* has each read."""

    figures: dict[str, Figures] = field(default_factory=dict)
    looked: list[str] = field(default_factory=list)
    now_ms: int = 0

    def __post_init__(self) -> None:
        self.history = History(self.look)

    def look(self, feed: str) -> Figures:
        self.looked.append(feed)
        if feed not in self.figures:
            raise FeedDeleted(feed)
        return self.figures[feed]

    def change(self, feed: str, *, operations: int = 0, sent: int = 0, **lags: int) -> None:
        old = self.figures.get(feed, Figures(0, {}))
        self.figures[feed] = Figures(old.head + 1, {"state": 0, **lags})
        self.history.count(feed, operations=operations, events=sent)

    def pass_minutes(self, count: int = 1) -> None:
        for _ in range(count):
            self.now_ms += MINUTE
            self.looked.clear()
            self.history.sample(self.now_ms)

    def column(self, feed: str, name: str) -> list[Any]:
        return [getattr(each, name) for each in self.history.samples(feed)]


@pytest.fixture
def feeds() -> Feeds:
    return Feeds()


def test_9_10_a_sample_counts_since_the_one_before_it(feeds: Feeds) -> None:
    """Operations that are counted while no sample is taken are in the next one."""
    for sent in (4, 0, 6):
        feeds.change("main", operations=7, sent=sent)
        feeds.history.count("main", operations=3)
        feeds.pass_minutes()
    assert feeds.column("main", "operations") == [10, 10, 10]
    assert feeds.column("main", "events") == [4, 0, 6]
    assert feeds.column("main", "ms") == [MINUTE, 2 * MINUTE, 3 * MINUTE]
    assert feeds.column("main", "head") == [1, 2, 3]


def test_9_10_an_idle_feed_is_not_read(feeds: Feeds) -> None:
    """Its samples are those of its last change, without operations; a lag is read until it ends."""
    feeds.change("main", operations=5, state=2)
    feeds.pass_minutes(2)
    assert feeds.looked == ["main"]
    feeds.figures["main"] = replace(feeds.figures["main"], lags={"state": 0})
    feeds.pass_minutes()
    assert feeds.looked == ["main"]
    feeds.pass_minutes(3)
    assert feeds.looked == []
    assert feeds.column("main", "operations") == [5, 0, 0, 0, 0, 0]
    assert feeds.column("main", "lags") == [{"state": lag} for lag in (2, 2, 0, 0, 0, 0)]
    assert feeds.history.samples("other") == []


def test_9_10_only_an_hour_is_kept(feeds: Feeds) -> None:
    """A busy feed and an idle one have 60 samples each."""
    feeds.change("idle", operations=1)
    for _ in range(70):
        feeds.change("main", operations=1)
        feeds.pass_minutes()
    for feed in ("main", "idle"):
        times = feeds.column(feed, "ms")
        assert times == [at * MINUTE for at in range(11, 71)]
    assert set(feeds.column("idle", "operations")) == {0}


def test_9_10_the_feeds_that_changed_last_are_kept(
    feeds: Feeds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if more of them change in one minute; a deleted feed is forgotten, with its counts."""
    monkeypatch.setattr(limits, "FEEDS_NAMED", 3)
    for name in "abcd":
        feeds.change(name)
    feeds.pass_minutes()
    assert feeds.looked == ["b", "c", "d"]
    feeds.change("e")
    feeds.change("c")
    feeds.pass_minutes()
    kept = [name for name in "abcde" if feeds.history.samples(name)]
    assert kept == ["c", "d", "e"]
    feeds.history.count("c", operations=1)
    del feeds.figures["c"]
    feeds.pass_minutes()
    assert feeds.history.samples("c") == [] and set(feeds.history._counts) == {"d", "e"}


def test_9_10_a_sample_has_the_largest_lags(feeds: Feeds, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a name that lags in one sample is in all of them."""
    monkeypatch.setattr(limits, "HISTORY_LAGS", 2)
    feeds.change("main", a=1, b=3, c=2)
    feeds.pass_minutes()
    feeds.change("main", a=1)
    feeds.pass_minutes()
    first, second = feeds.column("main", "lags")
    assert first == {"state": 0, "a": 0, "b": 3, "c": 2}
    assert second == {"state": 0, "a": 1, "b": 0, "c": 0}

"""What every way to another feed keeps to: `Upstream`."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Protocol

import pytest

from tidings.core import limits
from tidings.core.errors import LogFellOff, OtherLog, Unavailable
from tidings.core.model.cursors import Place
from tidings.core.model.filters import Filter
from tidings.core.replication.source import ALL, Selection
from tidings.core.replication.wire import ReplicationBatch, Upstream
from tidings.core.state.rows import bucket_of
from tidings.core.state.sums import digest

START = Place(0, 0, 0)
COUNTED_S = 30.0  # a server counts after the first request
VIDEOS = Selection(Filter(frozenset({"video"})))


class UpstreamFeed(Protocol):
    """A feed that *upstream* reads at *url*, with operations that change it."""

    upstream: Upstream
    url: str

    def post(self, kind: str, *ids: str, event: str = "update") -> None:
        """Post one page."""
        ...

    def projected(self) -> None:
        """Return when its state has everything."""
        ...

    def raise_floor(self, page: int) -> None: ...


def pages(
    upstream_feed: UpstreamFeed, after: Place = START, selection: Selection = ALL
) -> ReplicationBatch:
    size = limits.BATCH_BYTES_MIN
    return upstream_feed.upstream.pages(upstream_feed.url, after, selection, size=size, block_s=0)


class UpstreamContract:
    def test_D3_D4_D19_a_log_is_told_from_the_beginning_and_behind_a_page(
        self, upstream_feed: UpstreamFeed
    ) -> None:
        """Whole pages; none at the end, which is not an error."""
        upstream_feed.post("video", "a", "b")
        upstream_feed.post("user", "c")
        found = pages(upstream_feed)
        assert [(page.number, len(page.lines)) for page in found.pages] == [(1, 2), (2, 1)]
        assert (found.status.floor, found.status.head) == (1, 2)
        assert pages(upstream_feed, found.pages[0].end).pages == found.pages[1:]
        assert pages(upstream_feed, found.pages[1].end).pages == ()

    def test_D14_a_selection_is_told_with_every_page(self, upstream_feed: UpstreamFeed) -> None:
        """Omitted entries are counted."""
        upstream_feed.post("video", "a")
        upstream_feed.post("user", "c")
        found = pages(upstream_feed, selection=VIDEOS)
        assert [list(page.entries()) for page in found.pages][1] == []
        assert (len(found.pages), found.filtered) == (2, 1)

    def test_D16_D17_D21_what_cannot_be_gone_on_from_is_told(
        self, upstream_feed: UpstreamFeed
    ) -> None:
        """A log that begins later, and another log."""
        for name in ("a", "b", "c"):
            upstream_feed.post("video", name)
        first, second = (page.end for page in pages(upstream_feed).pages[:2])
        with pytest.raises(OtherLog):
            pages(upstream_feed, replace(second, seconds=second.seconds + 1))
        upstream_feed.raise_floor(3)
        assert [page.number for page in pages(upstream_feed, second).pages] == [3]
        with pytest.raises(LogFellOff) as error:
            pages(upstream_feed, first)
        assert error.value.floor == 3

    def test_rows_are_told_with_what_was_deleted(self, upstream_feed: UpstreamFeed) -> None:
        """By bucket, after a key; with the position of the state before."""
        upstream_feed.post("video", "a")
        upstream_feed.post("video", "a", event="delete")
        upstream_feed.projected()
        bucket = bucket_of("video/a")
        found = upstream_feed.upstream.rows(upstream_feed.url, bucket, None, ALL)
        assert [(row.key, row.page, row.expires_ms > 0) for row in found.rows] == [
            ("video/a", 2, True)
        ]
        assert (found.status.state, found.after) == (2, None)
        assert upstream_feed.upstream.rows(upstream_feed.url, bucket, "video/a", ALL).rows == ()

    def test_20_5_sums_are_told_with_their_page(self, upstream_feed: UpstreamFeed) -> None:
        """The sums of existing objects, by bucket."""
        upstream_feed.post("video", "a", "b")
        upstream_feed.post("video", "b", event="delete")
        upstream_feed.projected()
        deadline = time.monotonic() + COUNTED_S
        while None in (found := upstream_feed.upstream.sums(upstream_feed.url)).sums:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert found.page == 2
        assert {at: each for at, each in enumerate(found.sums) if each} == {
            bucket_of("video/a"): digest("video/a", 1, 0)
        }

    def test_D12_nobody_there_is_unavailable(self, upstream_feed: UpstreamFeed) -> None:
        """Whatever is asked."""
        with pytest.raises(Unavailable):
            upstream_feed.upstream.rows("http://127.0.0.1:1/feeds/main", 0, None, ALL)

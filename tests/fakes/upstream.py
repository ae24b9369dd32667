"""Feeds of this process, at addresses, as their copies see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.core.errors import LogFellOff, OtherLog, Rejected, Unavailable, UpstreamRefused
from tidings.core.state.sums import PageSums

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidings.core.model.cursors import Place
    from tidings.core.replication.serve import ReplicationReader
    from tidings.core.replication.source import Selection
    from tidings.core.replication.wire import ReplicationBatch, Rows
    from tidings.core.state.sums import SumReader


class MemoryUpstream:
    """Implements `Upstream`.

    *feeds* are the sources at each address, and *sums* those of its state. With *waits*, a request
    waits for new pages, at most some seconds; without it nothing waits.
    """

    def __init__(
        self,
        feeds: Mapping[str, tuple[ReplicationReader, str]],
        waits: Callable[[int], object] = lambda seconds: None,
        sums: Mapping[str, SumReader] | None = None,
    ) -> None:
        self._feeds, self._waits, self._sums = feeds, waits, sums or {}

    def pages(
        self, url: str, after: Place, selection: Selection, *, size: int, block_s: int
    ) -> ReplicationBatch:
        replication_reader, feed = self._at(url)
        try:
            found = replication_reader.pages(feed, after, selection, size)
            if not (found.pages or found.pending or found.status.ended) and block_s:
                self._waits(block_s)
                found = replication_reader.pages(feed, after, selection, size)
        except (LogFellOff, OtherLog):
            raise
        except Rejected as error:
            raise UpstreamRefused(str(error)) from None
        return found

    def rows(self, url: str, bucket: int, after: str | None, selection: Selection) -> Rows:
        replication_reader, feed = self._at(url)
        return replication_reader.rows(feed, bucket, after, selection)

    def sums(self, url: str) -> PageSums:
        """Return no sums if none are given, like a release without sums."""
        _, feed = self._at(url)
        if url not in self._sums:
            raise UpstreamRefused(f"{url} has no sums")
        sums = self._sums[url].read(feed)
        return PageSums(sums.page, sums.totals)

    def _at(self, url: str) -> tuple[ReplicationReader, str]:
        if url not in self._feeds:
            raise Unavailable(f"{url} did not answer")
        return self._feeds[url]

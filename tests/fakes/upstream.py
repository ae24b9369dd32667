"""Feeds of this process, at addresses, as those who copy them see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.core.errors import LogFellOff, OtherLog, Rejected, Unavailable, UpstreamRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidings.core.model.cursors import Place
    from tidings.core.replication.selection import Selection
    from tidings.core.replication.serve import Portioner
    from tidings.core.replication.wire import Portion, Rows


class MemoryUpstream:
    """
    Implements `Upstream`.

    *feeds* are who tells which feed at each address. *waits* for some seconds where there is no
    news, and is over before that as soon as there is some; without it nothing waits.
    """

    def __init__(
        self,
        feeds: Mapping[str, tuple[Portioner, str]],
        waits: Callable[[int], object] = lambda seconds: None,
    ) -> None:
        self._feeds, self._waits = feeds, waits

    def pages(
        self, url: str, after: Place, selection: Selection, *, size: int, block_s: int
    ) -> Portion:
        portioner, feed = self._at(url)
        try:
            found = portioner.pages(feed, after, selection, size)
            if not (found.pages or found.pending or found.standing.ended) and block_s:
                self._waits(block_s)
                found = portioner.pages(feed, after, selection, size)
        except (LogFellOff, OtherLog):
            raise
        except Rejected as error:
            raise UpstreamRefused(str(error)) from None
        return found

    def rows(self, url: str, bucket: int, after: str | None, selection: Selection) -> Rows:
        portioner, feed = self._at(url)
        return portioner.rows(feed, bucket, after, selection)

    def _at(self, url: str) -> tuple[Portioner, str]:
        if url not in self._feeds:
            raise Unavailable(f"{url} did not answer")
        return self._feeds[url]

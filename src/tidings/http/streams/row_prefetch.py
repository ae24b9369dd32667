"""Prefetch rows of the state for a client that copies the state, while earlier rows are sent.

The order and the content of the reads do not change, only their time. Rows are prefetched only for
a few clients at a time, so that memory stays bounded. For other clients, a read begins after the
earlier rows were sent.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import BoundedSemaphore
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.state.rows import Lines, Overwritten, Row

if TYPE_CHECKING:
    from tidings.core.state.rows import Difference, StateStore

_COPIES = 8  # copies of the state that are prefetched at a time; each holds three reads of 1 MB
_BUCKETS = 2  # buckets that are read in advance, in parallel with the current bucket
_THREADS = 4  # with more parallel queries, no copy is faster (measured)

_RowsAt = tuple[str, int, str | None]


class ReadAhead:
    """A prefetcher for a limited number of copies of the state at a time."""

    def __init__(self, copies: int = _COPIES) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="ahead")
        self._copies = BoundedSemaphore(copies)

    def __call__(self, states: StateStore) -> StateStore:
        """Return a store that reads from *states* and prefetches rows until the end of one copy.

        Return *states* itself if too many copies are being prefetched.
        """
        if not self._copies.acquire(blocking=False):
            return states
        return _CopyAhead(states, self._threads, self._copies.release)


class _CopyAhead:
    """Implements `StateStore` for one reader that reads bucket after bucket."""

    def __init__(
        self, states: StateStore, threads: ThreadPoolExecutor, release: Callable[[], None]
    ) -> None:
        self._states, self._threads = states, threads
        self._begun: dict[_RowsAt, Future[Lines]] = {}
        self._end = weakref.finalize(self, release)

    def lines(self, feed: str, bucket: int, after: str | None = None) -> Lines:
        begun = self._begun.pop((feed, bucket, after), None)
        if not self._end.alive:
            return self._states.lines(feed, bucket, after)
        for following in range(bucket + 1, min(bucket + 1 + _BUCKETS, limits.BUCKETS)):
            self._begin((feed, following, None))
        lines = begun.result() if begun is not None else self._states.lines(feed, bucket, after)
        if lines.after is not None:
            self._begin((feed, bucket, lines.after))
        elif bucket == limits.BUCKETS - 1:
            self._end()
        return lines

    def _begin(self, at: _RowsAt) -> None:
        if at not in self._begun:
            self._begun[at] = self._threads.submit(self._states.lines, *at)

    def read(self, feed: str, bucket: int, after: str | None = None) -> list[Row]:
        return self._states.read(feed, bucket, after)

    def find(self, feed: str, keys: Sequence[str]) -> list[Row]:
        return self._states.find(feed, keys)

    def write(self, feed: str, rows: Sequence[Row]) -> list[Overwritten | None]:
        return self._states.write(feed, rows)

    def repair(self, feed: str, differences: Sequence[Difference]) -> list[bool]:
        return self._states.repair(feed, differences)

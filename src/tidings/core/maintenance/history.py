"""Samples of the figures of feeds, one a minute for the last hour, in the memory of a process.

A feed is read only after it has changed, or while it has a lag, so an idle feed costs nothing.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.errors import FeedDeleted, UnknownFeed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Figures:
    """The last page of a feed now, and lags in pages.

    A lag has the name of a follower, or `consumer` and the name of a consumer; the followers are
    first.
    """

    head: int
    lags: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Sample:
    """The figures at *ms*, and the numbers of *operations* and *events* since the sample before it.

    *lags* has the largest lags that are not 0; `samples` adds those that are 0 for a time.
    """

    ms: int
    operations: int
    events: int
    head: int
    lags: Mapping[str, int]


@dataclass(slots=True)
class _Counts:
    """The operations of a feed, and the events that were sent, since its count began."""

    operations: int = 0
    events: int = 0


@dataclass(slots=True)
class _Kept:
    """The samples of a feed, without those of idle minutes, and the counts of the last sample."""

    names: Sequence[str] = ()
    counts: _Counts = field(default_factory=_Counts)
    samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=limits.HISTORY_SAMPLES + 1))

    @property
    def lags(self) -> bool:
        return bool(self.samples and self.samples[-1].lags)


class History:
    """The samples of at most `limits.FEEDS_NAMED` feeds: those that have changed last.

    *look* reads the figures of a feed, and raises FeedDeleted for a feed that was deleted. One
    thread at a time calls `sample`, and one at a time `count`. No method waits for a lock.
    """

    def __init__(self, look: Callable[[str], Figures]) -> None:
        self._look = look
        self._changed: dict[str, None] = {}  # feeds that have changed, the last one last
        self._counts: dict[str, _Counts] = {}
        self._times: deque[int] = deque(maxlen=limits.HISTORY_SAMPLES)
        self._kept: dict[str, _Kept] = {}

    def count(self, feed: str, *, operations: int = 0, events: int = 0) -> None:
        """Count what happened on *feed*, and let the next `sample` read the feed."""
        counts = self._counts.setdefault(feed, _Counts())
        counts.operations += operations
        counts.events += events
        self._changed.pop(feed, None)
        self._changed[feed] = None

    def sample(self, now_ms: int, late: Iterable[str] = ()) -> None:
        """Add a sample of each feed that has changed or lags; *late* are feeds that may lag.

        Raises:
            Unavailable: a store does not answer; some feeds have no sample of this minute.
        """
        changed = [*self._changed]
        for feed in changed:
            self._changed.pop(feed, None)
        lagging = [feed for feed, kept in [*self._kept.items()] if kept.lags]
        due = [*dict.fromkeys((*lagging, *late, *changed))]
        self._times.append(now_ms)
        for feed in due[-limits.FEEDS_NAMED :]:
            self._add(feed, now_ms)
        for feed in due[: -limits.FEEDS_NAMED]:
            self._forget(feed)

    def samples(self, feed: str) -> list[Sample]:
        """Return the samples of *feed*, the oldest first, with the same names of lags in each.

        The result is empty if the feed has not changed since the start of the process, or not for
        long while many others have.
        """
        kept, times = self._kept.get(feed), [*self._times]
        if kept is None or not times:
            return []
        known = [*kept.samples]
        last = next((each for each in reversed(known) if each.ms < times[0]), None)
        by_ms = {each.ms: each for each in known}
        found: list[Sample] = []
        for ms in times:
            last = by_ms.get(ms) or (last and replace(last, ms=ms, operations=0, events=0))
            if last is not None:
                found.append(last)
        names = [name for each in found for name in each.lags]
        zeros = dict.fromkeys((*kept.names, *names), 0)
        return [replace(each, lags={**zeros, **each.lags}) for each in found]

    def _add(self, feed: str, now_ms: int) -> None:
        counts = replace(self._counts.setdefault(feed, _Counts()))
        try:
            now = self._look(feed)
        except (FeedDeleted, UnknownFeed):
            self._forget(feed)
            return
        kept = self._kept.pop(feed, None) or _Kept()
        # At most `limits.HISTORY_LAGS` lags: those that are not 0, the largest first.
        some = sorted(((pages, name) for name, pages in now.lags.items() if pages), reverse=True)
        sample = Sample(
            now_ms,
            counts.operations - kept.counts.operations,
            counts.events - kept.counts.events,
            now.head,
            {name: pages for pages, name in some[: limits.HISTORY_LAGS]},
        )
        kept.names, kept.counts = [*now.lags][: limits.HISTORY_LAGS], counts
        kept.samples.append(sample)
        self._kept[feed] = kept
        while len(self._kept) > limits.FEEDS_NAMED:
            self._forget(next(iter([*self._kept])))

    def _forget(self, feed: str) -> None:
        self._kept.pop(feed, None)
        self._counts.pop(feed, None)

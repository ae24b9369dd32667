"""
Comparing a chained feed with its upstream, by the sums of both states at one page (PROTOCOL 20).

Our sums say what the follower `state` has made of the log. Whether the rows are so still, nobody
knows who does not read them: each time, those of one bucket are counted too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.errors import BrokenPortion, Unavailable, UpstreamRefused
from tidings.core.state.stores import bucket_rows
from tidings.core.state.sums import MODULO, digest

if TYPE_CHECKING:
    from tidings.core.effects import Clock, Count
    from tidings.core.replication.bootstrap import Bootstrapper
    from tidings.core.replication.replica import Relay
    from tidings.core.replication.stores import Upstream
    from tidings.core.state.sum_reader import SumReader, ToldSums


@dataclass(slots=True)
class Comparison:
    """
    Every `limits.RELAY_COMPARE_MS` the upstream is asked for its sums. Pages behind theirs wait,
    for seconds, until our state stands at the same page. Where a bucket differs then, its rows are
    taken from the upstream.

    *waits* is how often it may still wait, 0 while none is under way.
    """

    upstream: Upstream
    sums: SumReader
    bootstrapper: Bootstrapper
    clock: Clock
    count: Count
    waits: int = 0
    _theirs: ToldSums | None = None
    _next_ms: int = 0

    def begin(self, relay: Relay) -> None:
        """If it is time, and all that the upstream has is here."""
        due_ms = max(relay.compared_ms + limits.RELAY_COMPARE_MS, self._next_ms)
        if not self.waits and self.clock() >= due_ms:
            self.waits = limits.RELAY_COMPARE_WAITS

    def stops(self, relay: Relay) -> bool:
        """Whether nothing may be read now."""
        return self.waits > 0 and not (self._theirs and relay.checkpoint < self._theirs.page)

    def allows(self, page: int) -> bool:
        """Whether *page* may be appended now."""
        return self._theirs is None or page <= self._theirs.page

    def step(self, relay: Relay, url: str) -> Relay | None:
        """
        *relay* once it is done; None: not yet.

        Where somebody does not answer, the next comparison does it.

        Raises:
            LeaseLost: somebody else writes the state.
        """
        self.waits -= 1
        try:
            found = self._compared(relay, url)
        except (Unavailable, BrokenPortion, UpstreamRefused):  # an older release has no sums
            self.waits = 0
            found = None
        if not self.waits:
            self._theirs, self._next_ms = None, self.clock() + limits.RELAY_COMPARE_MS
        return found

    def _compared(self, relay: Relay, url: str) -> Relay | None:
        if self._theirs is None:
            theirs = self.upstream.sums(url)
            if theirs.page < relay.checkpoint:
                return None
            self._theirs = theirs
        ours = self.sums.read(relay.feed)
        if ours.page != self._theirs.page:
            return None
        sums = ours.whole
        sums[relay.counted] = self._counted(relay.feed, relay.counted, ours.page)
        differing = self._theirs.differing(sums)
        if differing:
            if not self.bootstrapper.hold(relay.feed):
                return None
            self._mend(relay, differing, url)
        self.waits = 0
        return replace(
            relay,
            compared_ms=self.clock(),
            compared_page=ours.page,
            counted=(relay.counted + 1) % limits.BUCKETS,
            mended=relay.mended + len(differing),
        )

    def _counted(self, feed: str, bucket: int, page: int) -> int | None:
        """
        The sum of the rows of *bucket*, which are those up to *page*.

        None: there are too many to read while pages wait, or one of a later page was copied.
        """
        total = 0
        for read, row in enumerate(bucket_rows(self.bootstrapper.states, feed, bucket)):
            if read == limits.RELAY_COUNT_ROWS_MAX or row.page > page:
                return None
            if row.lives:
                total += digest(row.key, row.page, row.slot)
        return total % MODULO

    def _mend(self, relay: Relay, buckets: list[int], url: str) -> None:
        try:
            for bucket in buckets:
                self.bootstrapper.mend(relay, bucket, url)
                self.count("RelayBucketsMended", 1)
        finally:
            self.bootstrapper.let_go(relay.feed)

"""Copy the state of an upstream, and compare it with the state of the chained feed.

A chained feed copies the upstream's state if the upstream's log does not go back to the checkpoint
of the feed. The copied rows include at least the operations up to the checkpoint of the upstream's
follower `state`, so the log of the chained feed continues after that checkpoint. Rows are copied
one reply at a time, while the relay holds the lease of the local follower `state`. If the upstream
does not have an object, the row of the object becomes a tombstone, so that returning readers
receive the deletion. Each step can be repeated.

After the copy, the sums of both states are compared periodically, at the same page (PROTOCOL 20).
The follower `state` computes the sums from the log, so the sums do not reveal a row that was
changed in the store. Therefore each comparison also adds up the stored rows of one bucket.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.effects import is_ahead
from tidings.core.errors import BrokenBatch, Unavailable, UpstreamRefused
from tidings.core.model.feeds import STATE
from tidings.core.model.operations import as_event
from tidings.core.replication.relay import Copy, RelayStatus
from tidings.core.replication.source import ALL
from tidings.core.replication.wire import Rows
from tidings.core.state.rows import Difference, Kind, bucket_rows
from tidings.core.state.sums import MODULO, digest
from tidings.core.state.tombstones import note_copied

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tidings.core.effects import Count, Runtime
    from tidings.core.followers.leases import FollowerStore, Lease, Waker
    from tidings.core.log.stores import LogStore
    from tidings.core.replication.relay import Relay
    from tidings.core.replication.source import Selection
    from tidings.core.replication.wire import Upstream, UpstreamStatus
    from tidings.core.state.rows import Row, StateStore
    from tidings.core.state.sums import PageSums, SumReader
    from tidings.core.state.tombstones import TombstoneStore


# Maximum number of rows that are written between two renewals of the lease. This takes about 2 s,
# and the lease lasts 20 s.
_BATCH_ROWS = 1000


@dataclass(slots=True)
class StateLease:
    """The lease of the follower `state` of each feed, which a copier of rows needs.

    While this process has the lease, no other process writes the state of the feed.
    """

    followers: FollowerStore
    waker: Waker
    runtime: Runtime
    _leases: dict[str, Lease] = field(default_factory=dict)

    def acquire(self, feed: str) -> bool:
        """Take the lease; return True if this process has the lease."""
        if feed not in self._leases:
            owner, now_ms = self.runtime.new_id(), self.runtime.clock()
            lease = self.followers.take(feed, STATE, owner=owner, now_ms=now_ms)
            if lease.owner != owner:
                if lease.is_late(now_ms):
                    # The holder seems to have crashed. The function that is woken takes the lease
                    # from the holder, and releases the lease at the end of its run.
                    self.waker.wake(feed, STATE)
                return False
            self._leases[feed] = replace(lease, note=b"")  # the note describes the old rows
        return True

    def save(self, feed: str, checkpoint: int | None = None) -> None:
        """Renew the lease, and set the *checkpoint* if it is given.

        Raises:
            LeaseLost: another process has the lease.
        """
        lease = self._leases[feed]
        moved = lease if checkpoint is None else replace(lease, checkpoint=checkpoint)
        now_ms = self.runtime.clock()
        self._leases[feed] = self.followers.save(moved, moved.checkpoint, now_ms=now_ms)

    def release(self, feed: str) -> None:
        """Release the lease, so that the follower `state` continues from its checkpoint."""
        lease = self._leases.pop(feed, None)
        if lease is not None:
            self.followers.release(lease, force=True)
            self.waker.wake(feed, STATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bootstrapper:
    """A copier of the upstream's state. It needs the *lease*, see `StateLease.acquire`.

    The copier records in *tombstones* that tombstones of the upstream may have a shorter lifetime
    than those that it writes.
    """

    upstream: Upstream
    states: StateStore
    log: LogStore
    tombstones: TombstoneStore
    lease: StateLease
    runtime: Runtime

    def step(
        self, relay: Relay, copy: Copy, url: str, selection: Selection
    ) -> tuple[Copy, UpstreamStatus | None]:
        """Copy the next rows of *copy*. Acquire the lease first.

        Return the progress of the copy, and the status of the upstream. The status is None if
        nothing was requested from the upstream.

        Raises:
            Unavailable: the upstream did not answer, or has no page after the last page of this
                feed.
            LeaseLost: another process writes the state.
        """
        rows = self._rows(copy, url, selection)
        status = rows.status if rows else None
        after = _at_end_of(relay, copy, status)
        copied = rows.rows if rows and not copy.empty else ()
        end = rows.after if rows and not copy.empty else None
        note_copied(self.tombstones, relay.feed, self.runtime.tombstone_ms, self.runtime.clock())
        self._write(relay.feed, self._changes(relay.feed, after, copied, end))
        if end is None:
            return replace(after, bucket=copy.bucket + 1, after=""), status
        return replace(after, after=end), status

    def repair(self, relay: Relay, bucket: int, url: str) -> None:
        """Replace the local rows of *bucket* with those of the upstream. Acquire the lease first.

        The upstream's state must contain all local pages. A row may be of a page that was not
        copied yet. When this page is copied later, it does not change the row. An object that the
        upstream has deleted is deleted in the local state, with the current time.

        Raises:
            Unavailable, LeaseLost: see `step`.
        """
        after: str | None = ""
        while after is not None:
            copy = Copy(page=relay.checkpoint, bucket=bucket, after=after)
            rows = self.upstream.rows(url, bucket, after or None, ALL)
            living = [row for row in rows.rows if not row.deleted]
            self._write(relay.feed, self._changes(relay.feed, copy, living, rows.after))
            after = rows.after

    def finish(self, relay: Relay, copy: Copy) -> Relay:
        """Let the log continue after the page of *copy*; return the changed *relay* to be stored.

        The floor is raised before the relay is stored. Concurrent readers therefore find that pages
        were trimmed, instead of waiting at the old end of the log.
        """
        page = copy.page
        self.log.raise_floor(relay.feed, page + 1)
        self.lease.save(relay.feed, page)
        return replace(
            relay,
            checkpoint=page,
            seconds=copy.seconds,
            low_watermark=page + 1,
            condition=RelayStatus.RUNNING,
            copy=None,
        )

    def _rows(self, copy: Copy, url: str, selection: Selection) -> Rows | None:
        """Request the next rows of *copy*.

        If *copy* copies no rows, only the upstream's status is needed, and only once.
        """
        if copy.empty and copy.page >= 0:
            return None
        return self.upstream.rows(url, copy.bucket, copy.after or None, selection)

    def _changes(
        self, feed: str, copy: Copy, rows: Iterable[Row], end: str | None
    ) -> Iterator[Difference]:
        """Yield the changes that make the next local rows, up to the key *end*, equal to *rows*."""
        theirs = {row.key: row for row in rows}
        for mine in self._ours(feed, copy, end):
            other = theirs.pop(mine.key, None)
            if other is None and not mine.deleted:
                yield _change(mine, self._tombstone(mine, copy.page))
            elif other is not None and other != mine:
                yield _change(mine, other)
        for other in theirs.values():
            yield _change(None, other)

    def _ours(self, feed: str, copy: Copy, end: str | None) -> Iterator[Row]:
        for row in bucket_rows(self.states.read, feed, copy.bucket, copy.after or None):
            if end is not None and row.key > end:
                return
            yield row

    def _tombstone(self, row: Row, page: int) -> Row:
        """Return a tombstone for *row* at the current time and *page*, the page of the copy."""
        now, line = self.runtime.clock(), as_event(row.line, "delete")
        return row._replace(
            page=page, at_ms=now, line=line, expires_ms=now + self.runtime.tombstone_ms
        )

    def _write(self, feed: str, changes: Iterator[Difference]) -> None:
        """Write each change if the stored row is still equal to the row that was read.

        Positions are not compared, because rows of another log may have any position. The lease is
        renewed before each batch, so that a process that was suspended for long writes nothing.
        """
        while batch := list(islice(changes, _BATCH_ROWS)):
            self.lease.save(feed)
            if not all(self.states.repair(feed, batch)):
                raise Unavailable(f"another process changed the state of {feed} during the copy")


def _change(status: Row | None, wanted: Row) -> Difference:
    return Difference(
        Kind.ALTERED if status else Kind.MISSING, wanted.bucket, wanted.key, status, wanted
    )


def _at_end_of(relay: Relay, copy: Copy, status: UpstreamStatus | None) -> Copy:
    """Return *copy* with the page after which the log continues.

    All rows that were read so far contain the operations up to this page.

    The page must be above all local pages. Otherwise a reader at the last local page would continue
    with the next page and never receive the changes of the copy.
    """
    if status is None:
        return copy
    reached = status.head if copy.empty else status.state
    page = min(copy.page, reached) if copy.begun else reached
    if relay.checkpoint and page <= relay.checkpoint:
        raise Unavailable(
            f"the upstream is at page {page}; the copy waits until it is after page"
            f" {relay.checkpoint}, the last local page, because no page number is used twice"
        )
    return replace(copy, page=page)


@dataclass(slots=True, kw_only=True)
class Comparison:
    """A comparison of sums every `limits.RELAY_COMPARE_MS`, which repairs buckets that differ.

    The upstream's sums are the sums at one page. The relay does not append later pages until the
    local state has also reached this page, which takes seconds. *waits* is how often the comparison
    may still wait for this, or 0 between comparisons.
    """

    bootstrapper: Bootstrapper
    sums: SumReader
    count: Count
    waits: int = 0
    _theirs: PageSums | None = None
    _next_ms: int = 0

    def begin(self, relay: Relay) -> None:
        """Begin a comparison if it is due. All pages of the upstream must have been copied."""
        runtime, every_ms = self.bootstrapper.runtime, limits.RELAY_COMPARE_MS
        if is_ahead(relay.compared_ms + every_ms, runtime.clock(), every_ms):
            return
        if not self.waits and runtime.steady() >= self._next_ms:
            self.waits = limits.RELAY_COMPARE_WAITS

    def blocks(self, relay: Relay) -> bool:
        """Return True if the relay must wait before it reads pages from the upstream."""
        return self.waits > 0 and not (self._theirs and relay.checkpoint < self._theirs.page)

    def allows(self, page: int) -> bool:
        """Return True if the comparison allows that *page* is appended now."""
        return self._theirs is None or page <= self._theirs.page

    def step(self, relay: Relay, url: str) -> Relay | None:
        """Continue the comparison; return the changed *relay* when the comparison is finished.

        Return None if the comparison must be continued later.

        If a store or the upstream does not answer, give up this comparison.

        Raises:
            LeaseLost: another process writes the state.
        """
        self.waits -= 1
        try:
            found = self._compare(relay, url)
        except (Unavailable, BrokenBatch, UpstreamRefused):  # older releases have no sums
            self.waits = 0
            found = None
        if not self.waits:
            self._theirs = None
            self._next_ms = self.bootstrapper.runtime.steady() + limits.RELAY_COMPARE_MS
        return found

    def _compare(self, relay: Relay, url: str) -> Relay | None:
        if self._theirs is None:
            theirs = self.bootstrapper.upstream.sums(url)
            if theirs.page < relay.checkpoint:
                return None
            self._theirs = theirs
        ours = self.sums.read(relay.feed)
        if ours.page != self._theirs.page:
            return None
        sums = ours.totals
        sums[relay.counted] = self._sum_rows(relay.feed, relay.counted, ours.page)
        differing = self._theirs.differing(sums)
        if differing:
            if not self.bootstrapper.lease.acquire(relay.feed):
                return None
            self._repair(relay, differing, url)
        self.waits = 0
        return replace(
            relay,
            compared_ms=self.bootstrapper.runtime.clock(),
            compared_page=ours.page,
            counted=(relay.counted + 1) % limits.BUCKETS,
            mended=relay.mended + len(differing),
        )

    def _sum_rows(self, feed: str, bucket: int, page: int) -> int | None:
        """Return the sum of the rows of *bucket*, as of *page*.

        Return None if there are more rows than can be read while pages wait. Also return None if a
        row is of a page after *page*, because the row was copied before its page.
        """
        total = 0
        for read, row in enumerate(bucket_rows(self.bootstrapper.states.read, feed, bucket)):
            if read == limits.RELAY_COUNT_ROWS_MAX or row.page > page:
                return None
            if row.lives:
                total += digest(row.key, row.page, row.slot)
        return total % MODULO

    def _repair(self, relay: Relay, buckets: list[int], url: str) -> None:
        try:
            for bucket in buckets:
                self.bootstrapper.repair(relay, bucket, url)
                self.count("RelayBucketsMended", 1)
        finally:
            self.bootstrapper.lease.release(relay.feed)

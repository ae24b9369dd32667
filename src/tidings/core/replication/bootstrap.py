"""
Bootstrapping a chained feed: the upstream's state, where its log does not reach back to us.

Rows hold at least everything up to the page that the upstream's state has handled, so the log
goes on behind it. They are copied a reply at a time under the lease of the follower `state`;
what the upstream has not got is deleted, and remembered as deleted, so that readers who come
back hear of it. Each step may be done again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING

from tidings.core.errors import Unavailable
from tidings.core.followers.names import STATE
from tidings.core.model.operations import as_event
from tidings.core.replication.replica import Condition, Copy
from tidings.core.replication.selection import ALL
from tidings.core.replication.wire import Rows
from tidings.core.state.differences import Difference, Kind
from tidings.core.state.stores import bucket_rows
from tidings.core.state.tombstones import note_copied

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tidings.core.effects import Clock, NewId
    from tidings.core.followers.leases import Lease
    from tidings.core.followers.stores import FollowerStore, Waker
    from tidings.core.log.stores import TrimStore
    from tidings.core.replication.replica import Relay
    from tidings.core.replication.selection import Selection
    from tidings.core.replication.stores import Upstream
    from tidings.core.replication.wire import Standing
    from tidings.core.state.rows import Row
    from tidings.core.state.stores import Repairs, StateStore
    from tidings.core.state.tombstones import TombstoneStore

_BATCH_ROWS = 1000  # written under one renewal of the lease: some two seconds of its twenty


@dataclass(slots=True)
class Bootstrapper:
    """
    Holds the lease of `state` from its first step on, until `let_go`.

    *tombstone_ms* is how long objects that are deleted here are remembered; *tombstones* keep
    that those of the upstream may live shorter.
    """

    upstream: Upstream
    states: StateStore
    repairs: Repairs
    followers: FollowerStore
    trim: TrimStore
    waker: Waker
    clock: Clock
    new_id: NewId
    tombstones: TombstoneStore
    tombstone_ms: int
    _leases: dict[str, Lease] = field(default_factory=dict)

    def hold(self, feed: str) -> bool:
        """Whether nobody but us writes the state of *feed* from now on."""
        if feed not in self._leases:
            owner, now_ms = self.new_id(), self.clock()
            lease = self.followers.take(feed, STATE, owner=owner, now_ms=now_ms)
            if lease.owner != owner:
                if lease.is_late(now_ms):
                    self.waker.ring(feed, STATE)  # the follower looks on, and lets go
                return False
            self._leases[feed] = replace(lease, note=b"")  # the rows become others
        return True

    def let_go(self, feed: str) -> None:
        """Let the follower go on, from where it stood or behind the copy."""
        lease = self._leases.pop(feed, None)
        if lease is not None:
            self.followers.release(lease, force=True)
            self.waker.ring(feed, STATE)

    def step(
        self, relay: Relay, copy: Copy, url: str, selection: Selection
    ) -> tuple[Copy, Standing | None]:
        """
        The next rows of *copy*; `hold` comes first.

        How far the copy is then, and where the upstream stands, if it was asked.

        Raises:
            Unavailable: the upstream did not answer, or has not come as far as we are.
            LeaseLost: somebody else writes the state.
        """
        rows = self._rows(copy, url, selection)
        standing = rows.standing if rows else None
        after = _behind(relay, copy, standing)
        copied = rows.rows if rows and not copy.empty else ()
        end = rows.after if rows and not copy.empty else None
        note_copied(self.tombstones, relay.feed, self.tombstone_ms, self.clock())
        self._write(relay.feed, self._changes(relay.feed, after, copied, end))
        if end is None:
            return replace(after, bucket=copy.bucket + 1, after=""), standing
        return replace(after, after=end), standing

    def mend(self, relay: Relay, bucket: int, url: str) -> None:
        """
        Put the upstream's rows of *bucket* in place of ours; `hold` comes first.

        Its state must hold all pages that are here. A row of a later page is put before its page
        comes, which changes nothing then. What is deleted there is deleted here as of now.

        Raises:
            As `step`.
        """
        after: str | None = ""
        while after is not None:
            copy = Copy(page=relay.checkpoint, bucket=bucket, after=after)
            rows = self.upstream.rows(url, bucket, after or None, ALL)
            living = [row for row in rows.rows if not row.deleted]
            self._write(relay.feed, self._changes(relay.feed, copy, living, rows.after))
            after = rows.after

    def finish(self, relay: Relay, copy: Copy) -> Relay:
        """
        The log goes on behind the copy; *relay* as it is to be appended, without a page.

        The floor first: whoever reads meanwhile finds that his place is gone, and not an end.
        """
        page = copy.page
        self.trim.raise_floor(relay.feed, page + 1)
        lease = self._leases[relay.feed]
        behind = replace(lease, checkpoint=page)
        self._leases[relay.feed] = self.followers.save(behind, page, now_ms=self.clock())
        return replace(
            relay,
            checkpoint=page,
            seconds=copy.seconds,
            low_watermark=page + 1,
            condition=Condition.RUNNING,
            copy=None,
        )

    def _rows(self, copy: Copy, url: str, selection: Selection) -> Rows | None:
        """Where nothing is to be copied, the upstream is asked where it stands, if at all."""
        if copy.empty and copy.page >= 0:
            return None
        return self.upstream.rows(url, copy.bucket, copy.after or None, selection)

    def _changes(
        self, feed: str, copy: Copy, rows: Iterable[Row], end: str | None
    ) -> Iterator[Difference]:
        """What to write, so that our rows behind `copy.after` up to *end* are as *rows*."""
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
        for row in bucket_rows(self.states, feed, copy.bucket, copy.after or None):
            if end is not None and row.key > end:
                return
            yield row

    def _tombstone(self, row: Row, page: int) -> Row:
        """Deleted now, for who comes back with a time; at the page behind which the log goes on."""
        now, line = self.clock(), as_event(row.line, "delete")
        return replace(row, page=page, at_ms=now, line=line, expires_ms=now + self.tombstone_ms)

    def _write(self, feed: str, changes: Iterator[Difference]) -> None:
        """
        Each where just what was found still stands: rows of another log may be at any position.

        Renewed before each batch: who was frozen for long writes nothing.
        """
        while batch := list(islice(changes, _BATCH_ROWS)):
            lease = self._leases[feed]
            self._leases[feed] = self.followers.save(lease, lease.checkpoint, now_ms=self.clock())
            if not all(self.repairs.repair(feed, batch)):
                raise Unavailable(f"a late write changed the state of {feed} while it was copied")


def _change(standing: Row | None, wanted: Row) -> Difference:
    return Difference(
        Kind.ALTERED if standing else Kind.MISSING, wanted.bucket, wanted.key, standing, wanted
    )


def _behind(relay: Relay, copy: Copy, standing: Standing | None) -> Copy:
    """
    *copy* with the page behind which the log goes on: what every row read so far holds.

    It lies above all pages that are here. Else somebody who stands at our last one would go on
    with the next, and never hear of what the copy changed.

    Raises:
        Unavailable: it does not yet.
    """
    if standing is None:
        return copy
    reached = standing.head if copy.empty else standing.state
    page = min(copy.page, reached) if copy.begun else reached
    if relay.checkpoint and page <= relay.checkpoint:
        raise Unavailable(
            f"the upstream has come to page {page}; it must pass page {relay.checkpoint}, up to"
            " which pages are here, because none is written twice"
        )
    return replace(copy, page=page)

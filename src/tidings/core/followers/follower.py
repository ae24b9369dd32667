"""Run followers. A follower is a reader of the log that handles each page and stores a checkpoint.

A wake-up only requests a run of a follower and has no other content. A run takes the lease, reads
the pages after the checkpoint, handles them in order, and moves the checkpoint. It does so in
turns of a second or two, each of which handles a batch of pages and stores the checkpoint. If the
lease is held, a run only leaves a mark, and the holder checks for marks before it releases the
lease. Extra, repeated, reordered and lost wake-ups are therefore harmless.

A run that fails releases the lease. A holder that is killed keeps the lease until other processes
have seen the lease unchanged for `limits.LEASE_MS`. If the holder seems to be late, one process at
a time observes the lease: it sleeps for a while and wakes the next process with its observation.
Clocks decide only when the observation begins.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

from tidings.core import limits
from tidings.core.effects import TraceRecord
from tidings.core.errors import FellOff
from tidings.core.followers.invocation import serve
from tidings.core.followers.leases import Observation
from tidings.core.model.feeds import ARCHIVE as ARCHIVE
from tidings.core.model.feeds import FOLLOWERS as FOLLOWERS
from tidings.core.model.feeds import PUSH, lane_of, one_lane, pushers
from tidings.core.model.feeds import STATE as STATE
from tidings.core.tracing import trace_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tidings.core.effects import Runtime
    from tidings.core.followers.invocation import Served
    from tidings.core.followers.leases import FollowerStore, Lease, Waker
    from tidings.core.log.reader import Filler, Reader, Run
    from tidings.core.model.pages import Page

# The number of attempts to take the lease or to leave a mark. There is more than one, because the
# lease may be released between the two.
_TAKE_ATTEMPTS = 3
_TRACE = attrgetter("trace")


class Handler(Protocol):
    """The handler of a follower's pages. It must be idempotent, as pages may come again."""

    @property
    def name(self) -> str: ...

    def begin(self, lease: Lease) -> int:
        """Return the page after which to resume; called once per run with the stored *lease*.

        The result is the checkpoint of the lease, or a later page if the pages up to it can be
        skipped.
        """

    def note(self, feed: str) -> bytes:
        """Return the note to store with the checkpoint; the next holder's lease contains it."""

    def prepare(self, feed: str, checkpoint: int) -> bool:
        """Prepare a read after page *checkpoint*; return True if another call must prepare more."""

    def handle(self, feed: str, pages: Sequence[Page]) -> int:
        """Handle *pages*, which follow the checkpoint without a hole; return how many were handled.

        The next call in the run gets the remaining pages. If no page was handled and `prepare`
        returned False, the run ends, and the run of the next wake-up delivers the pages.
        """

    def on_checkpoint(self, feed: str) -> None:
        """React to a higher checkpoint; called each time that the checkpoint was moved."""

    def on_pages_lost(self, feed: str) -> bool:
        """Return True to resume after pages that are missing in the log, False to stop before them.

        This method is called again if the new checkpoint could not be stored.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class TracingHandler:
    """A `Handler` that calls *handler*, and reports each page with a trace after it was handled.

    It also reports the oldest page of a batch, with or without a trace, if this page was committed
    more than *late_ms* ago, because operators seldom know in advance which operation will be late.
    If *late_ms* is 0, no late pages are reported. The reports go to `runtime.trace`.
    """

    handler: Handler
    runtime: Runtime
    late_ms: int = 0

    @property
    def name(self) -> str:
        return self.handler.name

    def begin(self, lease: Lease) -> int:
        return self.handler.begin(lease)

    def note(self, feed: str) -> bytes:
        return self.handler.note(feed)

    def prepare(self, feed: str, checkpoint: int) -> bool:
        return self.handler.prepare(feed, checkpoint)

    def handle(self, feed: str, pages: Sequence[Page]) -> int:
        count = self.handler.handle(feed, pages)
        self._report(feed, pages[:count])
        return count

    def _report(self, feed: str, handled: Sequence[Page]) -> None:
        """Report the pages of *handled* with a trace, and the oldest page if it is late."""
        traced = list(filter(_TRACE, handled))
        if not handled or not (traced or self.late_ms):
            return
        now_ms, oldest = self.runtime.clock(), handled[0]
        for page in traced:
            passed_ms = max(0, now_ms - page.at_ms)
            self.runtime.trace(
                TraceRecord(self.name, feed, page.number, passed_ms, trace_id(page.trace))
            )
        if self.late_ms and now_ms - oldest.at_ms > self.late_ms:
            late_ms = now_ms - oldest.at_ms
            self.runtime.trace(
                TraceRecord(self.name, feed, oldest.number, late_ms, pages=len(handled))
            )

    def on_checkpoint(self, feed: str) -> None:
        self.handler.on_checkpoint(feed)

    def on_pages_lost(self, feed: str) -> bool:
        return self.handler.on_pages_lost(feed)


def take_batch(
    pages: Sequence[Page], operations_max: int = limits.FOLLOW_OPERATIONS_MAX
) -> Sequence[Page]:
    """Return the first of *pages*, at least one, up to *operations_max* operations."""
    count = 0
    for at, page in enumerate(pages):
        count += len(page.lines)
        if at and count > operations_max:
            return pages[:at]
    return pages


def effective_checkpoints(
    checkpoints: Mapping[str, int], *, archives: bool, lanes: int = 1
) -> dict[str, int]:
    """Return the checkpoints of the followers in use, with 0 for one that has not run yet.

    *checkpoints* are the stored ones. A lane that has not run yet has no subscriptions, so it has
    the checkpoint of the first lane. The archive is left out unless *archives* is True, and a lane
    is left out if it was removed because there are only *lanes* lanes now.
    """
    counting = dict.fromkeys(FOLLOWERS, 0) | dict(checkpoints)
    counting |= {name: counting[PUSH] for name in pushers(lanes) if name not in counting}
    if archives:
        counting = {ARCHIVE: 0} | counting
    else:
        counting.pop(ARCHIVE, None)
    return {name: page for name, page in counting.items() if (lane_of(name) or 0) < lanes}


@dataclass(frozen=True, slots=True)
class BuiltInFollowers:
    """The built-in followers of a host. *archives* is True if the host has an archive.

    *lanes* returns the number of push lanes of a feed.
    """

    archives: bool = False
    lanes: Callable[[str], int] = one_lane

    def checkpoints(self, feed: str, stored: Mapping[str, int]) -> dict[str, int]:
        """Return the `effective_checkpoints` of *feed*, given the *stored* ones."""
        return effective_checkpoints(stored, archives=self.archives, lanes=self.lanes(feed))


def advance_lease(lease: Lease, pages: Sequence[Page]) -> Lease:
    """Return *lease* with the checkpoint and the operation count after *pages*."""
    operations = lease.operations + sum(len(page.lines) for page in pages)
    return replace(lease, checkpoint=pages[-1].number, operations=operations)


@dataclass(frozen=True, slots=True)
class FollowerConfig:
    """The configuration of a follower.

    *operations_max* is the maximum number of operations in a batch, *operations_first* the maximum
    in the first batch of a run. If *waits* is True, the follower waits at a hole. Otherwise the run
    ends at the hole, and the run of a later wake-up reads the pages after the hole.
    """

    operations_max: int = limits.FOLLOW_OPERATIONS_MAX
    operations_first: int = limits.FOLLOW_OPERATIONS_FIRST
    waits: bool = True


_DEFAULT_CONFIG = FollowerConfig()


@dataclass(slots=True)
class _Work:
    """The state of a run.

    *operations* is the maximum number of operations of the next turn, and *ahead* has the pages
    that were already read for that turn. *stored* is the lease in the store, or None while it is
    uncertain which lease is stored.

    *operations* is adapted so that a turn takes a second or two. Each run then stores some progress
    even if its stores are slow.
    """

    operations: int
    operations_max: int
    stored: Lease | None
    ahead: Run | None = None

    def took(self, ms: int) -> None:
        if ms > limits.FOLLOW_TURN_MS:
            self.operations = max(1, self.operations // 2)
        elif ms <= limits.FOLLOW_TURN_MS // 2:
            self.operations = min(self.operations_max, self.operations * 2)

    def keep(self, run: Run, count: int) -> None:
        """Keep the pages of *run* after the first *count* for the next turn.

        Keep these pages only if they are too many for the next turn. Otherwise the next turn reads
        the log, which may have further pages.
        """
        rest = run.pages[count:]
        full = count > 0 and len(take_batch(rest, self.operations)) < len(rest)
        self.ahead = replace(run, pages=rest) if full else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Follower:
    store: FollowerStore
    reader: Reader
    filler: Filler
    waker: Waker
    runtime: Runtime
    follower_config: FollowerConfig = _DEFAULT_CONFIG

    def run_each(
        self,
        feeds: Iterable[str],
        handler: Handler,
        observation: Observation | None = None,
        exists: Callable[[str], bool] | None = None,
    ) -> Served:
        """Run for *feeds* in one invocation; wake the follower for each feed that was not begun.

        If *exists* is given, leave out the feeds for which it returns False.
        """

        def run(feed: str, until_ms: int) -> None:
            if exists is None or exists(feed):
                self.run(feed, handler, observation, until_ms)

        served = serve(feeds, run, clock=self.runtime.steady, run_ms=limits.FOLLOW_RUN_MS)
        for feed in served.not_begun:
            self.waker.wake(feed, handler.name)
        return served

    def run(
        self,
        feed: str,
        handler: Handler,
        observation: Observation | None = None,
        until_ms: int | None = None,
    ) -> int:
        """Handle the available pages, and return how far the checkpoint has moved.

        End at *until_ms* on the clock `Runtime.steady`. With an *observation* of a late lease,
        continue to observe the lease, or take it over.

        Raises:
            LeaseLost: another holder took over.
            Unavailable: a store did not answer. The lease was released, or a later run takes it
                over.
            FellOff: the next page is missing in the log, and the handler cannot skip it.
        """
        lease = self._take(feed, handler.name, observation)
        if lease is None:
            return 0
        # Begin with a smaller turn if the last holder crashed.
        died = observation is not None and observation.is_long_enough
        first = self.follower_config.operations_first // (limits.FOLLOW_CAUTION if died else 1)
        work = _Work(first, self.follower_config.operations_max, lease)
        try:
            return self._run(lease, handler, work, until_ms)
        except Exception:
            self._abandon(work)
            raise

    def _run(self, lease: Lease, handler: Handler, work: _Work, until_ms: int | None) -> int:
        feed, first = lease.feed, handler.begin(lease)
        lease = replace(lease, checkpoint=first)
        steady = self.runtime.steady
        until = until_ms or steady() + limits.FOLLOW_RUN_MS
        while True:
            previous, began_ms = lease.checkpoint, steady()
            lease, done = self._turn(lease, handler, work)
            work.took(steady() - began_ms)
            if lease.checkpoint > previous:
                handler.on_checkpoint(feed)
            if done:
                break
            if steady() >= until:
                self.store.release(lease, force=True)
                self.waker.wake(feed, handler.name)
                break
        self.reader.count("FollowerPages", lease.checkpoint - first)
        return lease.checkpoint - first

    def _abandon(self, work: _Work) -> None:
        """Release the lease after an error, so that the next holder need not observe it first.

        A late write of this run is harmless. Keep the lease if it is uncertain which checkpoint is
        stored, because a release writes the checkpoint and might move it back.
        """
        if work.stored is not None:
            with suppress(Exception):  # the caller raises the error that ended the run
                self.store.release(work.stored, force=True)

    def _take(self, feed: str, name: str, seen: Observation | None) -> Lease | None:
        over = seen if seen is not None and seen.is_long_enough else None
        for _ in range(_TAKE_ATTEMPTS):
            owner = self.runtime.new_id()
            lease = self.store.take(feed, name, owner=owner, now_ms=self.reader.clock(), over=over)
            if lease.owner == owner:
                return lease
            if seen is not None and seen.is_of(lease):
                # The next process reads the lease and notices if it was renewed in the meantime.
                self.runtime.sleep(limits.LEASE_LOOK_MS)
                longer = replace(seen, ms=seen.ms + limits.LEASE_LOOK_MS)
                self.waker.wake(lease.feed, lease.name, longer)
                return None
            # If the holder is late and no process observes the lease, start an observation.
            look = lease.next_look(self.reader.clock())
            before = self.store.mark(lease.feed, lease.name, look=look)
            if look and before not in (None, look):
                self.waker.wake(lease.feed, lease.name, Observation(lease.fence, lease.beat))
            if before is not None:
                return None
        return None

    def _turn(self, lease: Lease, handler: Handler, work: _Work) -> tuple[Lease, bool]:
        """Handle the next pages and store the result; return the lease, and True to end the run.

        Read no pages if the previous turn has kept some, see `_Work.keep`.
        """
        more = handler.prepare(lease.feed, lease.checkpoint)
        lease = replace(lease, note=handler.note(lease.feed))
        run = work.ahead or self.reader.read_or_trimmed(lease.feed, lease.checkpoint)
        if run.trimmed:
            return self._fell_off(lease, run, handler, work), False
        if lease.is_late(self.reader.clock()):
            lease = self._save(lease, work)  # renew the lease before anything is sent or written
        pages = take_batch(run.pages, work.operations)
        count = handler.handle(lease.feed, pages) if pages else 0
        work.keep(run, count)
        if count:
            lease = replace(advance_lease(lease, pages[:count]), note=handler.note(lease.feed))
            more = more or run.more or count < len(run.pages)
        elif pages and not more:
            return self._release(lease, work)
        if run.waiting and not more and self.follower_config.waits:
            return self._wait(lease, work), False
        return (self._save(lease, work), False) if more else self._release(lease, work)

    def _release(self, lease: Lease, work: _Work) -> tuple[Lease, bool]:
        """Release the lease to end the run. If the lease has a new mark, keep it and continue."""
        if self.store.release(lease):
            return lease, True
        return self._save(lease, work), False

    def _save(self, lease: Lease, work: _Work) -> Lease:
        work.stored = None
        work.stored = self.store.save(lease, lease.checkpoint, now_ms=self.reader.clock())
        return work.stored

    def _wait(self, lease: Lease, work: _Work) -> Lease:
        """Close the hole after the checkpoint if it is overdue; otherwise wait for the page."""
        lease = self._save(lease, work)
        if not self.filler.close_hole(lease.feed, lease.checkpoint):
            self.runtime.sleep(limits.HOLE_POLL_MS)
        return lease

    def _fell_off(self, lease: Lease, run: Run, handler: Handler, work: _Work) -> Lease:
        """Skip missing pages if the handler allows it, otherwise raise `FellOff`.

        Count the loss, unless the follower is new and skips the missing pages.
        """
        goes_on = handler.on_pages_lost(lease.feed)
        if lease.checkpoint or not goes_on:
            self.reader.count("FollowerFellOff", 1)
        if goes_on:
            return self._save(replace(lease, checkpoint=run.floor - 1), work)
        raise FellOff(
            feed=lease.feed, follower=lease.name, checkpoint=lease.checkpoint, floor=run.floor
        )

"""
Followers: the one mechanism for everything that reads the log.

A bell says "the feed moved", nothing more. It runs a follower: take its lease, read the pages
behind its checkpoint, handle them in order, move the checkpoint. A bell that finds the lease
taken leaves a mark, which the holder sees before it lets go; so extra, repeated, reordered
and lost bells do no harm.

A run that fails releases the lease. A holder that is killed keeps it until another process has seen
it unchanged for `limits.LEASE_MS`. One at a time observes it, if the holder seems to be late: a
process sleeps for a while and wakes the next one with what it has seen. Clocks decide only when the
observation begins.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from tidings.core import limits
from tidings.core.errors import FellOff
from tidings.core.followers.invocation import serve
from tidings.core.followers.leases import Observation
from tidings.core.followers.names import ARCHIVE as ARCHIVE
from tidings.core.followers.names import FOLLOWERS as FOLLOWERS
from tidings.core.followers.names import PUSH, lane_of, pushers
from tidings.core.followers.names import STATE as STATE
from tidings.core.tracing import Passage, trace_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tidings.core.effects import Clock, NewId, Sleep
    from tidings.core.followers.invocation import Served
    from tidings.core.followers.leases import FollowerStore, Lease, Waker
    from tidings.core.log.reader import Filler, Reader, Run
    from tidings.core.model.pages import Page
    from tidings.core.tracing import Tell

_TAKE_ATTEMPTS = 3  # the lease may be let go between our failed take and our mark, rarely twice


class Handler(Protocol):
    """What a follower does with pages. Must bear to see the same pages again."""

    @property
    def name(self) -> str: ...

    def begin(self, lease: Lease) -> int:
        """
        Called once a run, with what the last holder left: the page to go on behind.

        It is the lease's, or a later one where what lies between concerns nobody.
        """

    def note(self, feed: str) -> bytes:
        """What is stored with the checkpoint, `Lease.note` of the next holder."""

    def prepare(self, feed: str, checkpoint: int) -> bool:
        """Called before each read, with the last page handled; whether there is more to prepare."""

    def handle(self, feed: str, pages: Sequence[Page]) -> int:
        """
        Handle *pages*, which follow the checkpoint without a hole; how many were handled.

        Fewer than all: the next turn brings the others. None: they come with a bell.
        """

    def moved(self, feed: str) -> None:
        """Called after each turn that stored a higher checkpoint."""

    def lost(self, feed: str) -> bool:
        """
        The next pages are gone from the log; whether to go on behind them, or to stand still.

        Called again if that was not stored.
        """


@dataclass(frozen=True, slots=True)
class TracingHandler:
    """
    A `Handler` that runs *handler*, and reports each traced page to *tell* once it is handled.

    Also report the oldest page of a batch, traced or not, if it was committed more than *late_ms*
    ago (0: never): an operator who looks for a late operation seldom knew beforehand which.
    """

    handler: Handler
    clock: Clock
    tell: Tell
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
        """Report the traced and late pages of *handled*; mostly there are none."""
        traced = [page for page in handled if page.trace]
        if not handled or not (traced or self.late_ms):
            return
        now_ms, oldest = self.clock(), handled[0]
        for page in traced:
            passed_ms = max(0, now_ms - page.at_ms)
            self.tell(Passage(self.name, feed, page.number, passed_ms, trace_id(page.trace)))
        if self.late_ms and now_ms - oldest.at_ms > self.late_ms:
            late_ms = now_ms - oldest.at_ms
            self.tell(Passage(self.name, feed, oldest.number, late_ms, pages=len(handled)))

    def moved(self, feed: str) -> None:
        self.handler.moved(feed)

    def lost(self, feed: str) -> bool:
        return self.handler.lost(feed)


def portion(
    pages: Sequence[Page], operations_max: int = limits.FOLLOW_OPERATIONS_MAX
) -> Sequence[Page]:
    """As many of *pages* as one turn may handle within the function's time; one at least."""
    count = 0
    for at, page in enumerate(pages):
        count += len(page.lines)
        if at and count > operations_max:
            return pages[:at]
    return pages


def standing(checkpoints: Mapping[str, int], *, archives: bool, lanes: int = 1) -> dict[str, int]:
    """
    *checkpoints* of who counts: a built-in follower that never ran stands before the first page.

    A lane that never ran has nobody to send to, and begins where the first lane stands. That of an
    archive that was turned off, or of a lane that the feed has no more, is history.
    """
    counting = dict.fromkeys(FOLLOWERS, 0) | dict(checkpoints)
    counting |= {name: counting[PUSH] for name in pushers(lanes) if name not in counting}
    if archives:
        counting = {ARCHIVE: 0} | counting
    else:
        counting.pop(ARCHIVE, None)
    return {name: page for name, page in counting.items() if (lane_of(name) or 0) < lanes}


def moved(lease: Lease, pages: Sequence[Page]) -> Lease:
    """*lease* behind *pages*; their operations count once, because the checkpoint passes once."""
    operations = lease.operations + sum(len(page.lines) for page in pages)
    return replace(lease, checkpoint=pages[-1].number, operations=operations)


@dataclass(frozen=True, slots=True)
class Habits:
    """
    How a follower goes about it. *operations_max* are those of a turn, *operations_first* those
    of the first one. It *waits* before a hole, or lets the next bell bring what is behind it.
    """

    operations_max: int = limits.FOLLOW_OPERATIONS_MAX
    operations_first: int = limits.FOLLOW_OPERATIONS_FIRST
    waits: bool = True


_HABITS = Habits()


@dataclass(slots=True)
class _Work:
    """
    A run under way: *operations* of its next turn, and what was read and waits for it.

    *stored* is the lease as the store has it; None while that is in doubt.

    A turn takes about as much as was handled in a second or two, so that each run stores some
    progress, however slow its stores are.
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
        """*count* pages of *run* are handled; the others are kept where they fill a turn."""
        rest = run.pages[count:]
        full = count > 0 and len(portion(rest, self.operations)) < len(rest)
        self.ahead = replace(run, pages=rest) if full else None


@dataclass(frozen=True, slots=True)
class Follower:
    store: FollowerStore
    reader: Reader
    filler: Filler
    waker: Waker
    sleep: Sleep
    new_id: NewId
    habits: Habits = _HABITS

    def run_each(
        self, feeds: Iterable[str], handler: Handler, observation: Observation | None = None
    ) -> Served:
        """Run for each of *feeds* within one invocation; those left are woken again."""

        def run(feed: str, until_ms: int) -> None:
            self.run(feed, handler, observation, until_ms)

        served = serve(feeds, run, clock=self.reader.clock, run_ms=limits.FOLLOW_RUN_MS)
        for feed in served.left:
            self.waker.ring(feed, handler.name)
        return served

    def run(
        self,
        feed: str,
        handler: Handler,
        observation: Observation | None = None,
        until_ms: int | None = None,
    ) -> int:
        """
        Handle what there is, until *until_ms*; the number of pages handled.

        With an *observation* of a lease that stands still it looks on, or takes over.

        Raises:
            LeaseLost: another holder took over.
            Unavailable: a store did not answer; the lease is free, or taken over after a while.
            FellOff: the next page is gone from the log, and the handler cannot go on.
        """
        lease = self._take(feed, handler.name, observation)
        if lease is None:
            return 0
        work = self._work(observation, lease)
        try:
            return self._run(lease, handler, work, until_ms)
        except Exception:
            self._abandon(work)
            raise

    def _run(self, lease: Lease, handler: Handler, work: _Work, until_ms: int | None) -> int:
        feed, first = lease.feed, handler.begin(lease)
        lease = replace(lease, checkpoint=first)
        until = until_ms or self.reader.clock() + limits.FOLLOW_RUN_MS
        while True:
            behind, began_ms = lease.checkpoint, self.reader.clock()
            lease, done = self._turn(lease, handler, work)
            work.took(self.reader.clock() - began_ms)
            if lease.checkpoint > behind:
                handler.moved(feed)
            if done:
                break
            if self.reader.clock() >= until:
                self.store.release(lease, force=True)
                self.waker.ring(feed, handler.name)
                break
        self.reader.count("FollowerPages", lease.checkpoint - first)
        return lease.checkpoint - first

    def _abandon(self, work: _Work) -> None:
        """
        Release the lease after an error: the next holder need not wait until it is late.

        A late write of this run does no harm. If a checkpoint may have been stored that is not
        known here, the lease stays: releasing it would take the follower back.
        """
        if work.stored is not None:
            with suppress(Exception):  # the error that ended the run counts
                self.store.release(work.stored, force=True)

    def _work(self, seen: Observation | None, lease: Lease) -> _Work:
        """After a crash, begin with a small turn: the last one may have been the cause."""
        died = seen is not None and seen.is_long_enough
        first = self.habits.operations_first // (limits.FOLLOW_CAUTION if died else 1)
        return _Work(first, self.habits.operations_max, lease)

    def _take(self, feed: str, name: str, seen: Observation | None) -> Lease | None:
        over = seen if seen is not None and seen.is_long_enough else None
        for _ in range(_TAKE_ATTEMPTS):
            owner = self.new_id()
            lease = self.store.take(feed, name, owner=owner, now_ms=self.reader.clock(), over=over)
            if lease.owner == owner:
                return lease
            if seen is not None and seen.is_of(lease):
                self._look_on(lease, seen)
                return None
            if self._marked(lease):
                return None
        return None

    def _marked(self, lease: Lease) -> bool:
        """Leave a mark, and have the lease looked at where its holder is late and nobody does."""
        look = lease.next_look(self.reader.clock())
        before = self.store.mark(lease.feed, lease.name, look=look)
        if look and before not in (None, look):
            self.waker.ring(lease.feed, lease.name, Observation(lease.fence, lease.beat))
        return before is not None

    def _look_on(self, lease: Lease, seen: Observation) -> None:
        """The next process looks again: it finds the lease as it was, or looked on in vain."""
        self.sleep(limits.LEASE_LOOK_MS)
        longer = replace(seen, ms=seen.ms + limits.LEASE_LOOK_MS)
        self.waker.ring(lease.feed, lease.name, longer)

    def _turn(self, lease: Lease, handler: Handler, work: _Work) -> tuple[Lease, bool]:
        """One read, unless there is enough of the last one, and what follows from it."""
        lease, more = self._prepared(lease, handler)
        run = work.ahead or self.reader.read_on(lease.feed, lease.checkpoint)
        if run.trimmed:
            return self._fell_off(lease, run, handler, work), False
        if lease.is_late(self.reader.clock()):
            lease = self._save(lease, work)  # still ours, before anything is sent or written
        pages = portion(run.pages, work.operations)
        count = handler.handle(lease.feed, pages) if pages else 0
        work.keep(run, count)
        if count:
            lease = replace(moved(lease, pages[:count]), note=handler.note(lease.feed))
            more = more or run.more or count < len(run.pages)
        elif pages and not more:
            return self._let_go(lease, work)
        if run.waiting and not more and self.habits.waits:
            return self._wait(lease, work), False
        return (self._save(lease, work), False) if more else self._let_go(lease, work)

    def _prepared(self, lease: Lease, handler: Handler) -> tuple[Lease, bool]:
        """The lease with what is to be stored, and whether there is more to prepare."""
        more = handler.prepare(lease.feed, lease.checkpoint)
        return replace(lease, note=handler.note(lease.feed)), more

    def _let_go(self, lease: Lease, work: _Work) -> tuple[Lease, bool]:
        """The end of a run, unless somebody rang meanwhile."""
        if self.store.release(lease):
            return lease, True
        return self._save(lease, work), False

    def _save(self, lease: Lease, work: _Work) -> Lease:
        work.stored = None
        work.stored = self.store.save(lease, lease.checkpoint, now_ms=self.reader.clock())
        return work.stored

    def _wait(self, lease: Lease, work: _Work) -> Lease:
        """Before a hole: close it when it is overdue, else give its writer a moment."""
        lease = self._save(lease, work)
        if not self.filler.close_hole(lease.feed, lease.checkpoint):
            self.sleep(limits.HOLE_POLL_MS)
        return lease

    def _fell_off(self, lease: Lease, run: Run, handler: Handler, work: _Work) -> Lease:
        """What is gone is missed by who had handled anything before it."""
        goes_on = handler.lost(lease.feed)
        if lease.checkpoint or not goes_on:
            self.reader.count("FollowerFellOff", 1)
        if goes_on:
            return self._save(replace(lease, checkpoint=run.floor - 1), work)
        raise FellOff(
            feed=lease.feed, follower=lease.name, checkpoint=lease.checkpoint, floor=run.floor
        )

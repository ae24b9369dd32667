"""
Relaying: a chained feed copies whole pages of its upstream, in order, under their own numbers.

One run at a time holds the relay, by its document: pages, checkpoint and head are written at
once, on the condition of its version. So what is here is always a prefix of the upstream's log,
whatever runs, operators and elections do; who was overtaken has written nothing, and looks again.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.deadlines import is_ahead
from tidings.core.errors import (
    BrokenPortion,
    LeaseLost,
    LogFellOff,
    OtherLog,
    TooLarge,
    Unavailable,
    UpstreamRefused,
)
from tidings.core.replication.comparison import Comparison
from tidings.core.replication.election import Elector
from tidings.core.replication.lock import Hold
from tidings.core.replication.page_writer import fresh, grouped, packed
from tidings.core.replication.replica import (
    RELAY,
    Condition,
    Copy,
    Counts,
    Wanted,
    failed,
    succeeded,
)
from tidings.core.replication.selection import ALL
from tidings.core.replication.source import FallOff, Role

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidings.core.effects import Clock, Count, NewId, Sleep
    from tidings.core.followers.stores import Waker
    from tidings.core.log.stores import LogStore
    from tidings.core.model.pages import Page
    from tidings.core.replication.bootstrap import Bootstrapper
    from tidings.core.replication.election import Turn
    from tidings.core.replication.replica import Relay
    from tidings.core.replication.source import Source, Sources
    from tidings.core.replication.stores import Coordinator, RelayStore, Upstream
    from tidings.core.replication.wire import Portion, Standing
    from tidings.core.state.sum_reader import SumReader

_STORE_FAILURES_MAX = 3  # of our own store in a row: an outage, which the function is to tell
_STORE_RETRY_MS = 1_000
_COPIES = {FallOff.BOOTSTRAP: Copy(), FallOff.LATEST: Copy(empty=True)}


@dataclass(frozen=True, slots=True)
class Relayer:
    """*page_ms* is how long DynamoDB keeps a page that was just committed."""

    store: RelayStore
    upstream: Upstream
    sources: Sources
    bootstrapper: Bootstrapper
    log: LogStore
    waker: Waker
    clock: Clock
    sleep: Sleep
    new_id: NewId
    count: Count
    page_ms: int
    sums: SumReader
    coordinator: Coordinator | None = None

    def run(self, feed: str) -> int:
        """
        Copy what there is and wait for more, for `limits.RELAY_RUN_MS`; how many pages came.

        Raises:
            BrokenRelay: what is stored cannot be read.
            Unavailable: our own store did not answer, again and again.
        """
        source = self.sources.get(feed)
        if source is None:
            return 0
        elector = Elector(feed, source, self.coordinator, self.clock, self.count)
        hold = Hold(self.store, self.clock, self.new_id(), self.store.relay(feed))
        parts = self.upstream, self.sums, self.bootstrapper
        return _Run(self, source, elector, hold, Comparison(*parts, self.clock, self.count)).run()


@dataclass(slots=True)
class _Run:
    """*size* is what the next page needs, where it is large."""

    parts: Relayer
    source: Source
    elector: Elector
    hold: Hold
    comparison: Comparison
    until_ms: int = 0
    copied: int = 0
    size: int = 0
    failures: int = 0

    @property
    def relay(self) -> Relay:
        return self.hold.relay

    def run(self) -> int:
        if not self._take():
            return 0
        self.until_ms = self.parts.clock() + limits.RELAY_RUN_MS
        try:
            while self._goes_on():
                pass
        except Exception:
            self._abandon()
            raise
        self.parts.bootstrapper.let_go(self.relay.feed)
        self.parts.count("RelayPages", self.copied)
        return self.copied

    def _abandon(self) -> None:
        """Release the state and the relay after an error, as far as their stores answer."""
        with suppress(Exception):  # the error that ended the run counts
            self.parts.bootstrapper.let_go(self.relay.feed)
        with suppress(Exception):
            self.hold.doubt()
            if self.hold.look():
                self.hold.let_go()

    # --- the run -----------------------------------------------------------------------------

    def _take(self) -> bool:
        relay = self.relay
        if relay.held(self.parts.clock()):
            return False
        if not self._wanted():
            self.elector.leave()
            return False
        return self.hold.save(replace(relay, id=relay.id or self.parts.new_id()))

    def _wanted(self) -> bool:
        """Who is paused keeps its seat, which takes a run."""
        relay = self.relay
        if relay.stands or relay.wanted in (Wanted.SHUTDOWN, Wanted.PROMOTED):
            return False
        return relay.wanted is Wanted.RUN or self.source.role is Role.ELECTED

    def _goes_on(self) -> bool:
        """One turn. Our own store may fail to answer now and then; for long, it is an outage."""
        try:
            going = self._step()
            self.failures = 0
        except LeaseLost:
            self.parts.bootstrapper.let_go(self.relay.feed)
            return True
        except Unavailable:
            self.failures += 1
            if self.failures >= _STORE_FAILURES_MAX:
                raise
            self.hold.doubt()
            self.parts.sleep(_STORE_RETRY_MS)
            return True
        return going

    def _step(self) -> bool:
        """False at the end of the run, when the relay is not ours any more, or not wanted."""
        if not self.hold.look():
            return False
        if not self._wanted():
            self.elector.leave()
            self.hold.let_go()
            return False
        if self.parts.clock() >= self.until_ms:
            self.hold.let_go()
            self.parts.waker.ring(self.relay.feed, RELAY)
            return False
        self._turn(self.elector.turn(self.relay))
        return True

    def _turn(self, turn: Turn) -> None:
        relay = self.relay
        if self._turns(turn):
            self._turned(turn)
        elif self._pauses() or not turn.url:
            self._wait()
        elif relay.copy is not None:
            self._copy(relay.copy, turn.url)
        elif self.comparison.stops(relay):
            self._compare(turn.url)
        else:
            self._read(turn.url)

    def _pauses(self) -> bool:
        relay = self.relay
        now_ms, longest_ms = self.parts.clock(), limits.RELAY_BACKOFF_MS_MAX
        return relay.wanted is Wanted.PAUSE or is_ahead(relay.attempt_ms, now_ms, longest_ms)

    def _turns(self, turn: Turn) -> bool:
        relay = self.relay
        same_url = turn.url in ("", relay.upstream)
        return not same_url or (turn.role, turn.term) != (relay.role, relay.term)

    def _turned(self, turn: Turn) -> None:
        """
        From now on somebody else is read. The log stays as it is.

        What the old upstream came through is forgotten: it may come through us from now on.
        """
        relay = self.relay
        moved = replace(relay, role=turn.role, term=turn.term, changed_ms=self.parts.clock())
        if turn.role is not relay.role and relay.upstream:
            moved = replace(moved, transitions=relay.transitions + 1)
            self.parts.count("RelayRoleChanges", 1)
        if turn.url not in ("", relay.upstream):
            moved = replace(succeeded(moved), upstream=turn.url, via=(relay.id,))
        self.hold.save(moved)

    def _wait(self) -> None:
        """A moment, in which the seat and the relay are kept."""
        self.hold.keep()
        ahead = self.relay.attempt_ms - self.parts.clock()
        self.parts.sleep(min(ahead, limits.SEAT_RENEW_MS) if ahead > 0 else limits.SEAT_RENEW_MS)
        self.hold.doubt()

    # --- the log -----------------------------------------------------------------------------

    def _read(self, url: str) -> None:
        """What follows our last page; waits for it where there is nothing yet."""
        relay, selection = self.relay, self.source.selection
        size = max(self.size, limits.PORTION_BYTES_MIN)
        try:
            portion = self.parts.upstream.pages(
                url, relay.place, selection, size=size, block_s=self._block_s()
            )
            groups = self._groups(portion)
        except LogFellOff as error:
            self._fell_off(str(error))
        except OtherLog as error:
            self._stand(Condition.OTHER_LOG, f"{url} has another log: {error}")
        except UpstreamRefused as error:
            self._failed(Condition.REFUSED, str(error))
        except (Unavailable, BrokenPortion, TooLarge) as error:
            self._failed(Condition.RETRYING, str(error))
        else:
            self._received(portion, groups, url)

    def _block_s(self) -> int:
        """How long the upstream may wait for news: until the seat or the run has to be seen to."""
        elected = self.source.role is Role.ELECTED
        longest = limits.RELAY_POLL_S if elected else limits.PORTION_BLOCK_S_MAX
        return max(1, min(longest, (self.until_ms - self.parts.clock()) // 1000))

    def _groups(self, portion: Portion) -> list[list[Page]]:
        """
        The new pages, as many together as one write may hold.

        Raises:
            BrokenPortion: they do not follow what is here, or the next one is too long.
        """
        relay = self.relay
        if portion.pending > limits.PORTION_BYTES_MAX:
            rule = f"at most {limits.PORTION_BYTES_MAX} bytes"
            raise BrokenPortion(f"the next page has {portion.pending} bytes; a reply has {rule}")
        self.size = portion.pending
        pages = fresh(portion.pages, relay.checkpoint)
        self.hold.repeated += len(portion.pages) - len(pages)
        pages = [page for page in pages if self.comparison.allows(page.number)]
        now, page_ms = self.parts.clock(), self.parts.page_ms
        return list(grouped(packed(page, relay.id, now_ms=now, page_ms=page_ms) for page in pages))

    def _received(self, portion: Portion, groups: Sequence[Sequence[Page]], url: str) -> None:
        standing = portion.standing
        if self._cycles(standing, url):
            return
        self.hold.see(standing, url)
        if not self._is_ours():
            return
        if self.relay.checkpoint == 0 and standing.floor > 1:
            self._begin_copy(Copy(), f"the log of {url} begins with page {standing.floor}")
        elif groups:
            self._append_all(groups, portion.filtered)
        else:
            self._idle()
            if standing.ended:  # the answer came at once
                self._wait()
        if self.source.selection == ALL and not portion.is_full:
            self.comparison.begin(self.relay)

    def _compare(self, url: str) -> None:
        """Our state with the upstream's; meanwhile nothing is read."""
        compared = self.comparison.step(self.relay, url)
        if compared is not None:
            self.hold.save(compared)
        elif self.comparison.stops(self.relay):
            self._wait()

    def _is_ours(self) -> bool:
        """
        Whether all pages that are here are copies, as at the beginning.

        A feed that producers posted to, or whose checkpoint was lost, is not written over.
        """
        if self.relay.checkpoint or not self.parts.log.head(self.relay.feed):
            return True
        error = "pages are here, and nobody knows of which log: reset the relay"
        self._stand(Condition.OTHER_LOG, error)
        return False

    def _append_all(self, groups: Sequence[Sequence[Page]], filtered: int) -> None:
        """What was left out is counted with the last of the pages."""
        for at, pages in enumerate(groups, 1):
            if not self._append(pages, filtered if at == len(groups) else 0):
                return

    def _append(self, pages: Sequence[Page], filtered: int) -> bool:
        relay, last = self.relay, pages[-1]
        after = replace(
            _well(relay),
            checkpoint=last.number,
            seconds=last.seconds,
            page_at_ms=last.at_ms,
            low_watermark=relay.low_watermark or pages[0].number,
            counts=_counted(relay.counts, pages, filtered),
        )
        if self.hold.append(after, pages):
            self.copied += len(pages)
            return True
        if self.hold.look() and self.relay == relay:  # nobody was faster, so a number is taken
            first = pages[0].number
            self._stand(Condition.OTHER_LOG, f"page {first} or one behind it is here, not copied")
        return False

    def _idle(self) -> None:
        """Up to date; or the upstream is behind us, which is no news either."""
        if self.relay != _well(self.relay) or self.hold.has_news:
            self.hold.save(_well(self.relay))
        else:
            self.hold.keep()
        self.hold.doubt()

    # --- what goes wrong ---------------------------------------------------------------------

    def _cycles(self, standing: Standing, url: str) -> bool:
        """
        Whether the upstream is fed by us.

        Members of a cluster that read each other do so until the next election at most.
        """
        feeds = len(standing.via)
        if self.relay.id in standing.via:
            error = f"{url} comes through {feeds} feeds, this one among them"
        elif feeds >= limits.VIA_MAX:
            error = f"{url} comes through {feeds} feeds, which is too many"
        else:
            return False
        if self.source.role is Role.ELECTED and url != self.source.url:
            self._failed(Condition.RETRYING, error)
        else:
            self._stand(Condition.CYCLE, error)
        return True

    def _failed(self, condition: Condition, error: str) -> None:
        self.parts.count("RelayRetries", 1)
        self.hold.save(failed(self.relay, condition, error, now_ms=self.parts.clock()))

    def _stand(self, condition: Condition, error: str) -> None:
        """Until an operator looks at it."""
        self.hold.save(replace(self.relay, condition=condition, error=_cut(error)))

    def _fell_off(self, error: str) -> None:
        """Counted where pages were missed: not where there were none yet."""
        if self.relay.checkpoint == 0:
            if self._is_ours():
                self._begin_copy(Copy(), error)
            return
        self.parts.count("RelayFellOff", 1)
        copy = _COPIES.get(self.source.fall_off)
        if copy is None:
            self._stand(Condition.FELL_OFF, error)
        else:
            self._begin_copy(copy, error)

    # --- the state ---------------------------------------------------------------------------

    def _begin_copy(self, copy: Copy, error: str) -> None:
        relay = replace(succeeded(self.relay), copy=copy, condition=Condition.COPYING)
        self.hold.save(replace(relay, error=_cut(error)))

    def _copy(self, copy: Copy, url: str) -> None:
        bootstrapper, relay = self.parts.bootstrapper, self.relay
        if not bootstrapper.hold(relay.feed):
            self._wait()  # the follower `state` is at work, for some seconds at most
        elif copy.copied:
            if self.hold.append(_well(bootstrapper.finish(relay, copy)), ()):
                bootstrapper.let_go(relay.feed)
        else:
            self._copy_step(copy, url)

    def _copy_step(self, copy: Copy, url: str) -> None:
        relay = self.relay
        try:
            selection = self.source.selection
            after, standing = self.parts.bootstrapper.step(relay, copy, url, selection)
        except UpstreamRefused as error:
            self._failed(Condition.REFUSED, str(error))
        except (Unavailable, BrokenPortion) as error:
            self._failed(Condition.RETRYING, str(error))
        else:
            if standing is not None:
                if self._cycles(standing, url):
                    return
                self.hold.see(standing, url)
            going = replace(relay, failures=0, attempt_ms=0, condition=Condition.COPYING)
            self.hold.save(replace(going, copy=after))


def _well(relay: Relay) -> Relay:
    return replace(succeeded(relay), condition=Condition.RUNNING)


def _cut(error: str) -> str:
    return error[: limits.ERROR_CHARS_MAX]


def _counted(counts: Counts, pages: Sequence[Page], filtered: int) -> Counts:
    return replace(
        counts,
        pages=counts.pages + len(pages),
        operations=counts.operations + sum(len(page.lines) for page in pages),
        filtered=counts.filtered + filtered,
    )

"""Copy whole pages of an upstream to a chained feed, in order, with the same numbers.

A lock in the relay document ensures that one run at a time copies a feed. Each write stores the
pages, the checkpoint and the head in one step, on the condition that the relay document has not
changed. Therefore the local log is always a prefix of the upstream's log, even if runs, operators
and elections interfere. A run that finds a changed document writes nothing, and reads the document
again.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.effects import is_ahead
from tidings.core.errors import (
    BrokenBatch,
    LeaseLost,
    LogFellOff,
    OtherLog,
    TooLarge,
    Unavailable,
    UpstreamRefused,
)
from tidings.core.model.pages import encode
from tidings.core.replication.bootstrap import Comparison
from tidings.core.replication.election import Elector
from tidings.core.replication.relay import (
    RELAY,
    Copy,
    Counts,
    RelayLock,
    RelayStatus,
    Wanted,
    clear_failure,
    record_failure,
)
from tidings.core.replication.source import ALL, FallOff, Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tidings.core.effects import Runtime
    from tidings.core.model.pages import Page
    from tidings.core.replication.bootstrap import Bootstrapper
    from tidings.core.replication.election import Assignment, Coordinator
    from tidings.core.replication.relay import Relay, RelayStore
    from tidings.core.replication.source import Source, Sources
    from tidings.core.replication.wire import ReplicationBatch, UpstreamStatus
    from tidings.core.state.sums import SumReader


_PAGE_OVERHEAD_BYTES = 2_000  # maximum size of a page in the store without its body, in bytes


def fresh(pages: Sequence[Page], checkpoint: int) -> list[Page]:
    """Return the pages after *checkpoint*. The other pages are already in the log.

    Raises:
        BrokenBatch: a page is missing after the checkpoint or between two pages.
    """
    new_pages = [page for page in pages if page.number > checkpoint]
    for page in new_pages:
        if not page.first <= checkpoint + 1 <= page.number:
            raise BrokenBatch(f"received page {page.first} instead of page {checkpoint + 1}")
        checkpoint = page.number
    return new_pages


def pack_page(page: Page, append_id: str, *, now_ms: int, page_ms: int) -> Page:
    """Return *page* as the log stores it.

    A copied page may be older than the retention of the log. Its expiry is at least a day after
    *now_ms*, so that the page is trimmed before it expires.

    Raises:
        TooLarge, BrokenBatch: the page is too large.
    """
    lines = page.lines
    if len(lines) > limits.REQUEST_OPERATIONS_MAX:
        raise BrokenBatch(f"page {page.number} holds {len(lines)} entries, which are too many")
    return replace(
        page,
        body=encode(lines) if lines else "",
        append_id=append_id,
        expires_ms=max(page.at_ms + page_ms, now_ms + limits.TTL_SLACK_MS),
    )


def group_pages(pages: Iterable[Page]) -> Iterator[list[Page]]:
    """Yield *pages* in groups, each of which fits into one write."""
    group: list[Page] = []
    size = 0
    for page in pages:
        body = page.body if isinstance(page.body, bytes) else page.body.encode()
        weight = len(body) + _PAGE_OVERHEAD_BYTES
        full = len(group) == limits.BATCH_PAGES_MAX or size + weight > limits.RELAY_WRITE_BYTES
        if group and full:
            yield group
            group, size = [], 0
        group.append(page)
        size += weight
    if group:
        yield group


_STORE_FAILURES_MAX = 3  # consecutive failures, after which the run fails with the store's error
_STORE_RETRY_MS = 1_000
_COPIES = {FallOff.BOOTSTRAP: Copy(), FallOff.LATEST: Copy(empty=True)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Relayer:
    """A worker that copies the pages of chained feeds from their upstreams."""

    store: RelayStore
    sources: Sources
    bootstrapper: Bootstrapper
    runtime: Runtime
    sums: SumReader
    coordinator: Coordinator | None = None

    def run(self, feed: str) -> int:
        """Copy the pages of *feed* for up to `limits.RELAY_RUN_MS`; return how many were copied.

        Raises:
            BrokenRelay: the stored document of the relay cannot be read.
            Unavailable: the local store did not answer several times in a row.
        """
        source = self.sources.get(feed)
        if source is None:
            return 0
        elector = Elector(
            feed=feed, source=source, coordinator=self.coordinator, runtime=self.runtime
        )
        lock = RelayLock(
            self.store, self.runtime.clock, self.runtime.new_id(), self.store.relay(feed)
        )
        comparison = Comparison(
            bootstrapper=self.bootstrapper, sums=self.sums, count=self.runtime.count
        )
        return _Run(self, source, elector, lock, comparison).run()


@dataclass(slots=True)
class _Run:
    """One run of one relay.

    *_size* is the reply size that the next page needs, or 0 if the last reply was large enough.
    """

    parts: Relayer
    source: Source
    elector: Elector
    lock: RelayLock
    comparison: Comparison
    _until_ms: int = 0
    _copied: int = 0
    _size: int = 0
    _failures: int = 0

    @property
    def relay(self) -> Relay:
        return self.lock.relay

    def run(self) -> int:
        if not self._acquire():
            return 0
        self._until_ms = self.parts.runtime.steady() + limits.RELAY_RUN_MS
        try:
            while self._try_step():
                pass
        except Exception:
            self._abandon()
            raise
        self.parts.bootstrapper.lease.release(self.relay.feed)
        self.parts.runtime.count("RelayPages", self._copied)
        return self._copied

    def _abandon(self) -> None:
        """Release the lease of the state and the lock of the relay, if their stores answer."""
        with suppress(Exception):  # the error that ended the run is reported, and not this one
            self.parts.bootstrapper.lease.release(self.relay.feed)
        with suppress(Exception):
            self.lock.mark_stale()
            if self.lock.refresh():
                self.lock.release()

    def _acquire(self) -> bool:
        relay = self.relay
        if relay.is_held(self.parts.runtime.clock()):
            return False
        if not self._is_wanted():
            self.elector.leave()
            return False
        return self.lock.save(replace(relay, id=relay.id or self.parts.runtime.new_id()))

    def _is_wanted(self) -> bool:
        """Return True if the relay should run. A paused leader runs, to keep its leader lease."""
        relay = self.relay
        if relay.is_blocked or relay.wanted in (Wanted.SHUTDOWN, Wanted.PROMOTED):
            return False
        return relay.wanted is Wanted.RUN or self.source.role is Role.ELECTED

    def _try_step(self) -> bool:
        """Do one step; return True if the run continues. Tolerate some failures of the store."""
        try:
            continues = self._step()
            self._failures = 0
        except LeaseLost:
            self.parts.bootstrapper.lease.release(self.relay.feed)
            return True
        except Unavailable:
            self._failures += 1
            if self._failures >= _STORE_FAILURES_MAX:
                raise
            self.lock.mark_stale()
            self.parts.runtime.sleep(_STORE_RETRY_MS)
            return True
        return continues

    def _step(self) -> bool:
        """Do one step, and return True if the run continues.

        The run ends after its maximum time, if it has lost the lock, or if the relay must not run.
        """
        if not self.lock.refresh():
            return False
        if not self._is_wanted():
            self.elector.leave()
            self.lock.release()
            return False
        if self.parts.runtime.steady() >= self._until_ms:
            self.lock.release()
            self.parts.bootstrapper.lease.waker.wake(self.relay.feed, RELAY)
            return False
        self._work(self.elector.assignment(self.relay))
        return True

    def _work(self, assignment: Assignment) -> None:
        relay = self.relay
        is_moved = assignment.url not in ("", relay.upstream)
        if is_moved or (assignment.role, assignment.term) != (relay.role, relay.term):
            self._switch(assignment)
        elif self._is_paused() or not assignment.url:
            self._wait()
        elif relay.copy is not None:
            self._copy(relay.copy, assignment.url)
        elif self.comparison.blocks(relay):
            compared = self.comparison.step(self.relay, assignment.url)
            if compared is not None:
                self.lock.save(compared)
            elif self.comparison.blocks(self.relay):
                self._wait()
        else:
            self._read(assignment.url)

    def _is_paused(self) -> bool:
        relay = self.relay
        now_ms, longest_ms = self.parts.runtime.clock(), limits.RELAY_BACKOFF_MS_MAX
        return relay.wanted is Wanted.PAUSE or is_ahead(relay.attempt_ms, now_ms, longest_ms)

    def _switch(self, to: Assignment) -> None:
        """Store the new role and upstream. The log stays as it is.

        Remove from `via` the relays from the master to the old upstream. The old upstream may now
        copy this feed. If it found its own relay in `via`, it would report a cycle.
        """
        relay = self.relay
        moved = replace(relay, role=to.role, term=to.term, changed_ms=self.parts.runtime.clock())
        if to.role is not relay.role and relay.upstream:
            moved = replace(moved, transitions=relay.transitions + 1)
            self.parts.runtime.count("RelayRoleChanges", 1)
        if to.url not in ("", relay.upstream):
            moved = replace(clear_failure(moved), upstream=to.url, via=(relay.id,))
        self.lock.save(moved)

    def _wait(self) -> None:
        """Renew the lock of the relay, and sleep until the leader lease must be renewed."""
        self.lock.renew()
        ahead = self.relay.attempt_ms - self.parts.runtime.clock()
        self.parts.runtime.sleep(
            min(ahead, limits.LEADER_LEASE_RENEW_MS) if ahead > 0 else limits.LEADER_LEASE_RENEW_MS
        )
        self.lock.mark_stale()

    def _read(self, url: str) -> None:
        """Request the pages after the checkpoint from *url*, and copy the pages of the answer."""
        relay, selection = self.relay, self.source.selection
        size = max(self._size, limits.BATCH_BYTES_MIN)
        try:
            batch = self.parts.bootstrapper.upstream.pages(
                url, relay.place, selection, size=size, block_s=self._block_s()
            )
            groups = self._groups(batch)
        except LogFellOff as error:
            self._fell_off(str(error))
        except OtherLog as error:
            self._stop(RelayStatus.OTHER_LOG, f"{url} has another log: {error}")
        except UpstreamRefused as error:
            self._record_failure(RelayStatus.REFUSED, str(error))
        except (Unavailable, BrokenBatch, TooLarge) as error:
            self._record_failure(RelayStatus.RETRYING, str(error))
        else:
            self._store(batch, groups, url)

    def _block_s(self) -> int:
        """Return for how many seconds the upstream may wait for a page before it answers."""
        elected = self.source.role is Role.ELECTED
        longest = limits.RELAY_POLL_S if elected else limits.BATCH_BLOCK_S_MAX
        return max(1, min(longest, (self._until_ms - self.parts.runtime.steady()) // 1000))

    def _groups(self, batch: ReplicationBatch) -> list[list[Page]]:
        """Return the new pages in groups that fit one write."""
        relay = self.relay
        if batch.pending > limits.BATCH_BYTES_MAX:
            rule = f"at most {limits.BATCH_BYTES_MAX} bytes"
            raise BrokenBatch(f"the next page has {batch.pending} bytes; a reply has {rule}")
        self._size = batch.pending
        pages = fresh(batch.pages, relay.checkpoint)
        self.lock.repeated += len(batch.pages) - len(pages)
        pages = [page for page in pages if self.comparison.allows(page.number)]
        now, page_ms = self.parts.runtime.clock(), self.parts.runtime.page_ms
        return list(
            group_pages(pack_page(page, relay.id, now_ms=now, page_ms=page_ms) for page in pages)
        )

    def _store(self, batch: ReplicationBatch, groups: Sequence[Sequence[Page]], url: str) -> None:
        status = batch.status
        if self._is_cycle(status, url):
            return
        self.lock.observe(status, url)
        if not self._is_ours():
            return
        if self.relay.checkpoint == 0 and status.floor > 1:
            self._begin_copy(Copy(), f"the log of {url} begins with page {status.floor}")
        elif groups:
            self._append_all(groups, batch.filtered)
        else:
            if self.relay != _well(self.relay) or self.lock.has_unsaved_changes:
                self.lock.save(_well(self.relay))
            else:
                self.lock.renew()
            self.lock.mark_stale()
            if status.ended:  # such an upstream answers at once, without waiting for a page
                self._wait()
        if self.source.selection == ALL and not batch.is_full:
            self.comparison.begin(self.relay)

    def _is_ours(self) -> bool:
        """Return True if all pages of the local log are copies; otherwise stop the relay.

        Pages are therefore never appended to a log that producers have posted to, or to a log that
        has lost its relay document.
        """
        if self.relay.checkpoint or not self.parts.bootstrapper.log.head(self.relay.feed):
            return True
        error = "local pages exist but their upstream is unknown; run `tidings relays reset`"
        self._stop(RelayStatus.OTHER_LOG, error)
        return False

    def _append_all(self, groups: Sequence[Sequence[Page]], filtered: int) -> None:
        """Append all groups. Count the *filtered* operations with the last group."""
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
            counts=_add_counts(relay.counts, pages, filtered),
        )
        if self.lock.append(after, pages):
            self._copied += len(pages)
            return True
        if self.lock.refresh() and self.relay == relay:
            # The document is unchanged, so the log has a page with one of these numbers.
            first = pages[0].number
            error = f"page {first} or a later one exists already, but was not copied"
            self._stop(RelayStatus.OTHER_LOG, error)
        return False

    def _is_cycle(self, status: UpstreamStatus, url: str) -> bool:
        """Return True, and store an error, if the upstream copies this feed, also indirectly.

        Do the same if the chain of copies up to the upstream is too long. Two members of a cluster
        may copy each other until the next election, so a member retries instead of stopping.
        """
        feeds = len(status.via)
        if self.relay.id in status.via:
            error = f"{url} is the end of a chain of {feeds} copies, and this feed is one of them"
        elif feeds >= limits.VIA_MAX:
            error = f"{url} is the end of a chain of {feeds} copies, which is too long"
        else:
            return False
        if self.source.role is Role.ELECTED and url != self.source.url:
            self._record_failure(RelayStatus.RETRYING, error)
        else:
            self._stop(RelayStatus.CYCLE, error)
        return True

    def _record_failure(self, condition: RelayStatus, error: str) -> None:
        self.parts.runtime.count("RelayRetries", 1)
        self.lock.save(
            record_failure(self.relay, condition, error, now_ms=self.parts.runtime.clock())
        )

    def _stop(self, condition: RelayStatus, error: str) -> None:
        """Store *condition* and *error*. The relay then stops until an operator acts."""
        self.lock.save(replace(self.relay, condition=condition, error=_cut(error)))

    def _fell_off(self, error: str) -> None:
        """Handle pages that the upstream trimmed before they were copied."""
        if self.relay.checkpoint == 0:
            if self._is_ours():
                self._begin_copy(Copy(), error)
            return
        self.parts.runtime.count("RelayFellOff", 1)
        copy = _COPIES.get(self.source.fall_off)
        if copy is None:
            self._stop(RelayStatus.FELL_OFF, error)
        else:
            self._begin_copy(copy, error)

    def _begin_copy(self, copy: Copy, error: str) -> None:
        relay = replace(clear_failure(self.relay), copy=copy, condition=RelayStatus.COPYING)
        self.lock.save(replace(relay, error=_cut(error)))

    def _copy(self, copy: Copy, url: str) -> None:
        bootstrapper, relay = self.parts.bootstrapper, self.relay
        if not bootstrapper.lease.acquire(relay.feed):
            self._wait()  # the follower `state` holds the lease for a few seconds
        elif copy.copied:
            if self.lock.append(_well(bootstrapper.finish(relay, copy)), ()):
                bootstrapper.lease.release(relay.feed)
        else:
            self._copy_step(copy, url)

    def _copy_step(self, copy: Copy, url: str) -> None:
        relay = self.relay
        try:
            selection = self.source.selection
            after, status = self.parts.bootstrapper.step(relay, copy, url, selection)
        except UpstreamRefused as error:
            self._record_failure(RelayStatus.REFUSED, str(error))
        except (Unavailable, BrokenBatch) as error:
            self._record_failure(RelayStatus.RETRYING, str(error))
        else:
            if status is not None:
                if self._is_cycle(status, url):
                    return
                self.lock.observe(status, url)
            going = replace(relay, failures=0, attempt_ms=0, condition=RelayStatus.COPYING)
            self.lock.save(replace(going, copy=after))


def _well(relay: Relay) -> Relay:
    return replace(clear_failure(relay), condition=RelayStatus.RUNNING)


def _cut(error: str) -> str:
    return error[: limits.ERROR_CHARS_MAX]


def _add_counts(counts: Counts, pages: Sequence[Page], filtered: int) -> Counts:
    return replace(
        counts,
        pages=counts.pages + len(pages),
        operations=counts.operations + sum(len(page.lines) for page in pages),
        filtered=counts.filtered + filtered,
    )

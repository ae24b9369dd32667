"""Continue a feed after its tables were restored from a backup, so that no reader skips pages.

The tables may have been restored to different times. The log is therefore kept up to its first
hole, and every follower and consumer that had read further is moved back to the last page that is
kept. Later page numbers that may have been sent to readers are never used again: empty pages
replace them (`Page.skipped`), the counter continues after them, and the profile records them as
lost (`settings.profiles`). The record in the profile is written first and the empty pages last. If
a run is killed in between, the next run detects this and completes the restore.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from tidings.core import limits
from tidings.core.archive.generations import begin, lost_parts, remove_lost
from tidings.core.archive.reader import all_spans
from tidings.core.archive.segments import Generation, encode
from tidings.core.archive.writer import generation_of, note_of
from tidings.core.consumers import consumer as consumers
from tidings.core.consumers import position as positions
from tidings.core.consumers.consumer import Note
from tidings.core.counters import RESTORED
from tidings.core.errors import Unavailable
from tidings.core.followers.leases import Observation
from tidings.core.model.cursors import PAGE_END, Place
from tidings.core.model.feeds import ARCHIVE, HOST
from tidings.core.model.pages import jump
from tidings.core.settings.profiles import possible, remember_lost

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tidings.core.archive.segments import ArchiveStore
    from tidings.core.consumers.consumer import Consumer, ConsumerStore
    from tidings.core.effects import Runtime
    from tidings.core.followers.leases import FollowerStore, Lease
    from tidings.core.log.reader import Reader
    from tidings.core.model.pages import Page
    from tidings.core.settings.profiles import Lost, ProfileStore


RESTORE = "restore"  # both the action and its author in the notes of named consumers
_PUT_BACK = (
    "the log was restored to this place; mark it `copy` if its store must not keep lost operations"
)


class Numbers(Protocol):
    """The page numbers of a feed. No other process appends to the feed during the restore."""

    def raise_head(self, feed: str, page: int) -> None:
        """Raise the counter to *page* if it is lower, so that the next number is above *page*."""

    def fill(self, feed: str, pages: Sequence[Page]) -> None:
        """Write *pages* in any order. They are few, and the log has no pages with their numbers."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan to keep the log up to *kept*. The pages after *kept* up to page *last* count as lost.

    *last* is the highest page number that may have been sent to a reader. *strays* are the existing
    pages after the first hole, which stay in the log with their numbers.
    """

    kept: Place
    last: int
    strays: frozenset[int]

    @property
    def lost(self) -> Lost:
        return self.kept.page + 1, self.last

    @property
    def end(self) -> int:
        """Return the number of the last empty page.

        This number was never sent to a reader before the restore. Places after it therefore belong
        to the restored log.
        """
        return self.last + 1

    @property
    def jumps(self) -> Iterator[tuple[int, int]]:
        """Yield the first and last number of each range that an empty page replaces."""
        first = self.kept.page + 1
        for stray in (*sorted(self.strays), self.end + 1):
            if first < stray:
                yield first, stray - 1
            first = stray + 1


@dataclass(frozen=True, slots=True)
class Restored:
    """The followers and consumers that were moved back, and the number of *parts* that were cut."""

    followers: tuple[str, ...]
    consumers: tuple[str, ...]
    parts: int


@dataclass(frozen=True, slots=True)
class Rewinder:
    """The part of a restore that moves followers and named consumers back."""

    followers: FollowerStore
    consumers: ConsumerStore
    runtime: Runtime

    def take_back(self, feed: str, checkpoints: Mapping[str, int], kept: int) -> Iterator[str]:
        """Move each follower that is after page *kept* back to page *kept*; yield its name."""
        for name, page in checkpoints.items():
            if page <= kept:
                continue
            lease = self.take(feed, name)
            # The note belongs to the later checkpoint, so it is dropped. That of the archive names
            # the generation of the pages.
            note = lease.note if name == ARCHIVE else b""
            back = replace(lease, checkpoint=kept, note=note)
            self.followers.release(back, force=True)
            yield name

    def take(self, feed: str, name: str) -> Lease:
        """Take the lease of the follower *name*.

        The restored lease may name a holder from the time of the backup. That process does not
        renew the restored lease, so the lease can be taken after `limits.LEASE_MS`.
        """
        owner = self.runtime.new_id()
        lease = self.followers.take(feed, name, owner=owner, now_ms=self.runtime.clock())
        if lease.owner != owner:
            self.runtime.sleep(limits.LEASE_MS)
            seen = Observation(lease.fence, lease.beat)
            lease = self.followers.take(
                feed, name, owner=owner, now_ms=self.runtime.clock(), over=seen
            )
        if lease.owner != owner:
            raise Unavailable(f"another process runs the follower {name} of {feed}; try again")
        return lease

    def move_consumers(self, feed: str, kept: Place) -> Iterator[str]:
        """Move each named consumer that is after *kept* back to *kept*; yield its name.

        Revoke the leases of all workers. Every consumer gets a note of the restore, because its
        store may still have operations that are lost now.
        """
        note = Note(self.runtime.clock(), RESTORE, RESTORE, _PUT_BACK, kept.encode())
        for consumer in self.consumers.consumers(feed):
            left = rewind(consumer, kept)
            change = consumers.Change(
                consumers.revoke_lease(left) if left == consumer else left, note
            )
            if not self.consumers.write(feed, consumer.name, consumer.version, change):
                raise Unavailable(f"the consumer {consumer.name} of {feed} has changed; try again")
            if left != consumer:
                yield consumer.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Restorer:
    """The restorer of a feed. *archive* is None if the feed has no archive."""

    reader: Reader
    numbers: Numbers
    profiles: ProfileStore
    archive: ArchiveStore | None
    rewinder: Rewinder
    runtime: Runtime

    def plan(
        self,
        feed: str,
        last_sent: int | None,
        *,
        copied_ms: int = 0,
        hint: int = 0,
        assigned: int = 0,
    ) -> Plan:
        """Return the plan, given that no reader was sent a page above *last_sent*.

        If *last_sent* is None, assume that the feed has assigned numbers at the highest possible
        rate, and has sent pages with all of them. Count the time from the last page that is kept
        or, if it is later, from *copied_ms*: the restored log has all pages committed before
        *copied_ms*. *hint* is a page at or below the frontier, or 0. *assigned* is a page number
        that was assigned before the restore, or 0.
        """
        frontier = self.reader.frontier(feed, hint)
        # The lost pages of an unfinished restore, or None if all restores are complete.
        unfinished = [each for each in self._lost(feed) if each[0] - 1 <= frontier.page <= each[1]]
        begun = unfinished[-1] if unfinished else None
        kept = frontier
        if begun:
            page = self.reader.at(feed, begun[0] - 1)
            kept = page.end if page else Place(begun[0] - 1, PAGE_END, 0)
        strays = frozenset(self._pages_after(feed, kept.page))
        known = max([kept.page, assigned, *strays, *self._assigned_pages(feed)])
        if begun and known <= begun[1] + 1:
            return Plan(kept, max(begun[1], last_sent or 0), strays)
        if last_sent is None:
            since_ms = max(kept.seconds * 1000, copied_ms)
            last_sent = known + possible(known, self.reader.clock() - since_ms if since_ms else 0)
        return Plan(kept, max(known, last_sent), strays)

    def restore(self, feed: str, plan: Plan) -> Restored:
        """Execute *plan*. If the run is killed, a run with a new plan completes the restore.

        Raises:
            Unavailable: a store does not answer, or another process runs a follower or consumer.
        """
        self.remember_for_new_feeds(plan.last)
        remember_lost(self.profiles, feed, plan.lost)
        self.numbers.raise_head(feed, plan.end)
        checkpoints = self.reader.checkpoints.checkpoints(feed)
        rewound = tuple(self.rewinder.take_back(feed, checkpoints, plan.kept.page))
        moved = tuple(self.rewinder.move_consumers(feed, plan.kept))
        now = self.reader.clock()
        ends = {"at_ms": now, "expires_ms": now + self.runtime.page_ms}
        pages = [jump(first, last, **ends) for first, last in plan.jumps]
        parts = self._cut_archive(self.archive, feed, plan, pages) if self.archive else 0
        self.numbers.fill(feed, pages)
        if self.reader.log.log_counter(feed).successor == RESTORED:
            self.reader.log.yield_to(feed, "")
        return Restored(rewound, moved, parts)

    def _cut_archive(
        self, archive: ArchiveStore, feed: str, plan: Plan, pages: Sequence[Page]
    ) -> int:
        """Begin a generation of the archive and remove lost pages; return how many parts were cut.

        The follower stores the generation with its checkpoint. A follower of the tables before the
        restore, which may still run, does not know it.
        """
        lease = self.rewinder.take(feed, ARCHIVE)
        parent = generation_of(lease.note)
        number = begin(archive, feed, Generation(parent, plan.kept.page, plan.last))
        self.rewinder.followers.release(replace(lease, note=note_of(number)), force=True)
        if not plan.strays:
            archive.put(feed, *encode(pages, number))  # readers of the archive learn of the jump
        return remove_lost(archive, feed)

    def remember_for_new_feeds(self, last: int) -> None:
        """Record at the host that readers may know numbers up to *last* of feeds of any name.

        A feed that was created since the backup is unknown now. If it is created again, it does not
        use these numbers (`feeds.service`).
        """
        known = (last for _, last in self._lost(HOST))
        remember_lost(self.profiles, HOST, (1, max([last, *known])))

    def _lost(self, feed: str) -> tuple[Lost, ...]:
        return self.profiles.profile(feed).lost

    def _pages_after(self, feed: str, after: int) -> Iterator[int]:
        """Yield the numbers of the pages above *after* that are not empty."""
        while pages := self.reader.log.read(feed, after):
            yield from (page.number for page in pages if page.body)
            after = pages[-1].number

    def _assigned_pages(self, feed: str) -> Iterator[int]:
        """Yield page numbers that were certainly assigned before the restore."""
        yield self.reader.log.head(feed)
        yield from self.reader.checkpoints.checkpoints(feed).values()
        yield from (
            positions.rank(each.position)[0] for each in self.rewinder.consumers.consumers(feed)
        )
        yield from (last for _, last in self._lost(feed))
        if self.archive:
            head = self.reader.log.head(feed)
            yield from (span.last for span in all_spans(self.archive, feed, head))
            yield from (span.last for span in lost_parts(self.archive, feed))


def rewind(consumer: Consumer, kept: Place) -> Consumer:
    """Return *consumer* as if it had received nothing after *kept*.

    If the consumer is receiving a copy of the state, the copy starts again.
    """
    if consumer.copying and consumer.position != positions.COPY:
        return consumers.place_at(consumer, positions.COPY)
    beyond = [span for span in consumer.acked if span.page > kept.page]
    if positions.rank(consumer.position)[0] > kept.page:
        return consumers.place_at(consumer, kept if kept.page else None)
    marks = (consumer.sent, consumer.single)
    if not beyond and all(positions.rank(mark)[0] <= kept.page for mark in marks):
        return consumer
    return consumers.place_at(consumer, consumer.position)

"""The job that erases: it removes the content of entries from every store of a feed, step by step.

The job may be killed at any point. Each step changes only what still has content to be removed, and
the record of the erasure (`records`) has the last page that was handled, so a later run continues.
All erasures that are in the same phase share one reading of the log or the archive.

The state needs no step, because the erasure entry has replaced the object's row.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.archive.generations import remove_lost
from tidings.core.archive.reader import all_spans
from tidings.core.archive.segments import decode, encode
from tidings.core.consumers.consumer import Change
from tidings.core.durable_streams.messages import TYPE as STREAM
from tidings.core.effects import is_ahead
from tidings.core.erasure.entries import Scrubber, with_removed
from tidings.core.erasure.records import Phase
from tidings.core.errors import Unavailable
from tidings.core.followers.follower import effective_checkpoints
from tidings.core.model.cursors import Place, parse_cursor
from tidings.core.model.feeds import STATE, one_lane
from tidings.core.model.filters import EVERYTHING, NOTHING
from tidings.core.model.operations import as_event, event_of
from tidings.core.state.rows import Difference, Kind, bucket_rows
from tidings.core.sync import corrections

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence

    from tidings.core.archive.segments import ArchiveStore, Span
    from tidings.core.auth.keys import KeyStore
    from tidings.core.consumers.consumer import Consumer, ConsumerStore
    from tidings.core.durable_streams.stream import StreamStore
    from tidings.core.effects import Clock, Runtime
    from tidings.core.erasure.entries import Position, Scrubbed
    from tidings.core.erasure.records import Erasure, ErasureStore, Ledger, RewriteStore
    from tidings.core.followers.leases import Waker
    from tidings.core.log.stores import Checkpoints, LogStore
    from tidings.core.model.pages import Page
    from tidings.core.state.removed_parents import RemovedParents, RemovedParentsStore
    from tidings.core.state.rows import StateStore
    from tidings.core.sync.apply import Corrector


def never(feed: str) -> bool:
    """Return False: by default, erased entries do not keep their ids."""
    return False


def _nothing(*_: object) -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Eraser:
    """The job of all feeds; one process at a time runs it for a feed.

    *keeps_ids* returns True for a feed in which erased entries keep their ids. *lanes* returns the
    number of push lanes of a feed. *chained* has the feeds that are copies. *overwrite* overwrites
    the free space of the database file; it returns False if it must be called again later.
    *settle_ms* is the longest time for which a process that lost its lease may still write pages
    that it has read. The job waits for this time after it has rewritten the log, before it rewrites
    what such a process may write. *expiring* is the clock by which tombstones expire. *rest* is
    called often; it may sleep, to leave the processor to others. *on_nothing* is called with each
    erasure that has found no data to erase. *streams* is None without durable streams.
    """

    store: ErasureStore
    rewrites: RewriteStore
    log: LogStore
    checkpoints: Checkpoints
    states: StateStore
    removed_parents: RemovedParentsStore
    consumers: ConsumerStore
    corrector: Corrector
    runtime: Runtime
    expiring: Clock
    waker: Waker
    archive: ArchiveStore | None = None
    keeps_ids: Callable[[str], bool] = never
    lanes: Callable[[str], int] = one_lane
    chained: Container[str] = ()
    overwrite: Callable[[], bool] | None = None
    settle_ms: int = 0
    ledger: Ledger | None = None
    rest: Callable[[], object] = _nothing
    keys: KeyStore
    streams: StreamStore | None = None
    on_nothing: Callable[[str, Erasure], object] = _nothing

    def run(self, feed: str, until_ms: int) -> bool:
        """Work on the erasures of *feed* until *until_ms* by the steady clock, at least one step.

        Return True if more can be done now. Otherwise, nothing is left to do, or the job waits for
        followers, for corrections of a copied feed, or for the end of the phase KEPT.

        Raises:
            Unavailable: a store does not answer, or another process runs the job.
        """
        while self._step(feed):
            if self.runtime.steady() >= until_ms:
                return True
        return False

    def awaits_followers(self, feed: str) -> bool:
        """Return True if an erasure waits for followers, and no other one holds it up."""
        unfinished = self.store.unfinished(feed)
        return {each.phase for each in unfinished if each.is_waiting} == {Phase.WAITING}

    def waits(self, feed: str) -> bool:
        """Return True if an erasure waits for followers, for corrections, or for a free file."""
        return any(each.is_waiting for each in self.store.unfinished(feed))

    def _step(self, feed: str) -> bool:
        """Do one step of the latest phase with an erasure; return False if none can be done."""
        unfinished = self.store.unfinished(feed)
        # The latest phase is first, so that an erasure begins to rewrite the log only when no other
        # is between LOG and SPACE. All that wait then begin together, and share the reading.
        steps: Sequence[tuple[Phase, Callable[[str, Sequence[Erasure]], bool]]] = (
            (Phase.SPACE, self._overwrite),
            (Phase.ARCHIVE, self._rewrite_archive),
            (Phase.PARKED, self._rewrite_parked),
            (Phase.LOG, self._rewrite_log),
            (Phase.KEPT, self._end_keeping),
            (Phase.PARENTS, self._correct),
            (Phase.WAITING, self._await_followers),
        )
        busy = any(each.is_between(Phase.LOG, Phase.SPACE) for each in unfinished)
        for phase, step in steps:
            if phase is Phase.WAITING and busy:
                break
            some = [each for each in unfinished if each.phase is phase]
            if some and step(feed, some):
                return True
        return False

    def _save(self, feed: str, erasure: Erasure, **changed: object) -> None:
        if not self.store.save(feed, replace(erasure, **changed)):  # type: ignore[arg-type]
            raise Unavailable(f"{feed}: another process works on the erasure {erasure.id}")

    def _begin(self, feed: str, erasure: Erasure, phase: Phase, **changed: object) -> None:
        self._save(feed, erasure, phase=phase, page=0, **changed)

    def _scrubber(self, feed: str, erasures: Sequence[Erasure]) -> Scrubber:
        return Scrubber([each.target for each in erasures], self.keeps_ids(feed))

    # Corrections: other objects lose the erased object as a parent.

    def _correct(self, feed: str, erasures: Sequence[Erasure]) -> bool:
        """Append corrections for the objects of some buckets.

        Erasures that have reached the same bucket share its rows; the others wait. A copy appends
        nothing: it receives the corrections, and waits until no row needs one.
        """
        through = self.checkpoints.checkpoints(feed).get(STATE, 0)  # read before the rows
        ready = [each for each in erasures if through >= each.place.page]
        begin = max((each.page for each in ready), default=0)
        some = [each for each in ready if each.page == begin]
        part, counts = self._corrections(feed, begin, self._scrubber(feed, some))
        if not some or (part and feed in self.chained):
            return False
        if part:
            outcome = self.corrector.apply(feed, through, part)
            while not outcome.complete:
                outcome = self.corrector.apply(feed, through, part, outcome.behind)
        bucket = begin + limits.ERASURE_BUCKETS
        if is_last := bucket >= limits.BUCKETS:
            through = self.log.head(feed)  # after all corrections, also those of a killed run
        for erasure in some:
            corrected = erasure.corrected + counts[erasure.target.name]
            if is_last:
                self._begin(feed, erasure, Phase.WAITING, corrected=corrected, through=through)
            else:
                self._save(feed, erasure, page=bucket, corrected=corrected)
        return True

    def _corrections(
        self, feed: str, begin: int, scrubber: Scrubber
    ) -> tuple[list[bytes], Counter[str]]:
        """Return corrections of the next buckets, and their number by `Target.name`."""
        part, counts = list[bytes](), Counter[str]()
        for bucket in range(begin, begin + limits.ERASURE_BUCKETS) if scrubber.targets else ():
            for row in bucket_rows(self.states.read, feed, bucket):
                self.rest()
                # The row of an erased object is as new as its erasure, so rows only lose parents.
                line, names = scrubber.scrub_entry(row.line, (row.page, row.slot))
                if names and row.is_complete:
                    event = "delete" if event_of(line) == "delete" else "update"
                    position = corrections.Position(row.page, row.slot)
                    found = corrections.correction(as_event(line, event), position)
                    part.append(corrections.encode(found).encode())
                    counts.update(names)
        return part, counts

    def _await_followers(self, feed: str, erasures: Sequence[Erasure]) -> bool:
        """Begin to rewrite the log for each erasure that all followers have handled."""
        handled = effective_checkpoints(
            self.checkpoints.checkpoints(feed),
            archives=self.archive is not None,
            lanes=self.lanes(feed),
        )
        moved = False
        for erasure in erasures:
            if min(handled.values()) >= erasure.through:
                first = erasure.place.page if erasure.final else self.log.floor(feed)
                if self.ledger is not None:
                    self.ledger.add(feed, erasure)  # a copy has not accepted the request itself
                self._save(feed, erasure, phase=Phase.LOG, page=first - 1)
                moved = True
        if not moved:
            for follower in (name for name, page in handled.items() if page < erasures[0].through):
                self.waker.wake(feed, follower)
        return moved

    # The log.

    def _rewrite_log(self, feed: str, erasures: Sequence[Erasure]) -> bool:
        """Rewrite some pages, and move all erasures that need these pages."""
        after = min(each.page for each in erasures)
        end = max(each.through for each in erasures)
        pages = self.log.read(feed, after, limits.ERASURE_PAGES)
        last = pages[-1].number if pages else end
        some = [page for page in pages if page.number <= end]
        scrubber = self._scrubber(feed, erasures)
        found = self._scrub(scrubber, some)
        if not self._rewrite_pages(feed, scrubber, some, found):
            return True  # a page was trimmed or changed in the meantime: read again
        entries, pages_with = _counts(erasures, found)
        for erasure in erasures:
            reached = max(erasure.page, last)
            name = erasure.target.name
            done = {
                "entries": erasure.entries + entries[name],
                "pages": erasure.pages + pages_with[name],
            }
            if reached >= erasure.through:
                settled_ms = self.runtime.clock() + self.settle_ms
                self._begin(feed, erasure, Phase.PARKED, settled_ms=settled_ms, **done)
            else:
                self._save(feed, erasure, page=reached, **done)
        return True

    def _scrub(self, scrubber: Scrubber, pages: Sequence[Page]) -> dict[int, Scrubbed]:
        """Return those of *pages* with entries of a target, by their numbers."""
        found: dict[int, Scrubbed] = {}
        for page in pages:
            self.rest()
            if scrubbed := scrubber.scrub(page):
                found[page.number] = scrubbed
        return found

    def _rewrite_pages(
        self, feed: str, scrubber: Scrubber, pages: Sequence[Page], found: Mapping[int, Scrubbed]
    ) -> bool:
        """Rewrite those of *pages* that are *found*, and the removed parents of *pages*.

        Return False if one of them has changed. Removed parents are rewritten first: a page that
        still has content is rewritten again after a crash, and so are its removed parents.
        """
        if not self._rewrite_removed(feed, scrubber, pages, found):
            return False
        some = [page for page in pages if page.number in found]
        for first in range(0, len(some), limits.ERASURE_TOGETHER):
            self.rest()
            group = some[first : first + limits.ERASURE_TOGETHER]
            if not self.log.together(partial(self._rewrite_group, feed, group, found)):
                return False
        return True

    def _rewrite_group(
        self, feed: str, pages: Sequence[Page], found: Mapping[int, Scrubbed]
    ) -> bool:
        rewrite = self.rewrites.rewrite_page
        return all(rewrite(feed, page, found[page.number].page.body) for page in pages)

    def _rewrite_removed(
        self, feed: str, scrubber: Scrubber, pages: Sequence[Page], found: Mapping[int, Scrubbed]
    ) -> bool:
        """Rewrite the removed parents of *pages*, of which *found* are about to be rewritten."""
        if not found and not (pages and any(each.parent for each in scrubber.targets)):
            return True
        first, last = pages[0].number, pages[-1].number
        stored = self.removed_parents.read(feed, first, last)
        if not self._move_removed(feed, scrubber, stored, found):
            return False
        for removed in self.removed_parents.read(feed, first, last):
            scrubbed = found.get(removed.page)
            rest = scrubber.scrub_removed(removed, scrubbed.slots if scrubbed else ())
            if rest and not self.rewrites.rewrite_removed_parents(feed, removed, rest.body):
                return False
        return True

    def _move_removed(
        self,
        feed: str,
        scrubber: Scrubber,
        stored: Sequence[RemovedParents],
        found: Mapping[int, Scrubbed],
    ) -> bool:
        """Add the parents that erased entries had removed to those that the erasure entry removes.

        A consumer that had not received such an entry still has the object because of one of these
        parents. The erasure entry must reach this consumer.
        """
        moved: dict[Position, set[str]] = {}
        targets = {target.name: target for target in scrubber.targets}
        for removed in stored:
            slots = found[removed.page].slots if removed.page in found else {}
            for slot, name in slots.items():
                if (removed.page, slot) != targets[name].own:
                    moved.setdefault(targets[name].own, set()).update(removed.by_slot.get(slot, ()))
        for (page, slot), parents in moved.items():
            for removed in self.removed_parents.read(feed, page, page) if parents else ():
                body = with_removed(removed, slot, parents).body
                if not self.rewrites.rewrite_removed_parents(feed, removed, body):
                    return False
        return True

    # Parked messages, and other texts.

    def _rewrite_parked(self, feed: str, erasures: Sequence[Erasure]) -> bool:
        """Rewrite the parked messages and other texts, when the log has settled."""
        now_ms = self.runtime.clock()
        if any(is_ahead(each.settled_ms, now_ms, self.settle_ms) for each in erasures):
            return False
        scrubber, counts = self._scrubber(feed, erasures), Counter[str]()
        consumers = self.consumers.consumers(feed)
        texts = self._erase_texts(feed, erasures, consumers, scrubber)
        if texts is None:
            return True  # a consumer or key has changed in the meantime: read again
        for consumer in consumers:
            for parked in self.consumers.parked(feed, consumer.name):
                place = parse_cursor(parked.id)
                assert isinstance(place, Place)
                at = place.page, place.slot
                line, names = scrubber.scrub_entry(parked.line, at)
                counts.update(names)
                if line != parked.line:
                    # The worker's error may quote the content.
                    changed = replace(parked, line=line, error="")
                    self.rewrites.rewrite_parked(feed, consumer.name, parked, changed)
        for erasure in erasures:
            name = erasure.target.name
            done = {"parked": erasure.parked + counts[name], "texts": erasure.texts + texts[name]}
            self._begin(feed, erasure, Phase.ARCHIVE, **done)
        return True

    def _erase_texts(
        self,
        feed: str,
        erasures: Sequence[Erasure],
        consumers: Sequence[Consumer],
        scrubber: Scrubber,
    ) -> Counter[str] | None:
        """Erase errors of workers, bounds and labels of ended keys, and durable streams.

        Return the number of these by `Target.name`, or None if one has changed since it was read.
        """
        counts = Counter[str]()
        for consumer in consumers:
            changed = self._without_error(feed, consumer, erasures, scrubber, counts)
            if changed is not consumer and not self.consumers.write(
                feed, consumer.name, consumer.version, Change(changed)
            ):
                return None
        for erasure in erasures if self.streams else ():
            if erasure.type == STREAM and self.log.together(partial(self._end, feed, erasure)):
                counts[erasure.target.name] += 1
        return counts if self._erase_keys(feed, erasures, counts) else None

    def _erase_keys(self, feed: str, erasures: Sequence[Erasure], counts: Counter[str]) -> bool:
        """Erase labels and bounds of ended keys; return False if a key has changed."""
        now_ms = self.runtime.clock()
        for key in self.keys.keys(feed):
            self.rest()
            if not 0 < key.ended_ms <= now_ms:
                continue
            names = [each.target.name for each in erasures if each.is_named(key.bound, key.label)]
            if names and not self.keys.save(feed, replace(key, label="", bound=NOTHING)):
                return False
            counts.update(names)
        return True

    def _without_error(
        self,
        feed: str,
        consumer: Consumer,
        erasures: Sequence[Erasure],
        scrubber: Scrubber,
        counts: Counter[str],
    ) -> Consumer:
        """Return *consumer* without the text of its failure if the text may quote an object.

        Count it for each erasure whose object it names, or whose object could not be written.
        """
        failure = consumer.failure
        if failure is None or not failure.error:
            return consumer
        place = parse_cursor(failure.id)
        line, names = None, set[str]()
        if isinstance(place, Place):
            pages = self.log.read(feed, place.page - 1, 1)
            line = pages[0].at(place.slot) if pages else None
            names.update(scrubber.scrub_entry(line, (place.page, place.slot))[1] if line else ())
        names.update(
            each.target.name for each in erasures if each.is_named(EVERYTHING, failure.error)
        )
        counts.update(names)
        if line is not None and not names:
            return consumer
        # Without its entry, the text may quote any object.
        return replace(consumer, failure=replace(failure, error=""))

    def _end(self, feed: str, erasure: Erasure) -> bool:
        """Remove the durable stream of *erasure*, unless it has later messages."""
        assert self.streams is not None
        stream = self.streams.stream(feed, erasure.object_id)
        if stream is None or (stream.tail.page, stream.tail.slot) >= erasure.target.until:
            return False
        self.streams.remove(feed, erasure.object_id)
        return True

    # The archive.

    def _rewrite_archive(self, feed: str, erasures: Sequence[Erasure]) -> bool:
        """Rewrite the next part, and the parts that end with the same page."""
        after = min(each.page for each in erasures)
        end = max(each.through for each in erasures)
        spans = self._next_parts(feed, after, end)
        if self.archive and not spans:
            remove_lost(self.archive, feed)
        scrubber, counts = self._scrubber(feed, erasures), Counter[str]()
        for span in spans:
            counts += self._rewrite_part(feed, span, scrubber)
        for erasure in erasures:
            parts = erasure.parts + counts[erasure.target.name]
            if spans:
                self._save(feed, erasure, page=max(erasure.page, spans[0].last), parts=parts)
            else:
                self._begin(feed, erasure, Phase.SPACE, parts=parts)
        return True

    def _next_parts(self, feed: str, after: int, end: int) -> list[Span]:
        """Return the first parts that end after page *after* and have a page up to *end*.

        All of them end with the same page. Parts overlap while the archive is compacted.
        """
        found: list[Span] = []
        for span in all_spans(self.archive, feed, after) if self.archive else ():
            if found and span.last > found[0].last:
                break
            if span.first <= end:
                found.append(span)
        return found

    def _rewrite_part(self, feed: str, span: Span, scrubber: Scrubber) -> Counter[str]:
        """Rewrite the part *span* if needed; return its number of parts (1) by `Target.name`."""
        assert self.archive is not None
        body = self.archive.get(feed, span)
        counts = Counter[str]()
        if body is None:
            return counts  # compaction has replaced the part; the phase KEPT ends with a new pass
        pages = decode(body)
        found = self._scrub(scrubber, pages)
        counts.update({name for each in found.values() for name in each.entries})
        scrubbed = [found[page.number].page if page.number in found else page for page in pages]
        if any(one is not other for one, other in zip(scrubbed, pages, strict=True)):
            self.archive.put(feed, *encode(scrubbed, span.generation))
        return counts

    # The end.

    def _overwrite(self, feed: str, erasures: Sequence[Erasure]) -> bool:
        """Overwrite the free space of the database file; then only the erasure entry is left."""
        if self.overwrite is not None and not self.overwrite():
            return False
        for erasure in erasures:
            if erasure.final:
                if self.ledger is not None:
                    self.ledger.remove(feed, erasure.id)
                self._begin(feed, erasure, Phase.DONE, object_id="")
            else:
                self._begin(feed, erasure, Phase.KEPT, done_ms=self.runtime.clock())
                if not erasure.has_found:
                    self.on_nothing(feed, erasure)
        return True

    def _end_keeping(self, feed: str, erasures: Sequence[Erasure]) -> bool:
        """Remove the tombstone and begin to erase the entry of each erasure that is old enough.

        If the log still has the entry, postpone this once.
        """
        now_ms = self.expiring()
        due = [each for each in erasures if now_ms >= each.until_ms]
        floor = self.log.floor(feed) if due else 0
        for erasure in due:
            if not erasure.page and erasure.place.page >= floor:
                # Consumers that were cut off by an outage of this feed may still resume.
                until_ms = now_ms + limits.ERASURE_GRACE_MS
                self._save(feed, erasure, page=erasure.place.page, until_ms=until_ms)
                continue
            target = erasure.target
            for row in self.states.find(feed, [target.key]):
                if (row.page, row.slot) == target.own:
                    gone = Difference(Kind.ALIEN, row.bucket, row.key, row, None)
                    self.states.repair(feed, [gone])
            self._begin(feed, erasure, Phase.WAITING, final=True)
        return bool(due)


def _counts(
    erasures: Sequence[Erasure], found: Mapping[int, Scrubbed]
) -> tuple[Counter[str], Counter[str]]:
    """Return the entries and the pages of *found* by `Target.name`, without counted ones."""
    counted = {each.target.name: each.page for each in erasures}
    entries, pages = Counter[str](), Counter[str]()
    for number, scrubbed in found.items():
        for name, count in scrubbed.entries.items():
            if number > counted[name]:
                entries[name] += count
                pages[name] += 1
    return entries, pages

"""The steps of an erasure that rewrite the log, texts and the archive; see `eraser`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from tidings.core import limits
from tidings.core.archive.generations import remove_lost
from tidings.core.archive.reader import all_spans
from tidings.core.archive.segments import decode, encode
from tidings.core.consumers.consumer import Change
from tidings.core.durable_streams.messages import TYPE as STREAM
from tidings.core.effects import is_ahead
from tidings.core.erasure.entries import with_removed
from tidings.core.erasure.records import Phase
from tidings.core.model.cursors import Place, parse_cursor
from tidings.core.model.filters import EVERYTHING, NOTHING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidings.core.archive.segments import ArchiveStore, Span
    from tidings.core.auth.keys import KeyStore
    from tidings.core.consumers.consumer import Consumer, ConsumerStore
    from tidings.core.durable_streams.stream import StreamStore
    from tidings.core.effects import Runtime
    from tidings.core.erasure.entries import Position, Scrubbed, Scrubber
    from tidings.core.erasure.eraser import ErasureProgress
    from tidings.core.erasure.records import Erasure, RewriteStore
    from tidings.core.log.stores import LogStore
    from tidings.core.model.pages import Page
    from tidings.core.state.removed_parents import RemovedParents, RemovedParentsStore


@dataclass(frozen=True, slots=True)
class LogRewriter:
    """The step LOG. *settle_ms* is as in `TextRewriter`."""

    progress: ErasureProgress
    log: LogStore
    rewrites: RewriteStore
    removed_parents: RemovedParentsStore
    runtime: Runtime
    settle_ms: int = 0

    def run(self, feed: str, erasures: Sequence[Erasure]) -> bool:
        """Rewrite some pages, and move all erasures that need these pages."""
        after = min(each.page for each in erasures)
        end = max(each.through for each in erasures)
        pages = self.log.read(feed, after, limits.ERASURE_PAGES)
        last = pages[-1].number if pages else end
        some = [page for page in pages if page.number <= end]
        scrubber = self.progress.scrubber(feed, erasures)
        found = self.progress.scrub(scrubber, some)
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
                self.progress.begin(feed, erasure, Phase.PARKED, settled_ms=settled_ms, **done)
            else:
                self.progress.save(feed, erasure, page=reached, **done)
        return True

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
            self.progress.rest()
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


@dataclass(frozen=True, slots=True)
class ArchiveRewriter:
    """The step ARCHIVE."""

    progress: ErasureProgress
    archive: ArchiveStore | None

    def run(self, feed: str, erasures: Sequence[Erasure]) -> bool:
        """Rewrite the next part, and the parts that end with the same page."""
        after = min(each.page for each in erasures)
        end = max(each.through for each in erasures)
        spans = self._next_parts(feed, after, end)
        if self.archive and not spans:
            remove_lost(self.archive, feed)
        scrubber, counts = self.progress.scrubber(feed, erasures), Counter[str]()
        for span in spans:
            counts += self._rewrite_part(feed, span, scrubber)
        for erasure in erasures:
            parts = erasure.parts + counts[erasure.target.name]
            if spans:
                self.progress.save(
                    feed, erasure, page=max(erasure.page, spans[0].last), parts=parts
                )
            else:
                self.progress.begin(feed, erasure, Phase.SPACE, parts=parts)
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
        found = self.progress.scrub(scrubber, pages)
        counts.update({name for each in found.values() for name in each.entries})
        scrubbed = [found[page.number].page if page.number in found else page for page in pages]
        if any(one is not other for one, other in zip(scrubbed, pages, strict=True)):
            self.archive.put(feed, *encode(scrubbed, span.generation))
        return counts


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


class TextEraser(Protocol):
    """A place with texts that may quote an erased object."""

    def erase(self, feed: str, erasures: Sequence[Erasure]) -> Counter[str] | None:
        """Erase the texts of *erasures*, and return their number by `Target.name`.

        Return None if a text has changed since it was read.
        """


@dataclass(frozen=True, slots=True)
class TextRewriter:
    """The step PARKED: parked messages, errors of workers, and the texts of *others*.

    *settle_ms* is the longest time for which a process that lost its lease may still write pages
    that it has read. The step waits for this time after the log was rewritten, before it rewrites
    what such a process may write.
    """

    progress: ErasureProgress
    consumers: ConsumerTexts
    others: Sequence[TextEraser]
    runtime: Runtime
    settle_ms: int = 0

    def run(self, feed: str, erasures: Sequence[Erasure]) -> bool:
        """Rewrite the parked messages and other texts, when the log has settled."""
        now_ms = self.runtime.clock()
        if any(is_ahead(each.settled_ms, now_ms, self.settle_ms) for each in erasures):
            return False
        scrubber = self.progress.scrubber(feed, erasures)
        consumers = self.consumers.store.consumers(feed)
        texts = self.consumers.erase_errors(feed, consumers, erasures, scrubber)
        for other in self.others if texts is not None else ():
            found = other.erase(feed, erasures)
            texts = None if texts is None or found is None else texts + found
        if texts is None:
            return True  # a text has changed in the meantime: read again
        parked = self.consumers.rewrite_parked(feed, consumers, scrubber)
        for erasure in erasures:
            name = erasure.target.name
            done = {"parked": erasure.parked + parked[name], "texts": erasure.texts + texts[name]}
            self.progress.begin(feed, erasure, Phase.ARCHIVE, **done)
        return True


@dataclass(frozen=True, slots=True)
class ConsumerTexts:
    """The parked messages of consumers, and the errors of their workers."""

    store: ConsumerStore
    rewrites: RewriteStore
    log: LogStore

    def erase_errors(
        self,
        feed: str,
        consumers: Sequence[Consumer],
        erasures: Sequence[Erasure],
        scrubber: Scrubber,
    ) -> Counter[str] | None:
        """Erase errors of workers; return as `TextEraser.erase` does."""
        counts = Counter[str]()
        for consumer in consumers:
            changed = self._without_error(feed, consumer, erasures, scrubber, counts)
            if changed is not consumer and not self.store.write(
                feed, consumer.name, consumer.version, Change(changed)
            ):
                return None
        return counts

    def rewrite_parked(
        self, feed: str, consumers: Sequence[Consumer], scrubber: Scrubber
    ) -> Counter[str]:
        """Rewrite the parked messages of *consumers*; return their number by `Target.name`."""
        counts = Counter[str]()
        for consumer in consumers:
            for parked in self.store.parked(feed, consumer.name):
                place = parse_cursor(parked.id)
                assert isinstance(place, Place)
                at = place.page, place.slot
                line, names = scrubber.scrub_entry(parked.line, at)
                counts.update(names)
                if line != parked.line:
                    # The worker's error may quote the content.
                    changed = replace(parked, line=line, error="")
                    self.rewrites.rewrite_parked(feed, consumer.name, parked, changed)
        return counts

    def _without_error(
        self,
        feed: str,
        consumer: Consumer,
        erasures: Sequence[Erasure],
        scrubber: Scrubber,
        counts: Counter[str],
    ) -> Consumer:
        """Return *consumer* without the text of its failure if the text may quote an object.

        Count it for each erasure of an object that the text names or the worker could not write.
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


@dataclass(frozen=True, slots=True)
class KeyTexts:
    """The labels and bounds of ended keys."""

    progress: ErasureProgress
    keys: KeyStore
    runtime: Runtime

    def erase(self, feed: str, erasures: Sequence[Erasure]) -> Counter[str] | None:
        """See `TextEraser`."""
        counts = Counter[str]()
        now_ms = self.runtime.clock()
        for key in self.keys.keys(feed):
            self.progress.rest()
            if not 0 < key.ended_ms <= now_ms:
                continue
            names = [each.target.name for each in erasures if each.is_named(key.bound, key.label)]
            if names and not self.keys.save(feed, replace(key, label="", bound=NOTHING)):
                return None
            counts.update(names)
        return counts


@dataclass(frozen=True, slots=True)
class StreamTexts:
    """The durable streams. The name of one may quote an object."""

    streams: StreamStore
    log: LogStore

    def erase(self, feed: str, erasures: Sequence[Erasure]) -> Counter[str]:
        """See `TextEraser`."""
        counts = Counter[str]()
        for erasure in erasures:
            if erasure.type == STREAM and self.log.together(partial(self._end, feed, erasure)):
                counts[erasure.target.name] += 1
        return counts

    def _end(self, feed: str, erasure: Erasure) -> bool:
        """Remove the durable stream of *erasure*, unless it has later messages."""
        stream = self.streams.stream(feed, erasure.object_id)
        if stream is None or (stream.tail.page, stream.tail.slot) >= erasure.target.until:
            return False
        self.streams.remove(feed, erasure.object_id)
        return True

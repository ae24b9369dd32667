"""
Restoring: a feed whose tables were put back to an earlier moment goes on, and nobody skips.

Each table is as of a moment of its own. The log counts: it is kept as far as it has no hole, and
whoever is beyond that is taken back to it. Numbers that were sent after it are never given again:
an empty page stands for all of them (`Page.skipped`), the counter continues above, and the profile
remembers which they were (`settings.profiles`). That record is written first and the empty page
last, so that a run which was killed is found half done and ended by the next one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from tidings.core import limits
from tidings.core.archive import segments
from tidings.core.archive.reader import all_spans
from tidings.core.consumers import consumer as consumers
from tidings.core.consumers import position as positions
from tidings.core.consumers.consumer import Note
from tidings.core.errors import Unavailable
from tidings.core.followers.leases import Observation
from tidings.core.model.cursors import PAGE_END, Place
from tidings.core.model.pages import jump
from tidings.core.settings.profiles import possible, remember_lost

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidings.core.archive.segments import ArchiveStore
    from tidings.core.consumers.consumer import Consumer, ConsumerStore
    from tidings.core.consumers.position import Position
    from tidings.core.effects import NewId, Sleep
    from tidings.core.followers.leases import FollowerStore, Lease
    from tidings.core.log.reader import Reader
    from tidings.core.model.pages import Page
    from tidings.core.settings.profiles import Lost, ProfileStore


RESTORE = "restore"  # in notes of named consumers: what was done, and by whom
_PUT_BACK = (
    "the log was put back to this place; if its store must not keep what was lost, mark it `copy`"
)


class Numbers(Protocol):
    """The page numbers of a feed that nobody writes to meanwhile."""

    def raise_head(self, feed: str, page: int) -> None:
        """The next number is above *page*; nothing happens where it is already."""

    def fill(self, feed: str, pages: Sequence[Page]) -> None:
        """Put *pages*, some few whose numbers are free, in any order."""


@dataclass(frozen=True, slots=True)
class Plan:
    """
    The log is kept up to *kept*. What was sent behind it, up to page *last*, is lost but for
    *strays*: pages behind the first hole, which stay where they are.
    """

    kept: Place
    last: int
    strays: frozenset[int]

    @property
    def lost(self) -> Lost:
        return self.kept.page + 1, self.last

    @property
    def end(self) -> int:
        """The last empty page. It was never sent, so that places behind it are of the new log."""
        return self.last + 1

    @property
    def jumps(self) -> Iterator[tuple[int, int]]:
        """Yield the first and last number of each stretch that an empty page stands for."""
        first = self.kept.page + 1
        for stray in (*sorted(self.strays), self.end + 1):
            if first < stray:
                yield first, stray - 1
            first = stray + 1


@dataclass(frozen=True, slots=True)
class Restored:
    """Followers and consumers that were taken back, and parts of the archive that were cut."""

    followers: tuple[str, ...]
    consumers: tuple[str, ...]
    parts: int


@dataclass(frozen=True, slots=True)
class Restorer:
    """*archive* is None where there is none. *page_ms* is how long DynamoDB keeps a page."""

    reader: Reader
    numbers: Numbers
    followers: FollowerStore
    consumers: ConsumerStore
    profiles: ProfileStore
    archive: ArchiveStore | None
    sleep: Sleep
    new_id: NewId
    page_ms: int

    def plan(self, feed: str, last_sent: int | None, *, copied_ms: int = 0, hint: int = 0) -> Plan:
        """
        Decide what is to be done if no reader was sent a page above *last_sent*.

        None: that is not known. Then as many numbers count as sent as could have been given since
        the last page that is here, or since *copied_ms*, when everything before was here. *hint* is
        a page without a hole before it.
        """
        frontier = self.reader.frontier(feed, hint)
        begun = self._begun(feed, frontier.page)
        kept = self._behind_which(feed, begun) if begun else frontier
        strays = frozenset(self._behind(feed, kept.page))
        known = max([kept.page, *strays, *self._known(feed)])
        if begun and known <= begun[1] + 1:
            return Plan(kept, max(begun[1], last_sent or 0), strays)
        if last_sent is None:
            since_ms = max(kept.seconds * 1000, copied_ms)
            last_sent = known + possible(known, self.reader.clock() - since_ms if since_ms else 0)
        return Plan(kept, max(known, last_sent), strays)

    def restore(self, feed: str, plan: Plan) -> Restored:
        """
        Do it. Killed at any moment, the next plan goes on with it.

        Raises:
            Unavailable: a store does not answer, or somebody holds a follower.
        """
        remember_lost(self.profiles, feed, plan.lost)
        self.numbers.raise_head(feed, plan.end)
        taken = tuple(self._take_back(feed, plan.kept.page))
        moved = tuple(self._move_consumers(feed, plan.kept))
        parts = cut(self.archive, feed, plan.kept.page) if self.archive else 0
        now = self.reader.clock()
        ends = {"at_ms": now, "expires_ms": now + self.page_ms}
        self.numbers.fill(feed, [jump(first, last, **ends) for first, last in plan.jumps])
        return Restored(taken, moved, parts)

    def _begun(self, feed: str, frontier: int) -> Lost | None:
        """What a restore that was not ended said was lost."""
        unfinished = [each for each in self._lost(feed) if each[0] - 1 <= frontier <= each[1]]
        return unfinished[-1] if unfinished else None

    def _behind_which(self, feed: str, lost: Lost) -> Place:
        page = self.reader.at(feed, lost[0] - 1)
        return page.end if page else Place(lost[0] - 1, PAGE_END, 0)

    def _lost(self, feed: str) -> tuple[Lost, ...]:
        return self.profiles.profile(feed).lost

    def _behind(self, feed: str, after: int) -> Iterator[int]:
        """The numbers of pages behind a hole; not those of empty ones, which hold nothing."""
        while pages := self.reader.log.read(feed, after):
            yield from (page.number for page in pages if page.body)
            after = pages[-1].number

    def _known(self, feed: str) -> Iterator[int]:
        """Numbers that were certainly given."""
        yield self.reader.log.head(feed)
        yield from self.reader.checkpoints.checkpoints(feed).values()
        yield from (positions.rank(each.position)[0] for each in self.consumers.consumers(feed))
        yield from (last for _, last in self._lost(feed))
        if self.archive:
            head = self.reader.log.head(feed)
            yield from (span.last for span in all_spans(self.archive, feed, head))

    def _take_back(self, feed: str, kept: int) -> Iterator[str]:
        """No follower stands behind the log that is kept."""
        for name, page in self.reader.checkpoints.checkpoints(feed).items():
            if page <= kept:
                continue
            lease = self._take(feed, name)
            back = replace(lease, checkpoint=kept, note=b"")  # which is of a later moment
            self.followers.release(back, force=True)
            yield name

    def _take(self, feed: str, name: str) -> Lease:
        """Who held it when the table was stored is long dead; whoever is at work renews it."""
        owner = self.new_id()
        lease = self.followers.take(feed, name, owner=owner, now_ms=self.reader.clock())
        if lease.owner != owner:
            self.sleep(limits.LEASE_MS)
            seen = Observation(lease.fence, lease.beat)
            lease = self.followers.take(
                feed, name, owner=owner, now_ms=self.reader.clock(), over=seen
            )
        if lease.owner != owner:
            raise Unavailable(f"the follower {name} of {feed} is at work; try again")
        return lease

    def _move_consumers(self, feed: str, kept: Place) -> Iterator[str]:
        """
        No named consumer does, either.

        Each is noted to have been put back, with its worker's lease: what it wrote stays written.
        """
        note = Note(self.reader.clock(), RESTORE, RESTORE, _PUT_BACK, kept.encode())
        for consumer in self.consumers.consumers(feed):
            left = taken_back(consumer, kept)
            change = consumers.Change(consumers.unheld(left) if left == consumer else left, note)
            if not self.consumers.write(feed, consumer.name, consumer.version, change):
                raise Unavailable(f"the consumer {consumer.name} of {feed} is at work; try again")
            if left != consumer:
                yield consumer.name


def taken_back(consumer: Consumer, kept: Place) -> Consumer:
    """
    *consumer* as if it had received nothing behind *kept*; itself where it has not.

    A copy that it is in the middle of begins anew.
    """
    if consumer.copying and consumer.position != positions.COPY:
        return _placed(consumer, positions.COPY)
    beyond = [span for span in consumer.acked if span.page > kept.page]
    if positions.rank(consumer.position)[0] > kept.page:
        return _placed(consumer, kept if kept.page else None)
    marks = (consumer.sent, consumer.single)
    if not beyond and all(positions.rank(mark)[0] <= kept.page for mark in marks):
        return consumer
    return _placed(consumer, consumer.position)


def _placed(consumer: Consumer, position: Position | None) -> Consumer:
    """At *position*; what it had begun or acknowledged beyond is sent again."""
    fresh = replace(consumer, position=position, acked=(), sent=None, single=None, failure=None)
    return consumers.unheld(fresh)


def cut(store: ArchiveStore, feed: str, kept: int) -> int:
    """
    Leave nothing in the archive behind page *kept*; how many parts were cut or removed.

    Raises:
        BrokenPart: a part that has to be cut cannot be read; it is still there.
    """
    count = 0
    while spans := store.list(feed, kept, limits.ARCHIVE_LISTED):
        for span in spans:
            body = store.get(feed, span) if span.first <= kept else None
            if body is not None:
                pages = [page for page in segments.decode(body) if page.number <= kept]
                store.put(feed, *segments.encode(pages))
            store.remove(feed, span)
            count += 1
    return count

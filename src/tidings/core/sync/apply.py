"""Append corrections as pages, except for objects that have changed since the plan was made.

The append is a compare-and-set on the log itself. First take a page number n. This opens a hole in
the log, and no process reads a page after a hole. Then read the log up to n - 1, drop the
corrections of objects that changed, and write the other corrections as page n. No other process can
append between the last read and the write. A process that is too slow finds a filler at n and
starts again.

Up to the checkpoint of the follower `state`, the rows of the objects are read instead of the log.
Therefore the cost of a correction does not grow with the number of pages since the plan was made.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.errors import PlanTooOld, Unavailable
from tidings.core.model.feeds import STATE, public_name
from tidings.core.model.pages import Page, encode, filler
from tidings.core.replication.copies import ALL_LOCAL
from tidings.core.state.tombstones import known_since
from tidings.core.sync import corrections
from tidings.core.sync.corrections import Conflicts, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tidings.core.effects import Runtime
    from tidings.core.log.reader import Filler, Reader
    from tidings.core.model.feeds import FeedNames
    from tidings.core.replication.copies import WriteGuard
    from tidings.core.state.rows import Row, StateStore
    from tidings.core.state.tombstones import TombstoneStore
    from tidings.core.sync.corrections import Correction


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of applying the corrections of a part.

    *applied* is the number of appended corrections. *moved* is the number of corrections that were
    dropped because their objects changed since the plan was made. *done* is the number of
    corrections that the log already had, for example after an earlier run. *behind* is the number
    of lines that were handled. If *complete* is False, continue after these lines.
    """

    applied: int
    moved: int
    done: int
    behind: int
    complete: bool


@dataclass(frozen=True, slots=True)
class RowLookup:
    """The *rows*, including tombstones, of the first *count* requested keys.

    The rows include the operations of at least all pages up to page *state*.
    """

    state: int
    rows: list[Row]
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrector:
    states: StateStore
    filler: Filler
    runtime: Runtime
    feed_names: FeedNames
    tombstones: TombstoneStore
    writable: WriteGuard = ALL_LOCAL

    @property
    def reader(self) -> Reader:
        return self.filler.reader

    def look(self, feed: str, keys: Sequence[str]) -> RowLookup:
        """Return the rows of the objects *keys*, as many as fit in a reply of `limits.BATCH_BYTES`.

        Raises:
            UnknownFeed, InvalidFeed: see `FeedNames.check`.
        """
        self.feed_names.check(feed)
        state = self.reader.checkpoints.checkpoints(feed).get(STATE, 0)  # read before the rows
        rows: list[Row] = []
        count = size = 0
        while count < len(keys) and size < limits.BATCH_BYTES:
            some = self.states.find(feed, keys[count : count + limits.LOOKUP_KEYS])
            rows += some
            size += sum(len(row.key) + len(row.line) for row in some)
            count += limits.LOOKUP_KEYS
        return RowLookup(state, rows, min(count, len(keys)))

    def apply(
        self,
        feed: str,
        through: int,
        part: Iterable[bytes],
        handled: int = 0,
        *,
        run_ms: int = limits.CORRECT_RUN_MS,
    ) -> Outcome:
        """Apply the lines of *part*, except the first *handled* lines, for at most *run_ms*.

        The plan was made from rows of the state. *through* is the checkpoint of the follower
        `state`, which was read before these rows. A run that crashed may be repeated. The
        corrections that the crashed run applied then count as done.

        Raises:
            UnknownFeed, InvalidFeed: see `FeedNames.check`.
            Chained: the feed is a copy.
            InvalidOperation, TooLarge: a line is not a correction. Earlier lines may be applied.
            PlanTooOld: a new plan is needed.
            Unavailable: the last batch may have been applied. Call again; applied corrections count
                as done.
        """
        self.feed_names.check(feed)
        self.writable.check(feed)
        # An object that was deleted since the plan was made must still have its tombstone, or it
        # would look as if it had never existed. The second half of the lifetime of tombstones is a
        # margin for clock skew and outages.
        run, now = self.reader.read(feed, through, 1), self.reader.clock()
        age_ms = now - run.pages[0].at_ms if run.pages else 0
        remembered_ms = now - known_since(self.tombstones, feed, now)
        if run.trimmed or age_ms > remembered_ms // 2:
            raise PlanTooOld(feed=public_name(feed), through=through)
        until, counts = self.runtime.steady() + run_ms, Counter[Verdict]()
        read = corrections.read(part, handled=handled)
        for section in _groups(read, limits.CORRECT_SECTION, limits.CORRECT_SECTION_BYTES):
            where = self._look(feed, section)
            for batch in _batches(section):
                if self.runtime.steady() >= until:
                    return _outcome(counts, handled, complete=False)
                where, verdicts = self._apply(feed, batch, where)
                self.reader.count("CorrectionsApplied", verdicts[Verdict.UNCHANGED])
                self.reader.count("CorrectionsMoved", verdicts[Verdict.MOVED])
                counts += verdicts
                handled += len(batch)
        return _outcome(counts, handled, complete=True)

    def _look(self, feed: str, section: Sequence[Correction]) -> Conflicts:
        """Return the positions of the objects of *section*, as of the first hole of the log.

        Read the checkpoint before the rows, so that the rows include at least all pages up to the
        checkpoint.
        """
        where = Conflicts(section, self.reader.checkpoints.checkpoints(feed).get(STATE, 0))
        for batch in _batches(section):
            where.see_rows(self.states.find(feed, [each.key for each in batch]))
        more = True
        while more:
            run = self.reader.read(feed, where.page)
            where.see_pages(run.pages)
            more = run.more
        return where

    def _apply(
        self, feed: str, batch: Sequence[Correction], where: Conflicts
    ) -> tuple[Conflicts, Counter[Verdict]]:
        """Append the corrections of *batch* that still apply.

        Return the conflicts that are known now, and the number of each verdict.
        """
        append_id = self.runtime.new_id()
        for attempt in range(limits.APPEND_ATTEMPTS_MAX):
            verdicts = where.verdicts(batch)
            if not verdicts[Verdict.UNCHANGED]:  # nothing is left to append, so take no page number
                return where, verdicts
            # Count the corrections only at the first attempt.
            counted = 0 if attempt else verdicts[Verdict.UNCHANGED]
            write = partial(self._write, feed, batch, where, append_id, counted)
            where, is_written = self.reader.log.together(write)
            if is_written:
                return where, where.verdicts(batch)
        raise Unavailable(f"{feed}: the page was overtaken {limits.APPEND_ATTEMPTS_MAX} times")

    def _write(
        self, feed: str, batch: Sequence[Correction], seen: Conflicts, append_id: str, counted: int
    ) -> tuple[Conflicts, bool]:
        """Try to write a page of *batch*; return the conflicts, and True if it is in the log."""
        where, number = seen.copy(), self.reader.log.take(feed, counted)
        if not self._read_to(feed, number - 1, where, limits.CORRECT_POLLS_MAX):
            # No process must wait for this page. Then wait for the slow writer of an earlier page.
            now = self.reader.clock()
            yielded = filler(number, at_ms=now, expires_ms=now + self.filler.page_ms)
            self.reader.log.put(feed, yielded)
            self._read_to(feed, number, where, limits.CORRECT_YIELD_POLLS_MAX)
            return where, False
        page = self._page(number, batch, where, append_id)
        is_written = self.reader.log.put(feed, page) == page.append_id
        if is_written:
            where.page = number
        return where, is_written

    def _page(
        self, number: int, batch: Sequence[Correction], where: Conflicts, append_id: str
    ) -> Page:
        """Return a page of the corrections that still apply, or a filler if none of them does.

        All pages below *number* must have been read.
        """
        now = self.reader.clock()
        lines = [each.line for each in batch if where.verdict(each) is Verdict.UNCHANGED]
        if not lines:
            return filler(number, at_ms=now, expires_ms=now + self.filler.page_ms)
        return Page(number, encode(lines), append_id, now, now + self.filler.page_ms)

    def _read_to(self, feed: str, last: int, where: Conflicts, polls_max: int) -> bool:
        """Read up to page *last*, waiting for writers; return False if one is too slow."""
        polls = 0
        while where.page < last:
            limit = min(last - where.page, limits.READ_ITEMS_MAX)
            run = self.reader.read(feed, where.page, limit)
            where.see_pages(run.pages)
            if run.pages:
                continue
            if polls == polls_max:
                return False
            polls += 1
            if not self.filler.close_hole(feed, where.page):
                self.runtime.await_writer(limits.CORRECT_POLL_MS)
        return True


def _outcome(counts: Counter[Verdict], handled: int, *, complete: bool) -> Outcome:
    return Outcome(
        applied=counts[Verdict.UNCHANGED],
        moved=counts[Verdict.MOVED],
        done=counts[Verdict.DONE],
        behind=handled,
        complete=complete,
    )


def _batches(section: Iterable[Correction]) -> Iterator[list[Correction]]:
    """Yield the corrections of *section* in batches that fit one page."""
    return _groups(section, limits.REQUEST_OPERATIONS_MAX, limits.CORRECT_BATCH_BYTES)


def _groups(
    wanted: Iterable[Correction], count_max: int, bytes_max: int
) -> Iterator[list[Correction]]:
    """Yield the corrections in order, in groups of limited size with each object at most once."""
    group: dict[str, Correction] = {}
    size = 0
    for each in wanted:
        more = len(each.line.encode()) + 1
        if group and (len(group) == count_max or size + more > bytes_max or each.key in group):
            yield list(group.values())
            group, size = {}, 0
        group[each.key] = each
        size += more
    if group:
        yield list(group.values())

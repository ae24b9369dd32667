"""
Correcting: corrections become pages, but only where their objects have not moved meanwhile.

The log itself is compared and set. Taking a number opens a hole there, and nobody reads or
counts as written what lies behind a hole. So: take number n, read the log up to n - 1, drop what
moved, put the rest under n. Between the last look and the append there is no number that
anybody else could get. Whoever is too slow finds a filler under n and begins again.

Up to the checkpoint of the follower `state` its rows stand for the log: what a correction costs
does not grow with what was appended since the plan was made.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.errors import PlanTooOld, Unavailable
from tidings.core.followers.names import STATE
from tidings.core.model.feeds import check_known
from tidings.core.model.pages import Page, encode, filler
from tidings.core.replication.copies import ALL_LOCAL
from tidings.core.state.tombstones import known_since
from tidings.core.sync import corrections
from tidings.core.sync.conflicts import Conflicts, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tidings.core.effects import NewId, Sleep
    from tidings.core.log.reader import Filler, Reader
    from tidings.core.replication.copies import WriteGuard
    from tidings.core.state.rows import Row, StateStore
    from tidings.core.state.tombstones import TombstoneStore
    from tidings.core.sync.corrections import Correction


@dataclass(frozen=True, slots=True)
class Outcome:
    """
    What became of the corrections of a part up to the line *behind*.

    *moved*: their objects changed since the plan was made, and newer is better. *done*: the
    log said the same already, as after an earlier run. Not *complete*: go on behind *behind*.
    """

    applied: int
    moved: int
    done: int
    behind: int
    complete: bool


@dataclass(frozen=True, slots=True)
class Looked:
    """
    The *rows* of the first *count* of the keys that were asked for, deleted objects too.

    The rows hold at least everything up to page *state*.
    """

    state: int
    rows: list[Row]
    count: int


@dataclass(frozen=True, slots=True)
class Corrector:
    states: StateStore
    filler: Filler
    sleep: Sleep
    new_id: NewId
    feeds: frozenset[str]
    tombstones: TombstoneStore
    writable: WriteGuard = ALL_LOCAL

    @property
    def reader(self) -> Reader:
        return self.filler.reader

    def look(self, feed: str, keys: Sequence[str]) -> Looked:
        """
        Where the objects *keys* stand: of as many as fit a reply of `limits.PORTION_BYTES`.

        Raises:
            UnknownFeed, InvalidFeed: no such feed here.
        """
        check_known(feed, self.feeds)
        state = self.reader.checkpoints.checkpoints(feed).get(STATE, 0)  # before the rows
        rows: list[Row] = []
        count = size = 0
        while count < len(keys) and size < limits.PORTION_BYTES:
            some = self.states.find(feed, keys[count : count + limits.LOOKUP_KEYS])
            rows += some
            size += sum(len(row.key) + len(row.line) for row in some)
            count += limits.LOOKUP_KEYS
        return Looked(state, rows, min(count, len(keys)))

    def apply(
        self,
        feed: str,
        through: int,
        part: Iterable[bytes],
        behind: int = 0,
        *,
        run_ms: int = limits.CORRECT_RUN_MS,
    ) -> Outcome:
        """
        Apply the lines of *part* behind the first *behind*, until *run_ms* are over.

        *through* is the checkpoint of the follower `state` from before the plan's rows were read.
        A run that died may be repeated: what it applied is found as done.

        Raises:
            UnknownFeed, InvalidFeed: no such feed here.
            Chained: it is a copy.
            InvalidOperation, TooLarge: a line is no correction; those before may be applied.
            PlanTooOld: make a new one.
            Unavailable: nobody knows whether the last batch was applied; a retry finds out.
        """
        check_known(feed, self.feeds)
        self.writable.check(feed)
        self._check_age(feed, through)
        until, tally = self.reader.clock() + run_ms, Counter[Verdict]()
        read = corrections.read(part, behind=behind)
        for section in _groups(read, limits.CORRECT_SECTION, limits.CORRECT_SECTION_BYTES):
            where = self._look(feed, section)
            for batch in _batches(section):
                if self.reader.clock() >= until:
                    return _outcome(tally, behind, complete=False)
                tally += self._counted(self._apply(feed, batch, where))
                behind += len(batch)
        return _outcome(tally, behind, complete=True)

    def _check_age(self, feed: str, through: int) -> None:
        """
        An object deleted since the plan was made must still have its tombstone, or it would
        pass for one that never was. Half of their time, so that no clock and no outage matters.
        """
        run, now = self.reader.read(feed, through, 1), self.reader.clock()
        age_ms = now - run.pages[0].at_ms if run.pages else 0
        remembered_ms = now - known_since(self.tombstones, feed, now)
        if run.trimmed or age_ms > remembered_ms // 2:
            raise PlanTooOld(feed=feed, through=through)

    def _look(self, feed: str, section: Sequence[Correction]) -> Conflicts:
        """
        Where the objects of *section* stand, as far as the log has no hole.

        The checkpoint is read before the rows: they show at least what was handled up to it.
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

    def _apply(self, feed: str, batch: Sequence[Correction], where: Conflicts) -> Counter[Verdict]:
        """What was found of each object; the corrections of those that stood are appended."""
        append_id = self.new_id()
        for attempt in range(limits.APPEND_ATTEMPTS_MAX):
            verdicts = where.verdicts(batch)
            if not verdicts[Verdict.STANDS]:  # what moved never stands again: no number is needed
                return verdicts
            with self.reader.log.together():
                # Counted once.
                number = self.reader.log.take(feed, 0 if attempt else verdicts[Verdict.STANDS])
                if not self._read_to(feed, number - 1, where, limits.CORRECT_POLLS_MAX):
                    self._yield(feed, number, where)
                    continue
                page = self._page(number, batch, where, append_id)
                if self.reader.log.put(feed, page) == page.append_id:
                    where.page = number
                    return where.verdicts(batch)
        raise Unavailable(f"{feed}: overtaken {limits.APPEND_ATTEMPTS_MAX} times in a row")

    def _page(
        self, number: int, batch: Sequence[Correction], where: Conflicts, append_id: str
    ) -> Page:
        """What still stands, now that all below *number* is known; a filler for nothing."""
        now = self.reader.clock()
        lines = [each.line for each in batch if where.verdict(each) is Verdict.STANDS]
        if not lines:
            return filler(number, at_ms=now, expires_ms=now + self.filler.page_ms)
        return Page(number, encode(lines), append_id, now, now + self.filler.page_ms)

    def _read_to(self, feed: str, last: int, where: Conflicts, polls_max: int) -> bool:
        """Read on up to page *last*, waiting for writers in flight; False when one is too slow."""
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
                self.sleep(limits.CORRECT_POLL_MS)
        return True

    def _yield(self, feed: str, number: int, where: Conflicts) -> None:
        """Hold nobody up: give *number* back, and wait for the slow writer without one."""
        now = self.reader.clock()
        self.reader.log.put(feed, filler(number, at_ms=now, expires_ms=now + self.filler.page_ms))
        self._read_to(feed, number, where, limits.CORRECT_YIELD_POLLS_MAX)

    def _counted(self, verdicts: Counter[Verdict]) -> Counter[Verdict]:
        self.reader.count("CorrectionsApplied", verdicts[Verdict.STANDS])
        self.reader.count("CorrectionsMoved", verdicts[Verdict.MOVED])
        return verdicts


def _outcome(tally: Counter[Verdict], behind: int, *, complete: bool) -> Outcome:
    return Outcome(
        applied=tally[Verdict.STANDS],
        moved=tally[Verdict.MOVED],
        done=tally[Verdict.DONE],
        behind=behind,
        complete=complete,
    )


def _batches(section: Iterable[Correction]) -> Iterator[list[Correction]]:
    """What fits one page."""
    return _groups(section, limits.REQUEST_OPERATIONS_MAX, limits.CORRECT_BATCH_BYTES)


def _groups(
    wanted: Iterable[Correction], count_max: int, bytes_max: int
) -> Iterator[list[Correction]]:
    """*wanted* in its order, cut before a group grows too large or meets an object again."""
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

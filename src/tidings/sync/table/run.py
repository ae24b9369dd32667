"""
A sync with a live table, in three steps that can each be resumed.

`rows` reads the table in chunks of its key, and corrects objects that the feed lacks or has in an
older version. `objects` reads the state and records the objects without a row. `deletes` deletes
those, after checking that their number is acceptable. A difference is a suspect until
`tidings.core.sync.live` reports that it lasts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from math import ceil
from typing import Protocol

from tidings.core import limits
from tidings.core.model.operations import lower_case, type_prefix
from tidings.core.state.rows import Row
from tidings.core.sync import corrections, dumps
from tidings.core.sync.dumps import Objection, Planned
from tidings.core.sync.live import Compare, Difference, Suspects, Verdict, difference
from tidings.sync import apply
from tidings.sync.feed import Feed
from tidings.sync.plan import NAMES
from tidings.sync.table.postgres import Chunk, Place
from tidings.sync.table.progress import Progress

ROWS, OBJECTS, DELETES = "rows", "objects", "deletes"
SUSPECTS_MAX = 100_000  # in memory, about 30 MB: 1,600 per second for a grace of 1 min
_EMPTY = Objection("empty_table", "the table holds no row: a sync with nothing is an accident")


class LiveTable(Protocol):
    """The interface of the source: `postgres.PostgresTable`, and an in-memory one for tests."""

    @property
    def type(self) -> str: ...

    @property
    def estimate(self) -> int: ...

    def chunk(self, after: Place | None, most: int) -> Chunk | None: ...

    def find(self, ids: Sequence[str]) -> dict[str, str]: ...


@dataclass(frozen=True, slots=True)
class Wishes:
    """
    The options of a sync. *chunk* is in rows, *rate* in rows per second (0: no limit).

    A change must be posted within *grace_ms* of its commit, or is never posted.
    """

    compare: Compare
    grace_ms: int
    chunk: int
    rate: int = 0
    deletes: bool = True
    delete_share_max: float = dumps.DELETE_SHARE_MAX
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Time:
    """The clock: *now_ms* since 1970 for timestamps, *passed_ms* is monotonic, *sleep_ms* waits."""

    now_ms: Callable[[], int]
    passed_ms: Callable[[], int]
    sleep_ms: Callable[[int], None]


class Stopped(Exception):
    """A guard objects."""

    def __init__(self, objection: Objection) -> None:
        self.objection = objection
        super().__init__(objection.sentence)


class BrokenRow(Exception):
    """A row of the state is incomplete."""


@dataclass(slots=True)
class _Window:
    """The chunks that were read, from the first one that still has suspects."""

    _chunks: deque[tuple[Place, int, set[str]]] = field(default_factory=deque)
    _of: dict[str, set[str]] = field(default_factory=dict)

    def add(self, place: Place, rows: int, suspects: set[str]) -> None:
        self._chunks.append((place, rows, suspects))
        self._of |= dict.fromkeys(suspects, suspects)

    def forget(self, key: str) -> None:
        self._of.pop(key).discard(key)

    def closed(self) -> Iterator[tuple[Place, int]]:
        """Yield the place and the number of rows of each chunk without suspects, once."""
        while self._chunks and not self._chunks[0][2]:
            place, rows, _ = self._chunks.popleft()
            yield place, rows


class TableSync:
    """
    One run of a sync. *advance* is called with the number of rows done in a step.

    *begin* is called with the name of each step and its total, None if that is unknown.
    """

    def __init__(
        self,
        feed: Feed,
        table: LiveTable,
        wishes: Wishes,
        progress: Progress,
        time: Time,
        begin: Callable[[str, int | None], None],
        advance: Callable[[int], None],
    ) -> None:
        self._feed, self._table, self._wishes, self._time = feed, table, wishes, time
        self._progress, self._standing = progress, progress.standing
        self._begin, self._advance = begin, advance
        self._prefix = type_prefix(lower_case(table.type))
        self._corrector = feed.corrector()
        self._suspects, self._window = Suspects(wishes.grace_ms), _Window()
        self._free_ms: float = time.passed_ms()

    def run(self) -> None:
        """
        Run until the feed agrees with the table, or with *dry_run* until the changes are known.

        Raises:
            Stopped: a guard objects; nothing was deleted.
            BadTable, BrokenRow, TidingsError: `progress` has the work done so far.
        """
        steps = {ROWS: self._compare_rows}
        if self._wishes.deletes:
            steps |= {OBJECTS: self._compare_objects, DELETES: self._delete}
        names = list(steps)
        for step in names[names.index(self._standing.step or ROWS) :]:
            if self._standing.step != step:
                self._standing.step, self._standing.place = step, None
                self._progress.save()
            steps[step]()
        self._progress.clear()

    def _compare_rows(self) -> None:
        self._begin("comparing rows", self._table.estimate or None)
        place = self._standing.place
        self._advance(self._standing.rows)
        while (chunk := self._table.chunk(place, self._wishes.chunk)) is not None:
            place = chunk.place
            lines = {f"{self._prefix}{id}": line for id, line in chunk.rows.items()}
            self._look(list(lines), lines, place)
        self._settle_all()
        if not self._standing.rows:
            raise Stopped(_EMPTY)

    def _compare_objects(self) -> None:
        self._begin("comparing objects", self._standing.rows)
        self._advance(self._standing.objects)
        bucket, after = self._standing.place or (0, self._prefix)
        rows = self._feed.rows()
        while bucket < limits.BUCKETS:
            portion = rows.read(self._feed.feed, bucket, after)
            ours = list(takewhile(lambda row: row.key.startswith(self._prefix), portion))
            for some in _cut(
                [row for row in ours if not _checked(row).deleted], self._wishes.chunk
            ):
                self._note_missing(bucket, [row.key for row in some])
            if portion and len(ours) == len(portion):
                after = portion[-1].key
            else:
                bucket, after = bucket + 1, self._prefix

    def _note_missing(self, bucket: int, keys: list[str]) -> None:
        """Record the objects without a row; the state was read before the table."""
        found = self._found(keys)
        missing = [key for key in keys if key not in found]
        standing = self._standing
        standing.objects += len(keys)
        standing.missing += len(missing)
        standing.place = [bucket, keys[-1]]
        self._progress.save(missing)
        self._advance(len(keys))
        self._pace(len(keys))

    def _delete(self) -> None:
        self._begin("deleting", self._standing.missing)
        planned = Planned(self._standing.missing, self._standing.objects)
        objection = dumps.check_plan(planned, share_max=self._wishes.delete_share_max)
        if objection is not None:
            raise Stopped(objection)
        place = self._standing.place or [""]
        while keys := self._progress.missing(place[0], self._wishes.chunk):
            place = [keys[-1]]
            self._look(keys, None, place)
        self._settle_all()

    def _look(self, keys: list[str], lines: dict[str, str] | None, place: Place) -> None:
        """Compare a chunk up to *place* for the first time; read its rows if *lines* is None."""
        began_ms = self._time.passed_ms()
        _, stored = self._stored(keys)
        found = self._found(keys) if lines is None else lines
        ended_ms = self._time.passed_ms()
        for key in keys:
            self._suspects.see(
                key,
                self._difference(found.get(key), stored.get(key)),
                began_ms=began_ms,
                ended_ms=ended_ms,
            )
        suspects = {key for key in keys if key in self._suspects}
        self._window.add(place, len(keys) if lines is not None else 0, suspects)
        self._save()
        self._advance(len(keys))
        self._pace(len(keys))
        self._settle()

    def _settle_all(self) -> None:
        while self._suspects:
            self._wait_for_the_next()
            self._settle()

    def _settle(self) -> None:
        """Compare due suspects again; wait for some to be due if there are too many."""
        while True:
            if len(self._suspects) >= SUSPECTS_MAX:
                self._wait_for_the_next()
            due = self._suspects.due(self._time.passed_ms(), self._wishes.chunk)
            if not due:
                return
            self._look_again(due)

    def _wait_for_the_next(self) -> None:
        next_ms = self._suspects.next_ms()
        if next_ms is not None:
            self._time.sleep_ms(max(0, next_ms - self._time.passed_ms()))

    def _look_again(self, keys: list[str]) -> None:
        """
        Compare again, the state before the table: an operation appended later moves its object.
        """
        began_ms = self._time.passed_ms()
        through, stored = self._stored(keys)
        found = self._found(keys)
        ended_ms = self._time.passed_ms()
        lasting: list[Difference] = []
        for key in keys:
            differs = self._difference(found.get(key), stored.get(key))
            verdict = self._suspects.see(key, differs, began_ms=began_ms, ended_ms=ended_ms)
            if verdict is not Verdict.WAITS:
                self._window.forget(key)
            self._standing.settled += verdict is Verdict.SETTLED
            self._standing.restless += verdict is Verdict.RESTLESS
            if verdict is Verdict.LASTS and differs is not None:
                lasting.append(differs)
        self._correct(lasting, through)
        self._save()
        self._pace(len(keys))

    def _correct(self, lasting: Sequence[Difference], through: int) -> None:
        standing, now_ms = self._standing, self._time.now_ms()
        if lasting and not self._wishes.dry_run:
            lines = [corrections.encode(each.correction(now_ms)).encode() for each in lasting]
            total, feed = apply.Applied(), self._feed.feed
            apply.apply_lines(self._corrector, feed, lambda: lines, through, total, _nobody)
            standing.applied += total.applied
            standing.moved += total.moved
            standing.done += total.done
        for each in lasting:
            name = NAMES[each.event]
            setattr(standing, name, getattr(standing, name) + 1)

    def _difference(self, line: str | None, row: Row | None) -> Difference | None:
        return difference(line, row, self._wishes.compare)

    def _stored(self, keys: Sequence[str]) -> tuple[int, dict[str, Row]]:
        """Return the rows of the state for *keys*, and the page up to which they are complete."""
        rows: dict[str, Row] = {}
        pages: list[int] = []
        while keys:
            looked = self._corrector.look(self._feed.feed, keys[: limits.LOOKUP_KEYS_MAX])
            rows |= {row.key: _checked(row) for row in looked.rows}
            pages.append(looked.state)
            keys = keys[looked.count :]
        return min(pages), rows

    def _found(self, keys: Sequence[str]) -> dict[str, str]:
        start = len(self._prefix)
        found = self._table.find([key[start:] for key in keys])
        return {f"{self._prefix}{id}": line for id, line in found.items()}

    def _save(self) -> None:
        """Save the progress; a chunk is done if it and all before it have no suspects."""
        closed = list(self._window.closed())
        if closed:
            self._standing.place = closed[-1][0]
            self._standing.rows += sum(rows for _, rows in closed)
        self._progress.save()

    def _pace(self, rows: int) -> None:
        """
        Sleep as long as *rows* may take.

        Waiting time is not made up for afterwards, to avoid bursts.
        """
        if not self._wishes.rate:
            return
        now_ms = self._time.passed_ms()
        self._free_ms = max(self._free_ms, now_ms) + 1000 * rows / self._wishes.rate
        self._time.sleep_ms(ceil(self._free_ms - now_ms))


def _checked(row: Row) -> Row:
    if not row.whole:
        raise BrokenRow(f"the row of {row.key} is broken: `tidings verify` says more")
    return row


def _cut(rows: list[Row], size: int) -> Iterator[list[Row]]:
    for at in range(0, len(rows), size):
        yield rows[at : at + size]


def _nobody(count: int) -> None:
    """Ignore the count: the progress bar shows rows, not corrections."""

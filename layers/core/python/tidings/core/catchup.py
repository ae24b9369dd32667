"""
Catching up: from any cursor to the frontier, from the log where it reaches, else the state.

`start` finds out what stands behind a cursor, `step` yields the next events and the progress
behind them. The same steps serve SSE streams and WebSocket replays.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from . import limits
from .cursors import PAGE_END, START, Cursor, Now, Place, Replication, Since
from .followers import STATE
from .frames import LEAVE, Event, leave_of, of_line
from .operations import data_of, event_of, parse_line
from .pages import lines_of
from .parts import Chosen, PageSlice, Rows
from .reader import Run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .departure_reader import DepartureReader
    from .departures import Left
    from .filters import Filter
    from .pages import Page
    from .parts import Part
    from .ports import Checkpoints, Clock, StateStore
    from .reader import Reader
    from .state import Row

RESET = "reset"
LIVE = "live"


@dataclass(frozen=True, slots=True)
class Progress:
    """
    Where a catch-up stands: in the log behind (*page*, *slot*), or copying the state.

    While copying, *bucket* and *after_key* say how far, *since_ms* and *tombstones* what is
    wanted, and the log goes on behind *page*. *resets*: `reset` is still to be sent.
    *announces*: `live` is to be sent at the frontier.
    """

    page: int
    slot: int = PAGE_END
    seconds: int = 0
    copying: bool = False
    since_ms: int = 0
    bucket: int = 0
    after_key: str | None = None
    tombstones: bool = False
    resets: bool = False
    announces: bool = False

    @property
    def in_step(self) -> bool:
        """Behind a whole page of the log, with nothing else left to send."""
        return not (self.copying or self.resets or self.announces) and self.slot >= PAGE_END

    @property
    def cursor(self) -> str:
        """What a client resumes from that has everything so far."""
        if self.copying:
            since_s = self.since_ms // 1000
            return Replication(since_s, self.page, self.bucket, self.tombstones).encode()
        return Place(self.page, self.slot, self.seconds).encode()

    def encode(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @staticmethod
    def decode(text: str) -> Progress:
        return Progress(**json.loads(text))


@dataclass(frozen=True, slots=True)
class Step:
    """*at_frontier*: there is nothing more to send for now."""

    parts: list[Part]
    progress: Progress
    at_frontier: bool = False

    @property
    def events(self) -> list[Event]:
        return [event for part in self.parts for event in part.events()]


def page_part(page: Page, wanted: Filter, first: int = 0, left: Left | None = None) -> Part:
    """What *wanted* matches of *page* from slot *first* on; for *left* see `page_events`."""
    if wanted.is_everything:
        return PageSlice(page, first)
    return Chosen(list(page_events(page, wanted, first, left)))


def page_events(
    page: Page, wanted: Filter, first: int = 0, left: Left | None = None
) -> Iterator[Event]:
    """
    The operations of *page* from slot *first* on that *wanted* matches.

    And where it wants leaves, those that took its parents away: *left* is the page's
    departures, None where they are unknown.
    """
    if wanted.leave:
        yield from _events_and_leaves(page, wanted, first, left)
        return
    if wanted.is_everything:
        yield from PageSlice(page, first).events()
        return
    text = page.text
    if not wanted.may_match(text):
        return
    prefix = page.id_prefix
    for slot, line in enumerate(lines_of(text)[first:], first):
        if wanted.may_match(line) and wanted.matches(parse_line(line)):
            yield of_line(prefix, slot, line)


def _events_and_leaves(
    page: Page, wanted: Filter, first: int, left: Left | None
) -> Iterator[Event]:
    for slot, line in enumerate(page.lines[first:], first):
        operation = parse_line(line)
        if wanted.matches(operation):
            yield of_line(page.id_prefix, slot, line)
        elif wanted.left_by(operation, None if left is None else left.get(slot, ())):
            yield leave_of(of_line(page.id_prefix, slot, line))


def _row_name(row: Row, wanted: Filter, *, changed: bool) -> str:
    """
    What the event of *row* is called; empty where *wanted* has no use for it.

    The state does not know what an object left. Where a consumer is told what *changed* since
    it was here last, whatever does not match may have left.
    """
    operation = None if wanted.is_everything else parse_line(row.line)
    if operation is None or wanted.matches(operation):
        return "delete" if row.deleted else "insert"
    return LEAVE if changed and wanted.left_by(operation, None) else ""


def in_log(place: Place) -> Progress:
    return Progress(place.page, place.slot, place.seconds)


@dataclass(frozen=True, slots=True)
class CatchUp:
    """*tombstone_ms* is how long deleted objects are remembered."""

    reader: Reader
    states: StateStore
    checkpoints: Checkpoints
    clock: Clock
    tombstone_ms: int
    departures: DepartureReader

    def start(self, feed: str, cursor: Cursor) -> Progress:
        """What stands behind *cursor*. Never fails: the worst case is `reset` and everything."""
        match cursor:
            case Now():
                return in_log(self._end(feed))
            case Since(ms=0):
                return self._everything(feed)
            case Since(ms=ms):
                return self._copy(feed, since_ms=max(0, ms), tombstones=False)
            case Replication():
                return self._go_on_copying(feed, cursor)
            case Place():
                return self._from_place(feed, cursor)

    def step(self, feed: str, progress: Progress, wanted: Filter) -> Step:
        """The next events behind *progress* that *wanted* matches."""
        if progress.resets:
            return Step([Chosen([Event("1", RESET, "")])], replace(progress, resets=False))
        if progress.copying:
            return self._copy_step(feed, progress, wanted)
        return self._log_step(feed, progress, wanted)

    def read(self, feed: str, after: int, *, leave: bool, begun: int = 0) -> Run:
        """
        What follows page *after*; where leaves are told, as far as departures are settled.

        But for page *begun*, whose rest is due at once: a producer may resume from the id of an
        operation it has just posted, and a hand-over knows whole pages only.
        """
        if not leave:
            return self.reader.read(feed, after)
        until = max(self.departures.until(feed), begun)
        if until <= after:
            return Run([])
        run = self.reader.read(feed, after, until - after)
        return replace(run, more=run.more and run.pages[-1].number < until)

    def _end(self, feed: str) -> Place:
        """The end of the log; its time is now where its last page was trimmed."""
        end = self.reader.frontier(feed, self._projected(feed))
        return end if end.seconds or not end.page else replace(end, seconds=self.clock() // 1000)

    def _from_place(self, feed: str, place: Place) -> Progress:
        if place.page == 0 and place.seconds == 0 and place.slot == PAGE_END:
            return in_log(START)  # given to those who came before the first page
        page = self.reader.at(feed, place.page)
        if page is not None and page.seconds == place.seconds:
            return in_log(place)
        return self._by_time(feed, place.seconds)

    def _by_time(self, feed: str, seconds: int) -> Progress:
        """The latest of each object changed since, while its deletion would be remembered."""
        since_s = max(0, seconds - limits.CLOCK_SKEW_MS_MAX // 1000)
        if since_s == 0 or self._forgotten(since_s):
            return self._everything(feed)
        return self._copy(feed, since_ms=since_s * 1000, tombstones=True)

    def _forgotten(self, since_s: int) -> bool:
        """Whether deletions since then may be forgotten before a copy has told them all."""
        return since_s * 1000 < self.clock() - self.tombstone_ms + limits.CONNECTION_MS_MAX

    def _everything(self, feed: str) -> Progress:
        return replace(self._copy(feed, since_ms=0, tombstones=False), resets=True)

    def _copy(self, feed: str, *, since_ms: int, tombstones: bool) -> Progress:
        return Progress(
            self._projected(feed),
            copying=True,
            since_ms=since_ms,
            tombstones=tombstones,
            announces=True,
        )

    def _go_on_copying(self, feed: str, cursor: Replication) -> Progress:
        """Only while the log reaches back to where it began, and deletions are remembered."""
        ours = cursor.page <= self._projected(feed)
        if cursor.tombstones and self._forgotten(cursor.since_s):
            return self._everything(feed)
        if ours and not self.reader.read(feed, cursor.page, 1).trimmed:
            since_ms = cursor.since_s * 1000
            started = self._copy(feed, since_ms=since_ms, tombstones=cursor.tombstones)
            return replace(started, page=cursor.page, bucket=cursor.bucket)
        return self._by_time(feed, cursor.since_s)

    def _projected(self, feed: str) -> int:
        """The state holds at least everything up to this page."""
        return self.checkpoints.checkpoints(feed).get(STATE, 0)

    def _copy_step(self, feed: str, progress: Progress, wanted: Filter) -> Step:
        """Rows of as many buckets as make a step worth sending."""
        parts: list[Part] = []
        seen = 0
        whole = progress.since_ms == 0 and not progress.tombstones
        read = self._read_lines if whole else self._read_rows
        while progress.bucket < limits.BUCKETS and seen < limits.COPY_STEP_ROWS:
            part, count, after = read(feed, progress, wanted)
            parts.append(part)
            seen += count
            if after is not None:
                progress = replace(progress, after_key=after)
            else:
                progress = replace(progress, bucket=progress.bucket + 1, after_key=None)
        if progress.bucket == limits.BUCKETS:
            progress = self._copied(feed, progress.page)
        return Step(parts, progress)

    def _read_lines(
        self, feed: str, progress: Progress, wanted: Filter
    ) -> tuple[Part, int, str | None]:
        """Of a copy of all that lives; how many lines were read and where the bucket goes on."""
        found = self.states.lines(feed, progress.bucket, progress.after_key)
        living = [line for line in found.lines if event_of(line) != "delete"]
        if not wanted.is_everything:
            living = [
                line
                for line in living
                if wanted.may_match(line) and wanted.matches(parse_line(line))
            ]
        return Rows(progress.cursor, living), len(found.lines), found.after

    def _read_rows(
        self, feed: str, progress: Progress, wanted: Filter
    ) -> tuple[Part, int, str | None]:
        """As `_read_lines`, where time or expiry of a row decide."""
        rows = self.states.read(feed, progress.bucket, progress.after_key)
        part = Chosen(list(self._row_events(rows, progress, wanted)))
        return part, len(rows), rows[-1].key if rows else None

    def _copied(self, feed: str, number: int) -> Progress:
        """The copy is complete; the log goes on behind page *number*."""
        page = self.reader.at(feed, number)
        seconds = page.seconds if page else self._seconds_behind(feed, number)
        return replace(in_log(Place(number, PAGE_END, seconds)), announces=True)

    def _seconds_behind(self, feed: str, number: int) -> int:
        """Since when pages behind *number* were written, which is gone; 0 where nobody knows."""
        run = self.reader.read(feed, number, 1)
        if number == 0 or run.trimmed or run.waiting:
            return 0
        return run.pages[0].seconds if run.pages else self.clock() // 1000

    def _row_events(
        self, rows: Iterable[Row], progress: Progress, wanted: Filter
    ) -> Iterator[Event]:
        now_ms = self.clock()
        for row in rows:
            if row.at_ms < progress.since_ms or 0 < row.expires_ms <= now_ms:
                continue
            if row.deleted and not progress.tombstones:
                continue
            name = _row_name(row, wanted, changed=progress.since_ms > 0)
            if name:
                yield Event(progress.cursor, name, data_of(row.line))

    def _log_step(self, feed: str, progress: Progress, wanted: Filter) -> Step:
        whole = progress.slot >= PAGE_END
        after = progress.page if whole else progress.page - 1
        run = self.read(feed, after, leave=wanted.leave, begun=0 if whole else progress.page)
        if run.trimmed:
            return Step([], self._by_time(feed, progress.seconds))
        if not run.pages:
            return self._frontier_step([], progress)
        lefts = self.departures.left(feed, run.pages) if wanted.leave else {}
        parts: list[Part] = []
        for page in run.pages:
            first = 0 if page.number != progress.page else progress.slot + 1
            parts.append(page_part(page, wanted, first, lefts.get(page.number)))
        last = run.pages[-1]
        moved = Progress(last.number, seconds=last.seconds, announces=progress.announces)
        return Step(parts, moved) if run.more else self._frontier_step(parts, moved)

    def _frontier_step(self, parts: list[Part], progress: Progress) -> Step:
        """Arrived, in the same step as the last pages: a busy feed has no quiet moment."""
        if not progress.announces:
            return Step(parts, progress, at_frontier=True)
        arrived = replace(progress, announces=False)
        live = Chosen([Event(arrived.cursor, LIVE, "")])
        return Step([*parts, live], arrived, at_frontier=True)

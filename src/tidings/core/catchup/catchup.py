"""Read from any cursor to the frontier of the log.

A catch-up reads the log if the log goes back to the cursor. Otherwise, if the state still has the
tombstones of all objects deleted since the cursor, the catch-up copies the objects that changed
since the cursor from the state. If the state lacks tombstones, the catch-up reads the archive. If
the archive lacks pages, too, the catch-up sends `reset` and a copy of the whole state.

`start` finds the source for a cursor; `step` returns the next events and the progress after these
events. SSE streams and WebSocket replays use the same steps.
"""

from __future__ import annotations

import json
from dataclasses import MISSING, asdict, dataclass, fields, replace
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.catchup.matching import Chosen, Rows, page_part, row_event
from tidings.core.errors import Unavailable
from tidings.core.log.reader import PagesLost, Run
from tidings.core.model.cursors import (
    PAGE_END,
    PARTS_MAX,
    START,
    Cursor,
    Now,
    Place,
    Replication,
    Since,
)
from tidings.core.model.events import Event
from tidings.core.model.feeds import STATE
from tidings.core.model.operations import event_of, parse_line
from tidings.core.settings.profiles import possible
from tidings.core.state.tombstones import forgotten, known_since

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tidings.core.archive.reader import ArchiveReader
    from tidings.core.catchup.matching import Part
    from tidings.core.log.reader import Reader
    from tidings.core.model.filters import Filter
    from tidings.core.model.pages import Page
    from tidings.core.settings.profiles import Losses
    from tidings.core.state.removed_parents import RemovedParentsReader
    from tidings.core.state.rows import Lines, Row, StateStore
    from tidings.core.state.tombstones import TombstoneStore


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a catch-up: in the log after (*page*, *slot*), or in a copy of the state.

    *seconds* is the commit time of *page*. During a copy, *bucket* and *after_key* are the
    position, *since_ms* and *tombstones* select the rows, and the log follows after *page*.
    *passed* is the number of living objects (not deleted ones) of the bucket before the position.
    *skips* is how many living objects a resumed copy still has to skip.

    *resets* is True if `reset` must still be sent. *announces* is True if `live` must be sent at
    the frontier. *archived* is True if the next pages may be in the archive only.
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
    archived: bool = False
    passed: int = 0
    skips: int = 0

    @property
    def in_step(self) -> bool:
        """Return True if `page` was sent completely, and no copy, `reset` or `live` is due."""
        return not (self.copying or self.resets or self.announces) and self.slot >= PAGE_END

    @property
    def cursor(self) -> str:
        """Return the cursor of a client that has received everything so far."""
        if self.copying:
            since_s, part = self.since_ms // 1000, self.passed // limits.COPY_PART_ROWS
            part = min(part, PARTS_MAX)
            return Replication(since_s, self.page, self.bucket, self.tombstones, part).encode()
        return Place(self.page, self.slot, self.seconds).encode()

    def encode(self) -> str:
        """Encode the fields that differ from their default.

        New fields are thus left out unless they are needed, so that functions of the older release
        can decode most results while a stage is updated.
        """
        stored = {name: v for name, v in asdict(self).items() if v != _DEFAULTS.get(name)}
        return json.dumps(stored, separators=(",", ":"))

    @staticmethod
    def decode(text: str) -> Progress:
        """Decode *text*; ignore fields that only a newer release has."""
        stored = json.loads(text)
        return Progress(**{name: stored[name] for name in stored.keys() & _FIELDS})


_FIELDS = frozenset(each.name for each in fields(Progress))
_DEFAULTS = {each.name: each.default for each in fields(Progress) if each.default is not MISSING}


@dataclass(frozen=True, slots=True)
class Step:
    """The result of a step.

    *at_frontier* is True if nothing more can be sent for now. *size* is the size of the data that
    was read, as `limits.KEY_READ_SIZE` counts it.
    """

    parts: list[Part]
    progress: Progress
    at_frontier: bool = False
    size: int = 0

    @property
    def events(self) -> list[Event]:
        return [event for part in self.parts for event in part.events()]


def in_log(place: Place) -> Progress:
    return Progress(place.page, place.slot, place.seconds)


def _living(rows: Lines, page: int) -> list[str]:
    """Return the lines of the living objects, with "" for each that changed after *page*.

    A copy leaves these out, because the log after *page* has them. So a client never has data from
    a page that is after its cursor, and a restore cannot lose that page unnoticed.
    """
    if max(rows.pages, default=0) <= page:
        return [line for line in rows.lines if event_of(line) != "delete"]
    pairs = zip(rows.lines, rows.pages, strict=True)
    return [line if at <= page else "" for line, at in pairs if event_of(line) != "delete"]


def in_copy(row: Row, *, since_ms: int, tombstones: bool, now_ms: int) -> bool:
    """Return True if *row* belongs to a copy of the changes since *since_ms*."""
    if row.at_ms < since_ms or 0 < row.expires_ms <= now_ms:
        return False
    return tombstones or not row.deleted


def in_parts(progress: Progress, living: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the *living* objects after *progress* in groups, each with its cursor."""
    at = 0
    while at < len(living) or not at:
        begun = replace(progress, passed=progress.passed + at)
        room = limits.COPY_PART_ROWS - begun.passed % limits.COPY_PART_ROWS
        yield begun.cursor, living[at : at + room]
        at += room


def progress_after(progress: Progress, after: str | None, living: int) -> Progress:
    """Return the progress after a read of *living* objects that ended at the key *after*.

    *after* is None at the end of the bucket.
    """
    if after is None:
        return replace(progress, bucket=progress.bucket + 1, after_key=None, passed=0)
    return replace(progress, after_key=after, passed=progress.passed + living)


RESET = "reset"
LIVE = "live"


def margin(seconds: int) -> int:
    """Return the second from which a reader that was at *seconds* may lack changes.

    This second is before *seconds*, because a later page may have an earlier commit time.
    """
    return max(0, seconds - limits.STAMP_DISORDER_MS // 1000)


def _reset(progress: Progress) -> Step:
    """Return the step that sends `reset` before a copy of everything, and before any cursor.

    If the client received a cursor first and the connection broke, the client would resume from the
    cursor without the `reset`, and would keep objects that were deleted in the meantime.
    """
    return Step([Chosen([Event("1", RESET, "")])], replace(progress, resets=False))


@dataclass(frozen=True, slots=True, kw_only=True)
class CatchUp:
    """A reader from a cursor to the frontier.

    *tombstones* has the time since which the state has the tombstones of all deleted objects.
    """

    reader: Reader
    states: StateStore
    tombstones: TombstoneStore
    removed_parents_reader: RemovedParentsReader
    losses: Losses
    archive: ArchiveReader | None = None

    def start(self, feed: str, cursor: Cursor) -> Progress:
        """Return the progress for *cursor*.

        If the changes since the cursor are gone, the progress begins with `reset` and a copy of all
        objects.
        """
        if self.losses(feed, cursor):
            return self._everything(feed)
        match cursor:
            case Now():
                # The end of the log, even if its last page was trimmed.
                end = self.reader.frontier(feed, self._state_checkpoint(feed))
                return in_log(end if end.seconds or not end.page else self._last(feed, end.page))
            case Since(ms=0):
                return self._everything(feed)
            case Since(ms=ms):
                return self._copy(feed, since_ms=max(0, ms), tombstones=False)
            case Replication():
                return self._go_on_copying(feed, cursor)
            case Place():
                return self._from_place(feed, cursor)

    def step(self, feed: str, progress: Progress, wanted: Filter) -> Step:
        """Return the next events after *progress* that match the filter."""
        # A copy by time does not show which objects left the part of the feed that a restricted
        # reader may read, so send everything instead.
        if wanted.redacted and progress.tombstones:
            progress = self._everything(feed)
        if progress.resets:
            return _reset(progress)
        if progress.copying:
            return self._copy_step(feed, progress, wanted)
        return self._log_step(feed, progress, wanted)

    def read(self, feed: str, after: int, *, leave: bool, begun: int = 0) -> Run:
        """Return the pages after page *after*.

        With *leave*, stop before the first page for which the removed parents are not stored yet.
        Page *begun*, of which the reader has a part, is returned in any case. A producer may resume
        from the id of an operation that it has just posted, and a hand-over to push needs whole
        pages.
        """
        if not leave:
            return self.reader.read(feed, after)
        until = max(self.removed_parents_reader.until(feed), begun)
        if until <= after:
            return Run([])
        return self.reader.read_until(feed, after, until)

    def _last(self, feed: str, page: int) -> Place:
        """Return the place after *page*, which is the last page and was trimmed.

        The time of the place is the current time, because later pages are written from now on. In a
        chained feed, it is the time of the copied page.
        """
        seconds = self.losses.copied_s(feed, page)
        return Place(page, PAGE_END, self.reader.clock() // 1000 if seconds is None else seconds)

    def _from_place(self, feed: str, place: Place) -> Progress:
        if place.page == 0 and place.seconds == 0 and place.slot == PAGE_END:
            return in_log(START)  # the cursor of a reader that connected before the first page
        page = self.reader.at(feed, place.page)
        if page is not None and page.seconds == place.seconds:
            return in_log(place)
        if self._forgotten(feed, margin(place.seconds)) and self._is_archived(feed, place):
            return replace(in_log(place), archived=True)
        if page is None and self._is_beyond(feed, place.page):
            return self._everything(feed)
        return self._by_time(feed, place.seconds)

    def _is_beyond(self, feed: str, number: int) -> bool:
        """Return True if page *number* is above the head as this log had that page and lost it.

        Return False if no promotion or restore can have skipped to the number: it is from another
        feed then. The time of the cursor shows nothing, because a lost log may have skipped
        numbers at any time, and this log may have grown since.
        """
        if self.losses.is_copy(feed):
            return False  # the feed may still copy the page from its upstream (PROTOCOL 5.9)
        head = self.reader.log.head(feed)
        return 0 < number - head <= possible(head, limits.PAGE_NUMBER_MAX)

    def _is_archived(self, feed: str, place: Place) -> bool:
        """Return True if the archive has the page of *place*, and later ones that the log lacks."""
        page = self.archive.at(feed, place.page) if self.archive else None
        return (
            page is not None
            and page.seconds == place.seconds
            and self._has_all_after(feed, place.page)
        )

    def _has_all_after(self, feed: str, page: int) -> bool:
        """Return True if the log, alone or with the archive, has every operation after *page*."""
        run = self.reader.read_or_trimmed(feed, page, 1)
        if not run.trimmed:
            return True
        return self.archive is not None and self.archive.reaches(feed, page, run.floor - 1)

    def _by_time(self, feed: str, seconds: int) -> Progress:
        """Return a copy of the objects changed since *seconds*.

        Return a copy of all objects if the tombstones since then are incomplete.
        """
        since_s = margin(seconds)
        if since_s == 0 or self._forgotten(feed, since_s):
            return self._everything(feed)
        return self._copy(feed, since_ms=since_s * 1000, tombstones=True)

    def _forgotten(self, feed: str, since_s: int) -> bool:
        return forgotten(since_s, known_since(self.tombstones, feed, self.reader.clock()))

    def _everything(self, feed: str) -> Progress:
        return replace(self._copy(feed, since_ms=0, tombstones=False), resets=True)

    def _copy(self, feed: str, *, since_ms: int, tombstones: bool) -> Progress:
        return Progress(
            self._state_checkpoint(feed),
            copying=True,
            since_ms=since_ms,
            tombstones=tombstones,
            announces=True,
        )

    def _go_on_copying(self, feed: str, cursor: Replication) -> Progress:
        """Resume a copy if the log, alone or with the archive, has all pages since the copy began.

        Otherwise begin another copy. If tombstones that the copy needs are missing, send `reset`
        and everything.
        """
        ours = cursor.page <= self._state_checkpoint(feed)
        if cursor.tombstones and self._forgotten(feed, cursor.since_s):
            return self._everything(feed)
        if ours and self._has_all_after(feed, cursor.page):
            since_ms = cursor.since_s * 1000
            started = self._copy(feed, since_ms=since_ms, tombstones=cursor.tombstones)
            passed = self._count_sent(feed, cursor)
            at = replace(started, page=cursor.page, bucket=cursor.bucket)
            return replace(at, passed=passed, skips=passed)
        if not ours and self._is_beyond(feed, cursor.page):
            return self._everything(feed)
        return self._by_time(feed, cursor.since_s)

    def _count_sent(self, feed: str, cursor: Replication) -> int:
        """Return how many objects of the bucket, from its beginning, need not be sent again.

        An object that was living when the objects were counted is still living, or has a tombstone
        because it was deleted after the page of the copy. Counting therefore finds the same objects
        again, until such a tombstone is removed.
        """
        run = self.reader.read(feed, cursor.page, 1)
        seconds = run.pages[0].seconds if run.pages else self.reader.clock() // 1000
        if run.trimmed or self._forgotten(feed, margin(seconds)):
            return 0
        return cursor.part * limits.COPY_PART_ROWS

    def _state_checkpoint(self, feed: str) -> int:
        """Return the checkpoint of the state. The state has at least all pages up to this page."""
        return self.reader.checkpoints.checkpoints(feed).get(STATE, 0)

    def _copy_step(self, feed: str, progress: Progress, wanted: Filter) -> Step:
        """Read rows, bucket by bucket, until they are enough for one step."""
        if progress.skips:
            return self._skip(feed, progress)
        parts: list[Part] = []
        seen = size = 0
        complete = progress.since_ms == 0 and not progress.tombstones
        read = self._read_lines if complete else self._read_rows
        while progress.bucket < limits.BUCKETS and seen < limits.COPY_STEP_ROWS:
            if size >= limits.KEY_READ_SIZE:  # large rows fill a step before there are many of them
                break
            more, texts, progress = read(feed, progress, wanted)
            parts += more
            seen, size = seen + len(texts), size + sum(map(len, texts))
        if progress.bucket == limits.BUCKETS:
            progress = self._after_copy(feed, progress)
        return Step(parts, progress, size=size)

    def _skip(self, feed: str, progress: Progress) -> Step:
        """Move towards the position of a resumed copy by one read; a large bucket takes several.

        If the bucket has fewer objects than must be skipped, for instance after a repair, send the
        whole bucket again.
        """
        rows = self.states.read(feed, progress.bucket, progress.after_key)
        if not rows:
            return Step([], replace(progress, after_key=None, passed=0, skips=0))
        size = sum(len(row.line) for row in rows)
        for row in rows:
            if not row.deleted or row.page > progress.page:
                progress = replace(progress, skips=progress.skips - 1)
            if not progress.skips:
                return Step([], replace(progress, after_key=row.key), size=size)
        return Step([], replace(progress, after_key=rows[-1].key), size=size)

    def _read_lines(
        self, feed: str, progress: Progress, wanted: Filter
    ) -> tuple[list[Part], Sequence[str], Progress]:
        """Continue a copy of all living objects by one read.

        Return the parts, the lines that were read and the new progress.
        """
        rows = self.states.lines(feed, progress.bucket, progress.after_key)
        living = _living(rows, progress.page)
        parts: list[Part] = []
        for cursor, lines in in_parts(progress, living):
            if not wanted.is_everything:
                lines = [
                    line
                    for line in lines
                    if line and wanted.may_match(line) and wanted.matches(parse_line(line))
                ]
            elif "" in lines:
                lines = [line for line in lines if line]
            parts.append(Rows(cursor, lines))
        return parts, rows.lines, progress_after(progress, rows.after, len(living))

    def _read_rows(
        self, feed: str, progress: Progress, wanted: Filter
    ) -> tuple[list[Part], Sequence[str], Progress]:
        """Read as `_read_lines` does, but for a copy that depends on time and expiry of rows."""
        rows = self.states.read(feed, progress.bucket, progress.after_key)
        events = list(self._row_events(rows, progress, wanted))
        living = sum(not row.deleted for row in rows)
        after = rows[-1].key if rows else None
        return [Chosen(events)], [row.line for row in rows], progress_after(progress, after, living)

    def _after_copy(self, feed: str, progress: Progress) -> Progress:
        """Return the progress after a complete copy, which continues after the page of the copy."""
        number = progress.page
        page = self.reader.at(feed, number)
        if page is None and self.archive:
            page = self.archive.at(feed, number)
        seconds = page.seconds if page else self._lag_s(feed, progress)
        return replace(in_log(Place(number, PAGE_END, seconds)), announces=True)

    def _lag_s(self, feed: str, progress: Progress) -> int:
        """Return the second since which the pages after the page of *progress* were written.

        The page of *progress* is missing, so use the time of the next page. If the next page is a
        hole, use the time of the first page after the hole, less `limits.WRITE_MS_MAX`, because a
        writer may be late by one request. If the next page was trimmed, use the time for which a
        copy by time was made. Return 0 if the time is unknown.
        """
        number = progress.page
        run = self.reader.read_or_trimmed(feed, number, 1)
        if number == 0:
            return 0
        if run.trimmed:
            # The second of the cursor for which a copy by time was made; 0 for other copies.
            asked_ms = progress.since_ms + limits.STAMP_DISORDER_MS
            return asked_ms // 1000 if progress.tombstones else 0
        beyond = self.reader.next(feed, number + 1) if run.waiting else None
        if beyond:
            return max(0, beyond.seconds - limits.WRITE_MS_MAX // 1000)
        return run.pages[0].seconds if run.pages else self._last(feed, number).seconds

    def _row_events(
        self, rows: Iterable[Row], progress: Progress, wanted: Filter
    ) -> Iterator[Event]:
        now_ms = self.reader.clock()
        since_ms, tombstones = progress.since_ms, progress.tombstones
        for row in rows:
            cursor = progress.cursor
            if not row.deleted:
                progress = replace(progress, passed=progress.passed + 1)
            # See `_living`. A reader with leaves needs the row: the object may have left its part
            # before the page of the copy, and then the later operation has no leave.
            if row.page > progress.page and not wanted.leave:
                continue
            if not in_copy(row, since_ms=since_ms, tombstones=tombstones, now_ms=now_ms):
                continue
            event = row_event(cursor, row, wanted, changed=progress.since_ms > 0)
            if event:
                yield event

    def _log_step(self, feed: str, progress: Progress, wanted: Filter) -> Step:
        complete = progress.slot >= PAGE_END
        after = progress.page if complete else progress.page - 1
        floor = self.reader.log.floor(feed) if progress.archived else 0
        if after + 1 < floor:
            return self._archive_step(feed, progress, wanted, after, floor)
        try:
            run = self.read(feed, after, leave=wanted.leave, begun=0 if complete else progress.page)
        except PagesLost as lost:
            # Read the archive or the state in place of the lost pages.
            step = self._archive_step(feed, progress, wanted, after, lost.beyond)
            if self._leads_back(feed, step, lost.beyond):
                raise lost
            return step
        if run.trimmed:
            return self._trimmed_step(feed, progress, wanted, after, run.floor)
        if not run.pages:
            return self._frontier_step([], progress)
        parts = self._parts(feed, run.pages, progress, wanted)
        last = run.pages[-1]
        moved = Progress(last.number, seconds=last.seconds, announces=progress.announces)
        size = sum(page.size for page in run.pages)
        if run.more:
            return Step(parts, moved, size=size)
        return replace(self._frontier_step(parts, moved), size=size)

    def _trimmed_step(
        self, feed: str, progress: Progress, wanted: Filter, after: int, floor: int
    ) -> Step:
        """Return a step from the archive or the state, in place of trimmed pages."""
        step = self._archive_step(feed, progress, wanted, after, floor)
        if self._leads_back(feed, step, floor):
            rule = f"the state has not reached page {floor}, the first page of the log"
            raise Unavailable(f"{feed}: {rule}")
        return step

    def _leads_back(self, feed: str, step: Step, floor: int) -> bool:
        """Return True if *step* copies a state that ends before the *floor*.

        After the copy, the pages between state and floor would be missing again.
        """
        return step.progress.copying and self._state_checkpoint(feed) < floor - 1

    def _archive_step(
        self, feed: str, progress: Progress, wanted: Filter, after: int, floor: int
    ) -> Step:
        """Read the archive below the *floor*; copy by time if the archive lacks the next page."""
        pages = self.archive.read(feed, after, floor - 1) if self.archive else ()
        if not pages:
            copy = self._by_time(feed, progress.seconds)
            return _reset(copy) if copy.resets else Step([], copy)
        parts = self._parts(feed, pages, progress, wanted)
        moved = replace(in_log(pages[-1].end), announces=progress.announces, archived=True)
        return Step(parts, moved, size=sum(page.size for page in pages))

    def _parts(
        self, feed: str, pages: Sequence[Page], progress: Progress, wanted: Filter
    ) -> list[Part]:
        """Return the parts of *pages* after *progress* that match the filter."""
        removed_at = self.removed_parents_reader.by_page(feed, pages if wanted.leave else ())
        parts: list[Part] = []
        for page in pages:
            first = 0 if page.number != progress.page else progress.slot + 1
            parts.append(page_part(page, wanted, first, removed_at.get(page.number)))
        return parts

    def _frontier_step(self, parts: list[Part], progress: Progress) -> Step:
        """Return the step at the frontier, with `live` after *parts* if `live` is still due.

        A separate step for `live` might never happen, because a busy feed has new pages all the
        time.
        """
        if not progress.announces:
            return Step(parts, progress, at_frontier=True)
        arrived = replace(progress, announces=False)
        live = Chosen([Event(arrived.cursor, LIVE, "")])
        return Step([*parts, live], arrived, at_frontier=True)

"""Recovery at the start of a server: page numbers without a page, and a restored data file.

**Page numbers without a page.** Earlier releases wrote the number and the page separately. If such
a release was killed between the two writes, it left a hole, which no reader can pass. A hole above
the checkpoint of the follower `state` is filled, however old it is. Its page was never
acknowledged, because an acknowledged page is only deleted after the state has handled it. No writer
can be about to write the page, because this release writes number and page in one transaction. A
missing number at or below the checkpoint had a page, which is lost. Such a number is reported, and
never filled.

**Generations.** After the data file was restored to an earlier state, no page number may be
assigned again. So the server has to notice that the file was restored:

- `Database.back_up` marks a backup as such.
- To detect other copies, the server writes a new random id into the data file and into a small file
  next to it. It does so at each start, and once a minute while a log grows. If only the data file
  is restored, the ids differ.
- The data file also stores the change time of the small file. If the folder is restored, this time
  differs.
- A copy that was made in the same minute has none of these differences. So a third file
  (`HeadFile`) has the last page of each feed that grew. If the data file ends before that page, it
  is an earlier copy.
- A data file without any start was lost if one of the two other files exists: the first writes of a
  server are in the write-ahead log only, so a copy of the data file alone is empty.
- A snapshot of the whole volume cannot be detected. An operator who restores one must remove the
  small file.

If the data file does not match the other files, a new generation begins: the log skips all numbers
that may have been assigned (`maintenance.restore`). In a false alarm, such as after a change of the
files' owner, this costs numbers and an empty page. Readers are not affected, because they have seen
no later pages. The files of a killed process match, unless it was killed after it wrote the small
file and before it wrote the id into the data file.
"""

from __future__ import annotations

import logging
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tidings.core.errors import Unavailable
from tidings.core.feeds.records import Removed
from tidings.core.model.feeds import STATE
from tidings.core.model.pages import jump
from tidings.core.replication.relay import Wanted
from tidings.core.settings.profiles import possible
from tidings.server.processes import Problem
from tidings.server.sqlite.database import FILE_MODE

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Container, Mapping, Sequence
    from pathlib import Path

    from tidings.core.effects import Clock
    from tidings.core.feeds.directory import Directory
    from tidings.core.log.stores import Checkpoints
    from tidings.core.maintenance.restore import Restorer
    from tidings.core.model.pages import Page
    from tidings.core.replication.relay import RelayStore
    from tidings.server.sqlite.database import Database
    from tidings.server.sqlite.log import Numbers, SqliteLog

log = logging.getLogger(__name__)
SUFFIX = ".started"  # suffix of the small file next to the data file
HEADS_SUFFIX = ".heads"  # suffix of the file with the last page of each feed that grew


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """A repair that fills unwritten page numbers.

    *page_ms* is the retention of a page. The feeds *chained* are skipped, because they get the
    pages from their upstreams.
    """

    database: Database
    log: SqliteLog
    checkpoints: Checkpoints
    chained: Container[str]
    clock: Clock
    page_ms: int

    def unwritten(self, feed: str) -> Sequence[Numbers]:
        """Return the numbers that will never get a page; no numbers for a chained feed."""
        return () if feed in self.chained else self.log.missing(feed, self._last_handled(feed))

    def fill(self, feed: str) -> Sequence[Numbers]:
        """Write one empty page for each run of unwritten numbers; return the runs.

        Raises:
            Unavailable: the disk is full or does not answer; nothing was written.
        """
        if not self.unwritten(feed):
            return ()

        def fill(_: object) -> Sequence[Numbers]:
            holes, now_ms = self.unwritten(feed), self.clock()
            for hole in holes:
                # A filler has the time of the next page, because cursors contain their page's time.
                beyond = self.log.read(feed, hole.last, 1)
                at_ms = beyond[0].at_ms if beyond else now_ms
                expires_ms = now_ms + self.page_ms
                page = jump(hole.first, hole.last, at_ms=at_ms, expires_ms=expires_ms)
                self.log.fill(feed, [page])
            return holes

        return self.database.write(fill)

    def end(self, feed: str) -> int:
        """Return the last page that a reader of *feed* can reach from the state's checkpoint."""
        missing = self.log.missing(feed, self._last_handled(feed))
        return missing[0].first - 1 if missing else self.log.head(feed)

    def _last_handled(self, feed: str) -> int:
        state = self.checkpoints.checkpoints(feed).get(STATE, 0)
        return max(state, self.log.floor(feed) - 1)


class Start(NamedTuple):
    """A start of a server at *at_ms*, or a later renewal of its *id*.

    *changed_ns* is the change time of the small file, to which the id was also written. The id is
    empty in a backup, which was made at *at_ms*, and in a data file that no server of this release
    has used.
    """

    id: str
    changed_ns: int
    at_ms: int

    def matches(self, found_id: str, changed_ns: int) -> bool:
        """Return True if this start wrote the small file, with *found_id* and *changed_ns*."""
        return self.id != "" and (self.id, self.changed_ns) == (found_id, changed_ns)


class SqliteStarts:
    def __init__(self, database: Database) -> None:
        self.database = database

    def last(self) -> Start | None:
        """Return the last start; None for a new data file, which has no pages."""
        with self.database.reading() as sql:
            row = sql.execute("SELECT id, changed_ns, at_ms FROM starts").fetchone()
        if row is not None:
            return Start(*row)
        return Start("", 0, 0) if self.growth() != (0, None) else None

    def put(self, start: Start) -> None:
        def write(sql: sqlite3.Connection) -> None:
            sql.execute("DELETE FROM starts")
            sql.execute("INSERT INTO starts VALUES (?, ?, ?)", start)

        self.database.write(write)

    def growth(self) -> tuple[int, int | None]:
        """Return a value that changes whenever a log grows: the number of logs and of all pages."""
        with self.database.reading() as sql:
            count, pages = sql.execute("SELECT count(*), sum(page) FROM heads").fetchone()
        return count, pages

    def heads(self) -> dict[str, int]:
        """Return the last page number of each feed that has a log."""
        with self.database.reading() as sql:
            return dict(sql.execute("SELECT feed, page FROM heads").fetchall())


class HeadFile:
    """The last page of each feed, in the file *path*.

    A page is recorded after its commit and before it is acknowledged, without a sync. So the file
    is never ahead of the data, and has every acknowledged page even if the process is killed. The
    first line of the file is its own inode number. If the number differs, the file is a copy, so
    the folder was restored.

    A start writes the lines of all feeds, so that the numbers are known even if the data file is
    lost. A new feed gets its line with its first page.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self._end = 0
        self._offsets: dict[str, int] = {}

    def read(self) -> dict[str, int] | None:
        """Return the last page of each feed; {} without a file, None if it is a copy or broken."""
        try:
            inode, *lines = self._path.read_text().splitlines()
            if int(inode) != self._path.stat().st_ino:
                return None
        except FileNotFoundError:  # an earlier release wrote the data
            return {}
        except ValueError:
            return None
        # After a loss of power, a line that was added last may be incomplete or zeros.
        fields = (line.split() for line in lines)
        complete = (each for each in fields if len(each) == 2 and each[0].isdecimal())
        return {feed: int(page) for page, feed in complete}

    def begin(self, heads: Mapping[str, int]) -> None:
        """Write the file with the last pages *heads*; from now on, `record` records pages.

        Raises:
            OSError: the file cannot be written.
        """
        self.close()
        part = self._path.with_name(f"{self._path.name}.part")
        part.unlink(missing_ok=True)
        file = os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            self._end = os.write(file, b"%d\n" % os.fstat(file).st_ino)
            self._file, self._offsets = file, {}
            for feed, number in heads.items():
                self._write(feed, number)
            os.fsync(file)
            part.replace(self._path)
        except BaseException:
            self.close()
            raise

    def record(self, pages: Sequence[tuple[str, Page]]) -> None:
        """Record the last page of each feed in *pages*, which are on disk.

        If the disk is full, a feed without a line is not recorded. The pages stay acknowledged.
        """
        if self._file is None:
            return
        for feed, page in dict(pages).items():
            with suppress(OSError):
                self._write(feed, page.number)

    def _write(self, feed: str, number: int) -> None:
        assert self._file is not None
        at = self._offsets.get(feed)
        if at is not None:
            os.pwrite(self._file, b"%20d" % number, at)
            return
        size = os.pwrite(self._file, b"%20d %s\n" % (number, feed.encode()), self._end)
        self._offsets[feed] = self._end
        self._end += size

    def forget(self, feed: str) -> None:
        """Overwrite the line of *feed* with blanks."""
        at = self._offsets.pop(feed, None)
        if at is not None and self._file is not None:
            os.pwrite(self._file, b" " * (21 + len(feed.encode())), at)
            os.fsync(self._file)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
        self._file = None


@dataclass(slots=True)
class Generations:
    """The check whether the data file was restored, and the start of a new generation.

    The pages of a deleted feed of *directory* may be missing. The feeds *chained* are chained by
    the settings. The check is also a part of the `FeedData` of a server: it forgets a feed before
    its pages are removed.
    """

    directory: Directory
    starts: SqliteStarts
    restorer: Restorer
    relays: RelayStore
    chained: Collection[str]
    _noted: tuple[int, int | None] = (0, None)
    last_pages: HeadFile = field(init=False)

    def __post_init__(self) -> None:
        self.last_pages = HeadFile(self._beside(HEADS_SUFFIX))

    def begin(self) -> None:
        """Record this start. If the data file was restored, begin a new generation of all feeds.

        If the start cannot be recorded, as on a full disk, the next start may raise a false alarm.

        Raises:
            Problem: the data file was restored, and the new generation cannot be started.
        """
        recorded = self.last_pages.read()
        restored = self._restored_start(recorded)
        try:
            self._note(restored, recorded or {})
            self.last_pages.begin(self.starts.heads())
        except (OSError, Unavailable) as error:
            if restored is not None:
                path = self.starts.database.path
                raise Problem(
                    f"{path} was restored or copied, and no new generation can begin: {error}"
                ) from error
            log.warning("%s cannot be written: %s", self._mark, error)

    def _restored_start(self, recorded: Mapping[str, int] | None) -> Start | None:
        """Return the last start in the data file if the file was restored; else None."""
        last, mark = self.starts.last(), _read(self._mark)
        if last is not None:
            return None if last.matches(*mark) and self._has_all_pages(recorded) else last
        if recorded == {} and mark == ("", 0):
            return None
        # If the recorded pages are unknown, any number may have been assigned at any time.
        return Start("", 0, mark[1] // 1_000_000 if recorded else 1)

    def remove(self, key: str, resume_at: str, until_ms: int) -> Removed:
        """Implement `FeedData`: forget the pages of the deleted feed."""
        self.last_pages.forget(key)
        return Removed(None, {})

    def _existing_heads(self) -> Sequence[str]:
        """Return the feeds with a log that were not deleted."""
        return [feed for feed in self.starts.heads() if not self.directory.is_deleted(feed)]

    def renew(self) -> None:
        """Record that the logs have grown, so that an earlier copy of the data file is recognized.

        Raises:
            OSError: the small file cannot be written.
            Unavailable: the database does not answer.
        """
        if self.starts.growth() != self._noted:
            self._note(None, {})

    def _has_all_pages(self, recorded: Mapping[str, int] | None) -> bool:
        """Return True if every feed's log reaches the page *recorded* in `HeadFile`."""
        heads = self.starts.heads()
        return recorded is not None and all(
            page <= heads.get(feed, 0) or self._is_chained(feed) or self.directory.is_deleted(feed)
            for feed, page in recorded.items()
        )

    def _is_chained(self, feed: str) -> bool:
        relay = self.relays.relay(feed)
        is_chained = feed in self.chained or relay.version > 0
        return is_chained and relay.wanted is not Wanted.PROMOTED

    @property
    def _mark(self) -> Path:
        return self._beside(SUFFIX)

    def _beside(self, suffix: str) -> Path:
        """Return the path of a file next to the data file."""
        path = self.starts.database.path
        return path.with_name(path.name + suffix)

    def close(self) -> None:
        """Close the file of the last pages."""
        self.last_pages.close()

    def _note(self, restored: Start | None, recorded: Mapping[str, int]) -> None:
        fresh = _write(self._mark)

        def write(_: object) -> None:
            if restored is not None:
                for feed in sorted({*self.directory.all_keys(), *self._existing_heads()}):
                    self._begin(feed, restored, recorded.get(feed, 0))
                if top := max(recorded.values(), default=0):  # of a feed that the file may not have
                    last = top + possible(top, self.restorer.runtime.clock() - restored.at_ms)
                    self.restorer.remember_for_new_feeds(last)
            self.starts.put(Start(*fresh, self.restorer.runtime.clock()))

        self.starts.database.write(write)
        self._noted = self.starts.growth()

    def _begin(self, feed: str, last: Start, assigned: int) -> None:
        """Begin a new generation of *feed*, which had page *assigned*; not of a chained feed.

        A chained feed gets its pages, and their numbers, from its upstream.
        """
        if self._is_chained(feed):
            return
        hint = self.restorer.reader.checkpoints.checkpoints(feed).get(STATE, 0)
        plan = self.restorer.plan(feed, None, copied_ms=last.at_ms, hint=hint, assigned=assigned)
        self.restorer.restore(feed, plan)
        log.warning(
            "%(feed)s: the data file was restored or copied, or lost its write-ahead log. The log"
            " ends with page %(page)d and continues after page %(end)d. Readers that have seen"
            " pages in between learn that these are lost",
            {"feed": feed, "page": plan.kept.page, "end": plan.end},
        )


def _read(mark: Path) -> tuple[str, int]:
    """Return the id in the file *mark*, and the file's change time; ("", 0) without the file."""
    try:
        return mark.read_text(), mark.stat().st_ctime_ns
    except FileNotFoundError:
        return "", 0


def _write(mark: Path) -> tuple[str, int]:
    """Write a new id into the file *mark*; return the id and the file's change time."""
    part = mark.with_name(f"{mark.name}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    with os.fdopen(os.open(part, flags, FILE_MODE), "w") as file:
        file.write(secrets.token_hex(16))
        file.flush()
        os.fsync(file.fileno())
    part.replace(mark)
    return _read(mark)

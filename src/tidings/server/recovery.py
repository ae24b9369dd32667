"""
Recovery at the start of a server: unwritten page numbers, and a data file that was restored.

Unwritten numbers: earlier releases wrote the number and the page separately. If they were killed in
between, they left a hole, which no reader can pass. The follower `state` has handled every page up
to its checkpoint. A missing number above the checkpoint was never acknowledged, because pages
expire only after the state has handled them. So the hole is filled, however old it is. No writer
can be about to write its page, because this release writes both in one transaction. A missing
number at or below the checkpoint had a page, which is lost. It is reported and never filled.

Generations: no number is reused after the data file was restored to an earlier state. A backup is
marked as a backup (`Database.back_up`). To detect other copies, at each start, and once a minute
while a log grows, the server writes a new random id into the data file and into a small file next
to it. The data file also stores the modification time of the small file. If only the data file is
restored, the ids differ. If the folder is restored, the modification time differs. Neither differs
in a copy of the same minute, so a third file has the last page of each feed (`HeadFile`); if the
data file ends before that page, it is an earlier copy. A snapshot of the whole volume has none of
these differences, so its operator must remove the small file.

If the data file does not match these files, a new generation begins: the log skips all numbers that
may have been assigned (`maintenance.restore`). A false alarm, such as after a change of the files'
owner, costs numbers and an empty page; readers are not affected, because they have seen no later
pages. A process that was killed leaves files that match, unless it was killed between the two
writes.
"""

from __future__ import annotations

import logging
import os
import secrets
from dataclasses import dataclass, field
from mmap import mmap
from typing import TYPE_CHECKING, NamedTuple

from tidings.core.errors import Unavailable
from tidings.core.model.feeds import STATE
from tidings.core.model.pages import filler
from tidings.core.replication.relay import Wanted
from tidings.server.processes import Problem
from tidings.server.sqlite.database import FILE_MODE

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Mapping, Sequence
    from pathlib import Path

    from tidings.core.effects import Clock
    from tidings.core.log.stores import Checkpoints
    from tidings.core.maintenance.restore import Restorer
    from tidings.core.model.pages import Page
    from tidings.core.replication.relay import RelayStore
    from tidings.server.sqlite.database import Database
    from tidings.server.sqlite.log import Numbers, SqliteLog

log = logging.getLogger(__name__)
SUFFIX = ".started"  # ends the name of the small file next to the data file
HEADS_SUFFIX = ".heads"  # ends the name of the file with the last page of each feed


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """
    A repair that fills unwritten page numbers.

    *page_ms* is the retention of a page. The *chained* feeds are skipped, because their pages come
    from their upstream.
    """

    database: Database
    log: SqliteLog
    checkpoints: Checkpoints
    chained: Container[str]
    clock: Clock
    page_ms: int

    def unwritten(self, feed: str) -> Sequence[Numbers]:
        """Return the numbers that will never get a page; empty for a chained feed."""
        return () if feed in self.chained else self.log.missing(feed, self._handled(feed))

    def fill(self, feed: str) -> Sequence[Numbers]:
        """
        Write an empty page under each unwritten number; return those numbers.

        Raises:
            Unavailable: the disk is full or does not answer; nothing was written.
        """
        with self.database.transaction():
            holes, now_ms = self.unwritten(feed), self.clock()
            for hole in holes:
                # Cursors contain the time of their page, so fillers get that of the next page.
                beyond = self.log.read(feed, hole.last, 1)
                at_ms = beyond[0].at_ms if beyond else now_ms
                expires_ms = now_ms + self.page_ms
                numbers = range(hole.first, hole.last + 1)
                self.log.fill(
                    feed, [filler(each, at_ms=at_ms, expires_ms=expires_ms) for each in numbers]
                )
            return holes

    def end(self, feed: str) -> int:
        """Return the last page that a reader of *feed* can reach from the state's checkpoint."""
        missing = self.log.missing(feed, self._handled(feed))
        return missing[0].first - 1 if missing else self.log.head(feed)

    def _handled(self, feed: str) -> int:
        state = self.checkpoints.checkpoints(feed).get(STATE, 0)
        return max(state, self.log.floor(feed) - 1)


class Start(NamedTuple):
    """
    A start at *at_ms*: its *id*, and the modification time of the file next to the data file.

    The id is empty in a backup that was made at *at_ms*, and in a file that no server has started
    on.
    """

    id: str
    changed_ns: int
    at_ms: int

    def matches(self, found_id: str, changed_ns: int) -> bool:
        """Return True if the file next to the data file was written by this start."""
        return self.id != "" and (self.id, self.changed_ns) == (found_id, changed_ns)


class SqliteStarts:
    def __init__(self, database: Database) -> None:
        self.database = database

    def last(self) -> Start | None:
        """Return the last start; None for a new file, which no server has written to."""
        with self.database.reading() as sql:
            row = sql.execute("SELECT id, changed_ns, at_ms FROM starts").fetchone()
        if row is not None:
            return Start(*row)
        return Start("", 0, 0) if self.heads() else None

    def put(self, start: Start) -> None:
        with self.database.transaction() as sql:
            sql.execute("DELETE FROM starts")
            sql.execute("INSERT INTO starts VALUES (?, ?, ?)", start)

    def heads(self) -> dict[str, int]:
        """Return the last page number of each feed that has a log."""
        with self.database.reading() as sql:
            return dict(sql.execute("SELECT feed, page FROM heads").fetchall())


class HeadFile:
    """
    The last page of each feed, in the file *path*.

    A page is recorded after its commit and before it is acknowledged, in memory that maps the file.
    So the file is never ahead of the data, and is complete if the process was killed. Its first
    line is its own inode. If the inode differs, the file was replaced, so the folder was restored.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._memory: mmap | None = None
        self._offsets: dict[str, int] = {}

    def read(self) -> dict[str, int] | None:
        """Return the last page of each feed; None if the file was replaced, {} if it is missing."""
        try:
            inode, *lines = self._path.read_text().splitlines()
            pages = {feed: int(page) for page, feed in (line.split() for line in lines)}
            return pages if int(inode) == self._path.stat().st_ino else None
        except FileNotFoundError:  # the data is of an earlier release
            return {}
        except ValueError:
            return None

    def begin(self, heads: Mapping[str, int]) -> None:
        """
        Write the file with *heads*, the feeds whose pages `record` records from now on.

        Raises:
            OSError: the file cannot be written.
        """
        part = self._path.with_name(f"{self._path.name}.part")
        part.unlink(missing_ok=True)
        offsets: dict[str, int] = {}
        with os.fdopen(
            os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE), "w+b"
        ) as file:
            file.write(b"%d\n" % os.fstat(file.fileno()).st_ino)
            for feed, page in heads.items():
                offsets[feed] = file.tell()
                file.write(b"%20d %s\n" % (page, feed.encode()))
            file.flush()
            os.fsync(file.fileno())
            self._memory, self._offsets = mmap(file.fileno(), 0), offsets
        part.replace(self._path)

    def record(self, pages: Sequence[tuple[str, Page]]) -> None:
        """Record the last page of each feed in *pages*, which are on disk."""
        for feed, number in {feed: page.number for feed, page in pages}.items():
            at = self._offsets.get(feed)
            if at is not None and self._memory is not None:
                self._memory[at : at + 20] = b"%20d" % number


@dataclass(slots=True, kw_only=True)
class Generations:
    """The generations of the data file *path*; *chained* are the feeds that the settings chain."""

    path: Path
    starts: SqliteStarts
    restorer: Restorer
    relays: RelayStore
    chained: Collection[str]
    clock: Clock
    _noted: Mapping[str, int] = field(default_factory=dict)
    _heads: HeadFile = field(init=False)

    def __post_init__(self) -> None:
        self._heads = HeadFile(self.path.with_name(self.path.name + HEADS_SUFFIX))

    def begin(self, feeds: Collection[str]) -> None:
        """
        Record this start; first begin a new generation of all feeds if the data file was restored.

        If a start cannot be recorded, as on a full disk, the next start raises a false alarm.

        Raises:
            Problem: the data file was restored, and the new generation cannot be started.
        """
        last = self.starts.last()
        matches = last is None or (last.matches(*_read(self._mark)) and self._has_all_pages())
        restored = None if matches else last
        try:
            self._note(feeds, restored)
            self._heads.begin(dict.fromkeys(feeds, 0) | self.starts.heads())
        except (OSError, Unavailable) as error:
            if restored is not None:
                raise Problem(
                    f"{self.path} was restored or copied, and that cannot be noted: {error}"
                ) from error
            log.warning("%s cannot be written: %s", self._mark, error)

    def renew(self) -> None:
        """
        Record that the logs have grown, so that an earlier copy of the data file is recognized.

        Raises:
            OSError: the file next to the data file cannot be written.
            Unavailable: the database does not answer.
        """
        if self.starts.heads() != self._noted:
            self._note((), None)

    def record(self, pages: Sequence[tuple[str, Page]]) -> None:
        """Record the *pages* of a commit, so that a copy made before it is recognized."""
        self._heads.record(pages)

    def _has_all_pages(self) -> bool:
        """Return True if no recorded page is missing at the end of the data file."""
        recorded, heads = self._heads.read(), self.starts.heads()
        return recorded is not None and all(
            page <= heads.get(feed, 0) or self._is_chained(feed) for feed, page in recorded.items()
        )

    def _is_chained(self, feed: str) -> bool:
        relay = self.relays.relay(feed)
        is_chained = feed in self.chained or relay.version > 0
        return is_chained and relay.wanted is not Wanted.PROMOTED

    @property
    def _mark(self) -> Path:
        return self.path.with_name(self.path.name + SUFFIX)

    def _note(self, feeds: Collection[str], restored: Start | None) -> None:
        fresh = _write(self._mark)
        with self.starts.database.transaction():
            if restored is not None:
                for feed in sorted({*feeds, *self.starts.heads()}):
                    self._begin(feed, restored)
            self.starts.put(Start(*fresh, self.clock()))
        self._noted = self.starts.heads()

    def _begin(self, feed: str, last: Start) -> None:
        """
        Begin a new generation of *feed*; do nothing for a chained feed.

        A chained feed gets its pages with their numbers from its upstream.
        """
        if self._is_chained(feed):
            return
        hint = self.restorer.reader.checkpoints.checkpoints(feed).get(STATE, 0)
        plan = self.restorer.plan(feed, None, copied_ms=last.at_ms, hint=hint)
        self.restorer.restore(feed, plan)
        log.warning(
            "%s: the data file was restored or copied. The log ends with page %d and continues"
            " after page %d. Readers that have seen later pages are notified that those are lost",
            feed,
            plan.kept.page,
            plan.end,
        )


def _read(mark: Path) -> tuple[str, int]:
    """Return the id in the file *mark* and when it was changed; ("", 0) if it is missing."""
    try:
        return mark.read_text(), mark.stat().st_ctime_ns
    except FileNotFoundError:
        return "", 0


def _write(mark: Path) -> tuple[str, int]:
    """Write a new id into the file *mark*; return the id, and the file's modification time."""
    part = mark.with_name(f"{mark.name}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    with os.fdopen(os.open(part, flags, FILE_MODE), "w") as file:
        file.write(secrets.token_hex(16))
        file.flush()
        os.fsync(file.fileno())
    part.replace(mark)
    return _read(mark)

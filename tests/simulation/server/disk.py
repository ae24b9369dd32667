"""The disk of a simulated server: statements that fail, and what a kill or a loss of power leaves.

Files are real ones in a temporary folder. A kill leaves them as they are at that moment. A loss of
power takes the writes that were not synced, some of them or all: a commit syncs the write-ahead
log only on a connection with `synchronous=FULL`.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from greenlet import GreenletExit

from tests.simulation.server.machine import OWNER
from tidings.server.sqlite.database import MIGRATIONS

if TYPE_CHECKING:
    from tests.simulation.server.world import Process

FILE = "feed.db"
_PARTS = ("", "-wal")
_STATEMENT_US, _SLOW_US = 40, 5_000
_FULL = 2  # https://www.sqlite.org/pragma.html#pragma_synchronous
_PAGE, _SECTOR = 4096, 512


def connect(path: Path | str, **named: Any) -> sqlite3.Connection:
    """Implement `sqlite3.connect`, for a path or a URI, for the process that runs."""
    process: Process = OWNER.get()
    connection: Connection = sqlite3.connect(path, factory=Connection, **named)
    connection.process, connection.is_data = process, Path(urlsplit(str(path)).path).name == FILE
    machine = process.machine
    wall_s = lambda *_: str((machine.wall_us + machine.now_us) // 10**6)  # noqa: E731
    connection.create_function("strftime", 2, wall_s)
    process.connections.append(connection)
    return connection


class Connection(sqlite3.Connection):
    """A connection with statements that take time, may fail, and may be the last of a process."""

    process: Process
    is_data = False

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        self._before(sql)
        cursor = super().execute(sql, *values)
        if sql == "COMMIT" and self.is_data:
            self.process.at_statement("after COMMIT")
            self.process.disk.committed(self)
        if sql in _SYNCING and self.is_data:
            self.process.disk.committed(self)
        return cursor

    def executescript(self, sql: str) -> sqlite3.Cursor:
        cursor = super().executescript(sql)
        if self.is_data:
            self.process.disk.committed(self)
        return cursor

    def executemany(self, sql: str, values: Any) -> sqlite3.Cursor:
        self._before(sql)
        return super().executemany(sql, values)

    def _before(self, sql: str) -> None:
        process = self.process
        if process.dead:
            raise GreenletExit
        process.machine.now_us += _STATEMENT_US
        if process.machine.current is not None:
            process.machine.preempt()
        if not self.is_data:
            return
        process.at_statement(sql)
        if sql == "COMMIT" and process.disk.is_slow and self.in_transaction:
            if process.machine.current is None:
                process.machine.now_us += _SLOW_US
            else:
                process.machine.sleep(_SLOW_US / 1e6)
        kind = process.disk.fails(sql)
        if kind:
            if self.in_transaction and kind in _UNDONE:
                super().execute("ROLLBACK")
            error = sqlite3.OperationalError(_TEXTS[kind])
            error.sqlite_errorname = kind
            raise error


# A checkpoint syncs the data before it truncates the log, and VACUUM commits.
_SYNCING = {"PRAGMA wal_checkpoint(TRUNCATE)", "VACUUM"}
_UNDONE = {"SQLITE_FULL", "SQLITE_IOERR_WRITE"}  # then SQLite undoes the whole transaction
_TEXTS = {
    "SQLITE_IOERR_ROLLBACK": "disk I/O error",
    "SQLITE_FULL": "database or disk is full",
    "SQLITE_IOERR_WRITE": "disk I/O error",
    "SQLITE_IOERR_READ": "disk I/O error",
}


class Disk:
    """The files of one server, in *folder*; *world* has the faults."""

    def __init__(self, folder: Path, world: Any) -> None:
        self.folder, self._world = folder, world
        self.path = folder / FILE
        self.is_full = self.is_slow = False
        self._synced: dict[str, bytes] = {}
        self.image: dict[str, bytes] = {}

    def fails(self, sql: str) -> str:
        """Return the error of SQLite that the statement meets, if any."""
        faults = self._world.faults
        if self._world.disk is not self:  # it is that of a copy
            return ""
        verb = sql.lstrip().split(" ", 1)[0]
        if verb in ("SELECT", "WITH"):
            serves = self._world.process is not None  # most errors would only delay its start
            kind = "read_error" if serves else "read_error_at_start"
            return "SQLITE_IOERR_READ" if faults.strikes(kind) else ""
        if verb == "ROLLBACK":
            return "SQLITE_IOERR_ROLLBACK" if faults.strikes("rollback_error") else ""
        if verb not in ("INSERT", "UPDATE", "DELETE", "COMMIT"):
            return ""
        if self.is_full and faults.strikes("full_write"):
            return "SQLITE_FULL"
        return "SQLITE_IOERR_WRITE" if faults.strikes("write_error") else ""

    def committed(self, connection: sqlite3.Connection) -> None:
        """Note what a commit has synced, and the pages that it wrote."""
        sql = sqlite3.Connection.execute
        if sql(connection, "PRAGMA query_only").fetchone() == (1,):
            return
        if sql(connection, "PRAGMA synchronous").fetchone() == (_FULL,):
            self._synced = self.read()
        version = sql(connection, "PRAGMA user_version").fetchone()
        if version == (len(MIGRATIONS),) and self._world.disk is self:
            self._world.written(connection)

    def read(self) -> dict[str, bytes]:
        """Return the contents of the data file and its write-ahead log."""
        files = {part: self.folder / f"{FILE}{part}" for part in _PARTS}
        return {part: path.read_bytes() for part, path in files.items() if path.exists()}

    def crash(self, random: Random, *, power: bool) -> None:
        """Note what stays on disk after a kill, or after a loss of *power*, at this moment."""
        self.image = self.read()
        if not power:
            return
        old, new = self._synced.get("", b""), self.image[""]
        if not old:
            self.image = {}  # the rollback journal of the first transaction empties the file
        elif old != new:  # a checkpoint writes the data when the log is synced
            self.image[""] = _mixed(old, new, _PAGE, random)
        elif "-wal" in self.image:
            log = self._synced.get("-wal", b"")
            self.image["-wal"] = _mixed(log, self.image["-wal"], _SECTOR, random)

    def restart(self) -> None:
        """Leave what stayed: closing the connections of the dead process has changed the files."""
        self.write(self.image)

    def write(self, files: dict[str, bytes]) -> None:
        """Write the data file and its write-ahead log."""
        for part in (*_PARTS, "-shm"):
            (self.folder / f"{FILE}{part}").unlink(missing_ok=True)
        for part, content in files.items():
            (self.folder / f"{FILE}{part}").write_bytes(content)
        self._synced = dict(files)


def _mixed(old: bytes, new: bytes, unit: int, random: Random) -> bytes:
    """Return *old* with a part of the writes that lead to *new*: none, a prefix, any units."""
    if old == new:
        return new
    kind, size = random.randrange(3), max(len(old), len(new))
    old, new = old.ljust(size, b"\0"), new.ljust(size, b"\0")
    if kind == 0:
        return old
    if kind == 1:
        cut = random.randrange(size)
        return new[:cut] + old[cut:]
    starts = range(0, size, unit)
    return b"".join(random.choice((old, new))[at : at + unit] for at in starts)

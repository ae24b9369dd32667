"""The problems of a database file that an operator has to solve.

Such a problem is logged once, and reported by `/health` and `/status`. SQLite continues to write to
a file that was moved or removed, and nothing of that is there after a restart. So the files are
checked after each commit and before it is acknowledged. Data can only be lost if a file is removed
after this check, like data that is removed after the acknowledgement.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from contextlib import suppress
from itertools import repeat
from threading import Thread
from typing import TYPE_CHECKING

from tidings.core.errors import (
    DISK_FULL,
    STORAGE_DAMAGED,
    STORAGE_FAILED,
    STORAGE_MOVED,
    STORAGE_READ_ONLY,
    StorageFailed,
    Unavailable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

log = logging.getLogger(__name__)

IN_USE = "another process serves this file"
# The codes of errors by SQLite's extended or primary code. A disk that cannot read is like a
# damaged file: other parts of the file can be used.
_CODES = {
    sqlite3.SQLITE_FULL: DISK_FULL,
    sqlite3.SQLITE_READONLY: STORAGE_READ_ONLY,
    sqlite3.SQLITE_CORRUPT: STORAGE_DAMAGED,
    sqlite3.SQLITE_NOTADB: STORAGE_DAMAGED,
    sqlite3.SQLITE_IOERR_READ: STORAGE_DAMAGED,
    sqlite3.SQLITE_IOERR_SHORT_READ: STORAGE_DAMAGED,
    sqlite3.SQLITE_IOERR: STORAGE_FAILED,
    sqlite3.SQLITE_CANTOPEN: STORAGE_FAILED,
    sqlite3.SQLITE_PERM: STORAGE_FAILED,
}
# While the disk has less free space than the write-ahead log has bytes, the log is copied into the
# file and truncated at this size. Otherwise it takes the last space, which a later copy would need.
WAL_BYTES_SMALL = 1024 * 1024
SIZES_UNKNOWN = (0, 0)  # of the database and its write-ahead log
_GONE = (0, 0)  # the identity of no file
TRIAL_BYTES = 64 * 1024  # size of a trial write, like a large post
TRIAL_EVERY_S = 0.25  # between two trial writes, because each health check may cause one


class StorageMonitor:
    """The state of the files of the database *path*.

    *problem* is an error that prevents writes, *damage* an error of a part of the file. Call `open`
    when the files exist. *connect* opens a connection that can be interrupted. If *waits* returns
    True, a damaged place is searched before the error is raised.
    """

    def __init__(
        self, path: Path, connect: Callable[[], sqlite3.Connection], waits: Callable[[], bool]
    ) -> None:
        self._path, self._connect, self._waits = path, connect, waits
        self.problem: StorageFailed | None = None
        self.damage: StorageFailed | None = None
        self._tried_s = -TRIAL_EVERY_S
        self._folder = str(path.parent)
        self._identities: dict[str, tuple[int, int]] = {}
        # The sizes of the database and its write-ahead log, which no other program may reduce.
        self.sizes: Sequence[int] = SIZES_UNKNOWN

    def open(self) -> None:
        """Remember which files are in use. They must exist."""
        files = (f"{self._path}{suffix}" for suffix in ("", "-wal", "-shm", "-lock"))
        for file in filter(os.path.exists, files):
            status = os.stat(file)
            self._identities[file] = status.st_dev, status.st_ino

    def check(self, least: Iterable[int] = repeat(0)) -> Sequence[int]:
        """Check that the files are in place; return the sizes of the database and its log.

        With *least*, check only the first files, and that they are not smaller.

        Raises:
            StorageFailed: a file was moved, removed, replaced or truncated.
        """
        sizes: list[int] = []
        for (file, identity), size in zip(self._identities.items(), least, strict=False):
            found = _GONE
            with suppress(OSError):
                status = os.stat(file)
                found = status.st_dev, status.st_ino
                sizes.append(status.st_size)
                if found == identity and status.st_size < size:
                    found = self._identities[file] = _GONE  # until a restart
            if found != identity:
                raise self.note(StorageFailed(STORAGE_MOVED, os.path.basename(file)))
        return sizes[:2]

    def check_writable(self) -> Sequence[int]:
        """Check the files, and that a server could start with them; return the same as `check`.

        Raises:
            StorageFailed: see `check`, or a file or the folder is read-only.
        """
        sizes = self.check()
        for path in (self._folder, *self._identities):
            if not os.access(path, os.W_OK):
                raise self.note(StorageFailed(STORAGE_READ_ONLY, self._path.name))
        return sizes

    def translate(self, error: sqlite3.Error) -> Unavailable:
        """Return *error* as an error of Tidings, and keep it if it needs an operator."""
        return self.note(translate(error, self._path.name))

    def translate_backup(self, error: sqlite3.Error) -> Unavailable:
        """Do the same in a backup. A full disk of its target is no problem of this file."""
        translated = translate(error, "the backup")
        return self.translate(error) if translated.code == STORAGE_DAMAGED else translated

    def note(self, error: Unavailable) -> Unavailable:
        """Keep *error* if it needs an operator, and log it if it is new; return it."""
        if not isinstance(error, StorageFailed):
            return error
        if error.code != STORAGE_DAMAGED:
            if self.problem is None or self.problem.code != error.code:
                self._log(error)
            self.problem = error
            return error
        if self.damage is None:
            self.damage = error
            self._log(error)
            search = Thread(target=self.find_damage, name="find-damage", daemon=True)
            search.start()
            if self._waits():
                search.join()
        return self.damage

    def _log(self, error: StorageFailed) -> None:
        if not self._waits():  # a command only reports the error that is raised
            log.error("%(error)s", {"error": error})

    def find_damage(self) -> None:
        """Set *damage* to an error that names all damaged tables. This reads the whole file."""
        found: list[str] = []
        with suppress(sqlite3.Error, Unavailable):
            sql = self._connect()
            for (table,) in sql.execute("SELECT name FROM sqlite_master WHERE type = 'table'"):
                try:
                    (text,) = sql.execute(f"PRAGMA quick_check('{table}')").fetchone()
                except sqlite3.DatabaseError as error:
                    text = str(error)
                if text not in ("ok", "interrupted"):  # interrupted: the server stops
                    found.append(f"table {table} ({text.splitlines()[-1]})")
            sql.close()
        if found:
            self.damage = StorageFailed(STORAGE_DAMAGED, f"{self._path.name}, {', '.join(found)}")
            self._log(self.damage)

    def find(self, try_to_write: Callable[[], object]) -> StorageFailed | None:
        """Return the reason why nothing can be stored now, or None.

        If a write has failed, call *try_to_write*, at most once in `TRIAL_EVERY_S`.
        """
        with suppress(Unavailable):
            self.check_writable()
            problem, now_s = self.problem, time.monotonic()
            if problem is not None and problem.code != STORAGE_MOVED:
                if now_s < self._tried_s + TRIAL_EVERY_S:
                    return problem
                self._tried_s = now_s
                try_to_write()
            if problem is not None:
                log.warning("the problem has ended: %(error)s", {"error": problem})
            self.problem = None
        return self.problem

    def is_space_short(self) -> bool:
        """Return True if the write-ahead log is large, and larger than the free space."""
        wal_bytes = self.sizes[-1]
        if wal_bytes <= WAL_BYTES_SMALL:
            return False
        try:
            disk = os.statvfs(self._folder)
        except OSError:
            return False
        return disk.f_bavail * disk.f_frsize < wal_bytes


class translate_errors:
    """Raise the errors of SQLite inside the context as *translate* returns them.

    This is a class, because a context manager from a generator takes four times as long, and each
    read enters one.

    Raises:
        Unavailable: a statement failed; `StorageFailed` if an operator has to act.
    """

    def __init__(self, translate: Callable[[sqlite3.Error], Unavailable]) -> None:
        self._translate = translate

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, sqlite3.Error):
            raise self._translate(error) from error


def translate(error: sqlite3.Error, name: str) -> Unavailable:
    """Return *error*, an error of the file *name*, as an error of Tidings."""
    number = getattr(error, "sqlite_errorcode", 0)  # 0: an error of Python's module
    if not number and str(error).startswith("Could not decode"):
        return StorageFailed(STORAGE_DAMAGED, name)  # the message contains data
    code = _CODES.get(number) or _CODES.get(number & 0xFF)
    if code is None:
        return Unavailable(f"the database: {reason(error)}")
    return StorageFailed(code, name, str(error))


def reason(error: Exception) -> str:
    """Return the message of *error*, or a clearer one if the file is locked."""
    if getattr(error, "sqlite_errorname", "") == "SQLITE_BUSY":
        return IN_USE
    return str(error)

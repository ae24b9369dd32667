"""
One file of SQLite: who may open it, its schema, its transactions.

Caches and leases of a feed assume one process, so a lock on a file next to it keeps others out.
SQLite's write-ahead log with `synchronous=FULL` makes a commit durable before it returns
(https://www.sqlite.org/pragma.html#pragma_synchronous), and a backup reads while others write.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from contextlib import closing, contextmanager, suppress
from threading import Lock, get_ident
from typing import TYPE_CHECKING

from tidings.core.errors import Unavailable
from tidings.server.loop_guard import check_may_block

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Set
    from pathlib import Path

# Each entry takes a file from the version that is its index to the next one. An entry that was
# released never changes.
MIGRATIONS = (
    """
    CREATE TABLE pages (
        feed TEXT, page INTEGER, body, append_id TEXT, at_ms INTEGER, expires_ms INTEGER,
        slots TEXT, PRIMARY KEY (feed, page));
    CREATE TABLE heads (
        feed TEXT PRIMARY KEY, page INTEGER DEFAULT 0, operations INTEGER DEFAULT 0,
        floor INTEGER DEFAULT 1);
    CREATE TABLE rows (
        feed TEXT, bucket INTEGER, key TEXT, page INTEGER, slot INTEGER, at_ms INTEGER, line TEXT,
        expires_ms INTEGER, PRIMARY KEY (feed, bucket, key)) WITHOUT ROWID;
    CREATE TABLE removed_parents (
        feed TEXT, page INTEGER, body, expires_ms INTEGER, PRIMARY KEY (feed, page)) WITHOUT ROWID;
    CREATE TABLE summaries (
        feed TEXT, last INTEGER, first INTEGER, bits BLOB, expires_ms INTEGER,
        PRIMARY KEY (feed, last)) WITHOUT ROWID;
    CREATE TABLE claims (
        feed TEXT, key TEXT, fingerprint TEXT, append_id TEXT, page INTEGER, expires_ms INTEGER,
        PRIMARY KEY (feed, key)) WITHOUT ROWID;
    CREATE TABLE followers (
        feed TEXT, name TEXT, checkpoint INTEGER, operations INTEGER,
        PRIMARY KEY (feed, name)) WITHOUT ROWID;
    CREATE TABLE counts (
        feed TEXT PRIMARY KEY, refused INTEGER DEFAULT 0, connections INTEGER DEFAULT 0,
        sent INTEGER DEFAULT 0) WITHOUT ROWID;
    CREATE TABLE clients (
        feed TEXT, place TEXT, clients INTEGER, until_ms INTEGER,
        PRIMARY KEY (feed, place)) WITHOUT ROWID;
    CREATE TABLE documents (
        kind TEXT, feed TEXT, name TEXT, version INTEGER, body TEXT,
        PRIMARY KEY (kind, feed, name)) WITHOUT ROWID;
    """,
    "ALTER TABLE heads ADD COLUMN successor TEXT DEFAULT ''",
    "ALTER TABLE pages ADD COLUMN trace TEXT DEFAULT ''",
    """
    ALTER TABLE followers ADD COLUMN note BLOB DEFAULT x'';
    CREATE TABLE sums (feed TEXT PRIMARY KEY, version INTEGER, body BLOB) WITHOUT ROWID;
    """,
    """
    CREATE TABLE extents (
        feed TEXT, stream TEXT, page INTEGER, slot INTEGER, seconds INTEGER, before_page INTEGER,
        before_slot INTEGER, before_seconds INTEGER, PRIMARY KEY (feed, stream, page)
        ) WITHOUT ROWID;
    CREATE INDEX extents_by_page ON extents (feed, page);
    """,
    """
    ALTER TABLE pages ADD COLUMN skipped INTEGER DEFAULT 0;
    CREATE TABLE starts (id TEXT, changed_ns INTEGER, at_ms INTEGER);
    """,
)
# Tables whose rows end at `expires_ms`; 0: never. DynamoDB deletes them by itself, SQLite does not.
_EXPIRING = {
    # A page that the state has not handled stays: a number without a page was never written.
    "pages": "page <= (SELECT checkpoint FROM followers AS f"
    " WHERE f.feed = pages.feed AND f.name = 'state')"
    " OR page < (SELECT floor FROM heads AS h WHERE h.feed = pages.feed)",
    **dict.fromkeys(("rows", "removed_parents", "summaries", "claims"), "true"),
}
_GIVEN_UP = "the database gave up a transaction"
# Rows of the state lie at random places of the file: what is kept of it need not be read and
# written again for each. With SQLite's own 2 MB a row took twice as long.
CACHE_KIB = 32 * 1024
CHECKPOINT_PAGES = 4_000  # 16 MB of the write-ahead log: a page that changed again is copied once
FILE_MODE = 0o600  # of a database, and of a copy: they hold the data and the secrets of feeds
WAL_BYTES_KEPT = 64 * 1024 * 1024  # of the write-ahead log's file, which a long backup makes grow
SHARED_WAIT_S = 2.0  # for another process's turn: each writes some bytes
BACKUP_STEPS = 10_000  # of SQLite between two looks whether the file is to be closed: some 1 ms
_IN_USE = "another process serves this file"


class CannotOpen(Exception):
    """The file cannot be served; the text says why, in one sentence."""


class Database:
    """
    The file at *path*, created where there is none.

    *before_commit* is called within each transaction, as its last part, and what it returns once
    the transaction is on disk. *committed* is called after that with the feeds whose log has grown,
    in the thread that committed. A *shared* file is
    opened by several processes, which take turns.

    The event loop never waits for the turn: `transaction`, `reading` and `close` are for other
    threads, or for a job within `Writer`. Elsewhere in the loop they raise `LoopWouldBlock`.

    Raises:
        CannotOpen: another process holds it, a newer release wrote it, or it is no such file.
    """

    def __init__(self, path: Path, *, shared: bool = False) -> None:
        self.before_commit: Callable[[sqlite3.Connection], Callable[[], None]] = _write_nothing
        self.committed: Callable[[Set[str]], None] = _nothing
        self._grown: set[str] = set()
        self._turn = Lock()
        self._owner = 0  # the thread whose turn it is
        self._path, self._closed = path, False
        self._lock = None if shared else _locked(path)
        try:
            _make_private(path)
            self._connection = _connected(path, shared=shared)
        except sqlite3.Error as error:
            self._unlock()
            raise CannotOpen(f"{path}: {_reason(error)}") from error
        try:
            self._migrate(path)
        except BaseException:
            self._connection.close()
            self._unlock()
            raise

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """
        All statements inside are on disk when it ends, or none where an exception leaves it.

        A transaction inside another one is part of it. Threads take turns.

        Raises:
            Unavailable: the disk is full or does not answer; nothing was written.
        """
        if self._owner == get_ident():
            yield self._connection
            return
        self.acquire()
        with _translated():
            self.begin()
            try:
                yield self._connection
            except BaseException:
                self.rollback()
                raise
            self.commit()

    @property
    def is_writing(self) -> bool:
        """Whether this thread is in a transaction: no other thread writes until it ends."""
        return self._owner == get_ident()

    # The parts of a transaction, for who begins it in one thread and commits it in another.

    def acquire(self, *, wait: bool = True) -> bool:
        """Take the turn; return False if another thread has it and *wait* is False."""
        if wait:
            check_may_block()
        return self._turn.acquire(blocking=wait)

    def begin(self) -> None:
        """
        After `acquire`: begin a transaction of this thread.

        Raises:
            Unavailable: the disk does not answer, or another program has locked the file. The turn
                is the next thread's.
        """
        self._owner, self._grown = get_ident(), set()
        try:
            with _translated():
                if self._connection.in_transaction:  # of a rollback that failed
                    self._connection.execute("ROLLBACK")
                self._connection.execute("BEGIN IMMEDIATE")
        except BaseException:
            self._let_go()
            raise

    def begin_again(self) -> None:
        """Undo what this transaction wrote, and keep the turn."""
        self._grown = set()
        with _translated():
            if self._connection.in_transaction:  # SQLite ends one itself on a full disk
                self._connection.execute("ROLLBACK")
            self._connection.execute("BEGIN IMMEDIATE")

    def pause(self) -> None:
        """Keep the transaction, of which no statement follows until `commit` or `rollback`."""
        self._owner = 0

    def rollback(self) -> None:
        """Undo the transaction and give the turn away, also if SQLite fails to undo it."""
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        finally:
            self._let_go()

    def commit(self) -> None:
        """
        It is on disk, and the turn is the next one's.

        Raises:
            Unavailable: it is not, and nothing of it was written.
        """
        self._owner, grown = get_ident(), self._grown
        try:
            with _translated():
                written = self.before_commit(self._connection)
                self._connection.execute("COMMIT")
                written()
        finally:
            self.rollback()
        if grown:
            self.committed(grown)

    def _let_go(self) -> None:
        self._owner = 0
        self._turn.release()

    def grew(self, feed: str) -> None:
        """Within a transaction: the log of *feed* has another page."""
        self._grown.add(feed)

    @contextmanager
    def part(self) -> Iterator[None]:
        """
        Within a transaction: what is written inside is undone alone where an exception leaves it.

        Raises:
            Unavailable: a statement has no room on the disk, or SQLite gave the whole transaction
                up.
        """
        if not self._connection.in_transaction:
            raise Unavailable(_GIVEN_UP)
        self._connection.execute("SAVEPOINT part")
        try:
            with _translated():
                yield
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK TO part")
            raise
        finally:
            if self._connection.in_transaction:
                self._connection.execute("RELEASE part")
        if not self._connection.in_transaction:
            raise Unavailable(_GIVEN_UP)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """
        For statements that change nothing; each sees what was committed before it.

        Raises:
            Unavailable: the disk does not answer.
        """
        if self._owner == get_ident():
            yield self._connection
            return
        self.acquire()
        with _translated():
            self._owner = get_ident()
            try:
                yield self._connection
            finally:
                self._let_go()

    def back_up(self, target: Path) -> None:
        """
        Write what is committed by now to the new file *target*, while others read and write.

        Raises:
            Unavailable: it cannot be written whole, or `close` ended it; nothing is left of it.
        """
        part = target.with_name(f"{target.name}.part")
        part.unlink(missing_ok=True)
        try:
            _make_private(part)  # VACUUM INTO takes a file that is empty
            with _translated(), closing(self._connected_for_backup()) as sql:
                sql.execute("VACUUM INTO ?", (str(part),))
                # What was written since could not be moved out of the write-ahead log. Move it
                # here, or the next commit, perhaps in the event loop, would.
                sql.execute("PRAGMA wal_checkpoint(PASSIVE)")
            _mark_as_backup(part)
            with part.open("rb") as file:
                os.fsync(file.fileno())
            os.link(part, target)  # which fails where there is one
        except OSError as error:
            raise Unavailable(f"{target}: {error.strerror}") from error
        finally:
            part.unlink(missing_ok=True)

    def delete_expired(self, now_ms: int) -> int:
        """Delete what ended by *now_ms*; how many rows."""
        with self.transaction() as sql:
            return sum(
                sql.execute(
                    f"DELETE FROM {table} WHERE expires_ms > 0 AND expires_ms <= ? AND ({done})",
                    (now_ms,),
                ).rowcount
                for table, done in _EXPIRING.items()
            )

    def close(self) -> None:
        """Interrupt backups and close the file. What was committed stays."""
        self._closed = True
        self.acquire()
        try:
            self._connection.close()
            self._unlock()
        finally:
            self._let_go()

    def _connected_for_backup(self) -> sqlite3.Connection:
        connection = _opened(self._path, SHARED_WAIT_S)
        connection.set_progress_handler(lambda: self._closed, BACKUP_STEPS)
        return connection

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _migrate(self, path: Path) -> None:
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if version > len(MIGRATIONS):
            rule = f"has schema {version}, this release knows {len(MIGRATIONS)}"
            raise CannotOpen(f"{path} {rule}: use the newer release")
        for number, statements in enumerate(MIGRATIONS[version:], version + 1):
            self._connection.executescript(
                f"BEGIN;{statements};PRAGMA user_version = {number};COMMIT;"
            )


def _locked(path: Path) -> int:
    """
    Lock the file next to *path* and return its descriptor, whose end ends the lock.

    It is another file, because to close any descriptor of *path* would end SQLite's own locks.

    Raises:
        CannotOpen: another process holds it, or it cannot be made.
    """
    try:
        descriptor = os.open(path.with_name(f"{path.name}-lock"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise CannotOpen(f"{path}: unable to open its lock: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise CannotOpen(f"{path}: {_IN_USE}") from error
    return descriptor


def _opened(path: Path, wait_s: float) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=wait_s, isolation_level=None, check_same_thread=False)


def _make_private(path: Path) -> None:
    """
    Create *path* empty if it is missing; whatever the umask, only its user may read it.

    SQLite gives the files beside a database the mode that the database has.
    """
    with suppress(OSError):  # SQLite says what is wrong
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))


def _connected(path: Path, *, shared: bool) -> sqlite3.Connection:
    connection = _opened(path, SHARED_WAIT_S if shared else 0)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_KEPT}")
        connection.execute("BEGIN IMMEDIATE")  # refused if a process has locked the file itself
        connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection


def _write_nothing(_: object) -> Callable[[], None]:
    """Add nothing to a transaction, and do nothing after it."""
    return lambda: None


def _mark_as_backup(path: Path) -> None:
    """A server that finds it has to begin a new generation: see `SqliteStarts`."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(
            "BEGIN; DELETE FROM starts;"
            "INSERT INTO starts VALUES ('', 0, strftime('%s', 'now') * 1000); COMMIT;"
        )


def _nothing(_: object) -> None:
    """Where nobody has to know."""


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise Unavailable(f"the database: {_reason(error)}") from error


def _reason(error: sqlite3.Error) -> str:
    """SQLite's own words, but for the one case that names a cause nobody would guess."""
    if error.sqlite_errorname == "SQLITE_BUSY":
        return _IN_USE
    return str(error)

"""One SQLite file: its process lock, its schema and its transactions.

The caches and the leases of a feed assume one process, so a lock on a separate file excludes other
processes. With SQLite's write-ahead log and `synchronous=FULL`, a commit is durable when it returns
(https://www.sqlite.org/pragma.html#pragma_synchronous). With a write-ahead log, a backup can also
read while others write.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections import deque
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial, wraps
from itertools import count, repeat
from threading import Lock, get_ident
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from tidings.core.errors import Unavailable
from tidings.http.outbound.files import lock, publish
from tidings.server.loop_guard import LoopWouldBlock, check_may_block
from tidings.server.processes import Problem
from tidings.server.sqlite.storage import (
    IN_USE,
    SIZES_UNKNOWN,
    TRIAL_BYTES,
    WAL_BYTES_SMALL,
    StorageMonitor,
    reason,
    translate_errors,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tidings.core.errors import StorageFailed
    from tidings.core.model.pages import Page

    Pages = Sequence[tuple[str, Page]]  # each with its feed

# Entry N migrates a file from version N to version N + 1. A released entry never changes.
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
    """
    CREATE TABLE due (feed TEXT PRIMARY KEY, at_ms INTEGER) WITHOUT ROWID;
    CREATE INDEX due_by_time ON due (at_ms);
    INSERT INTO due SELECT feed, 0 FROM heads UNION SELECT feed, 0 FROM documents;
    """,
    """
    CREATE INDEX webhooks ON documents (feed)
        WHERE kind = 'operator-document' AND name = 'webhooks';
    """,
    # Records replace documents; `conversion` moves them.
    """
    CREATE TABLE records (
        kind TEXT, feed TEXT, owner TEXT, name TEXT, body TEXT, expires_ms INTEGER,
        PRIMARY KEY (kind, feed, owner, name)) WITHOUT ROWID;
    DROP INDEX webhooks;
    CREATE INDEX webhooks ON records (feed)
        WHERE kind = 'operator-document' AND name = 'webhooks';
    """,
)
_CREATED = re.compile(r"CREATE TABLE (\w+)")
# The tables with rows that expire at `expires_ms` (0: never), each with its primary key and with a
# further condition for a deletion. SQLite, unlike DynamoDB, does not delete expired rows itself.
_EXPIRING = {
    # Delete only pages that the state has handled. `Recovery` assumes that a number without a page
    # was never written if it is after the last page that the state has handled.
    "pages": (
        "feed, page",
        "page <= (SELECT checkpoint FROM followers AS f"
        " WHERE f.feed = pages.feed AND f.name = 'state')"
        " OR page < (SELECT floor FROM heads AS h WHERE h.feed = pages.feed)",
    ),
    "rows": ("feed, bucket, key", "true"),
    "removed_parents": ("feed, page", "true"),
    "summaries": ("feed, last", "true"),
    "claims": ("feed, key", "true"),
    "records": ("kind, feed, owner, name", "true"),
}
_GIVEN_UP = "the database aborted a transaction"
# The size of the cache of database pages. Rows of the state are at random places of the file, and a
# cached page need not be read and written again for each row. With SQLite's default of 2 MB, a row
# took twice as long.
CACHE_KIB = 32 * 1024
# The size of the write-ahead log, in database pages (16 MB), at which it is copied into the file. A
# page that changed repeatedly is copied once.
CHECKPOINT_PAGES = 4_000
FILE_MODE = 0o600  # the mode of a database and its copies, which have the secrets of feeds
WAL_BYTES_KEPT = 64 * 1024 * 1024  # a write-ahead log that grew during a backup is cut to this size
READERS_KEPT = 8  # maximum number of idle connections for reading; each caches up to 2 MB
SHARED_WAIT_S = 2.0  # maximum wait for a transaction of another process, which writes a few bytes
DELETED_TOGETHER = 250  # expired rows deleted in one transaction, in some 2 ms
BACKUP_STEPS = 10_000  # steps of SQLite, about 1 ms, after which a backup checks for `close`


Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


Store = TypeVar("Store")  # a class with an attribute `_database`


def in_transaction(
    method: Callable[Concatenate[Store, sqlite3.Connection, Arguments], Result],
) -> Callable[Concatenate[Store, Arguments], Result]:
    """Call *method* with a connection, in a transaction of the store's database."""

    @wraps(method)
    def write(store: Store, /, *arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        database: Database = store._database  # type: ignore[attr-defined]
        if database._owner == get_ident():
            return method(store, database._connection, *arguments, **named)
        return database.write(lambda sql: method(store, sql, *arguments, **named))

    return write


class CannotOpen(Problem):
    """The file cannot be opened; the message gives the reason in one sentence."""


@dataclass(frozen=True)
class CommitSteps:
    """The steps of each transaction of a database, in their order.

    If *submit* is set, it runs the writes of all threads as jobs (`Writer.submit`). *check_feed* is
    called with a feed before the first page number of the feed is taken; it raises `FeedDeleted`.
    *write_more* is called before the commit with all pages of the transaction; it may write further
    rows. *count* is called with a feed and the number of its new operations or sent events.

    The others are called when the transaction is on disk. Before another transaction begins:
    *record* with the pages, *record_changed* with the feed and the kind of each changed record.
    Then *committed* with the pages, in the committing thread.
    """

    submit: Callable[[Callable[[], Any]], Any] | None
    check_feed: Callable[[str], object]
    write_more: Callable[[Pages], object]
    count: Callable[..., object]
    record: Callable[[Pages], object]
    record_changed: Callable[[str, str], object]
    committed: Callable[[Pages], object]


def _nothing(*_: object, **counts: int) -> None:
    """Do nothing; a step of a database that no server has opened."""


NO_STEPS = CommitSteps(None, *[_nothing] * 6)


class Database:
    """The file at *path*, created if it is missing.

    A server sets *steps*. A *shared* file is opened by several processes, which take turns.

    One connection writes. `reading` uses other connections, so that readers never wait. The
    database of a server is written by the event loop only, see `CommitSteps.submit`.

    Raises:
        CannotOpen: another process holds the lock, a newer release wrote the file, or the file is
            not a file of Tidings.
    """

    steps: CommitSteps

    def __init__(self, path: Path, *, shared: bool = False) -> None:
        self.steps = NO_STEPS
        self._pages: list[tuple[str, Page]] = []
        self._changed: set[str] = set()  # feeds that this transaction makes due
        # The feeds that were marked in the table `due` since they were settled, each with the
        # number of its last mark.
        self.marks: dict[str, int] = {}
        self._numbers = count(1)
        self._undo: list[Callable[[], object]] = []
        self._then: list[Callable[[], object]] = []
        # Each takes a function of no arguments. `on_commit` calls it once the transaction is on
        # disk, before another one begins. `on_rollback` calls it if the transaction, or the `part`
        # of it, is undone, to restore data in memory.
        self.on_commit, self.on_rollback = self._then.append, self._undo.append
        self._is_prepared = False  # True after `prepare`
        self._turn, self._owner = Lock(), 0  # the lock, and the thread that holds it
        self.path, self._closed = path, False
        self._readers: deque[sqlite3.Connection] = deque()
        self.storage = StorageMonitor(
            path, self._connected_for_backup, lambda: self.steps.submit is None
        )
        self.translating = translate_errors(self.storage.translate)
        self._lock = None if shared else _lock_file(path)
        try:
            _make_private(path)
            self._connection = self._opened(shared=shared)
            self._inner = nullcontext(self._connection)  # for a transaction within a transaction
        except BaseException as error:
            self._unlock()
            if isinstance(error, OSError | sqlite3.Error | CannotOpen):
                raise CannotOpen(f"{path}: {reason(error)}") from error
            raise

    def _opened(self, *, shared: bool) -> sqlite3.Connection:
        self._connection = _connect(self.path, shared=shared)
        try:
            self.storage.open()
            self.storage.sizes = self.storage.check()
            self._save_space()
            self._migrate()
        except BaseException:
            self._connection.close()
            raise
        return self._connection

    def write(self, run: Callable[[sqlite3.Connection], Result]) -> Result:
        """Run the statements of *run* as one transaction; return its result.

        When the call returns, all writes are on disk. On an exception, all are undone. Within
        another transaction, *run* is a part of it.

        Raises:
            Unavailable: the disk is full or does not answer; nothing was written.
        """
        if self.is_writing:
            return run(self._connection)
        if self.steps.submit is not None:
            result: Result = self.steps.submit(partial(self.write, run))
            return result
        with self._outer() as sql:
            return run(sql)

    def transaction(self) -> AbstractContextManager[sqlite3.Connection]:
        """Run the statements inside the context as one transaction, see `write`.

        Threads take turns. On a server, only jobs of the writer may call this method.

        Raises:
            LoopWouldBlock: the caller is not a job of the server's writer.
            Unavailable: the disk is full or does not answer; nothing was written.
        """
        if self.is_writing:
            return self._inner
        if self.steps.submit is not None:
            raise LoopWouldBlock("only jobs of the writer write; use `Database.write`")
        return self._outer()

    @contextmanager
    def _outer(self) -> Iterator[sqlite3.Connection]:
        self.acquire()
        with self.translating:
            self.begin()
            try:
                yield self._connection
            except BaseException:
                self.rollback()
                raise
            self.commit()

    @property
    def is_writing(self) -> bool:
        """Return True if this thread is in a transaction, so that other threads cannot write."""
        return self._owner == get_ident()

    # The steps of a transaction. It may begin in one thread, and be committed in another.

    def acquire(self, *, wait: bool = True) -> bool:
        """Acquire the lock; return False if another thread holds it and *wait* is False."""
        if wait:
            check_may_block()
        return self._turn.acquire(blocking=wait)

    def begin(self) -> None:
        """Begin a transaction of this thread, after `acquire`.

        Raises:
            Unavailable: the disk does not answer, or another program has locked the file. The
                thread then no longer holds the lock of `acquire`.
        """
        self._owner = get_ident()
        try:
            if self.storage.problem is None:
                # Another process may truncate the log of a shared file.
                self.storage.check(self.storage.sizes if self._lock is not None else (0,))
            else:
                self.storage.check_writable()
            if self._connection.in_transaction:  # an earlier rollback has failed
                self._connection.execute("ROLLBACK")
            self._connection.execute("BEGIN IMMEDIATE")
        except BaseException as error:
            self._release()
            if isinstance(error, sqlite3.Error):
                raise self.storage.translate(error) from error
            raise

    def begin_again(self) -> None:
        """Undo the writes of this transaction, and begin a new one without releasing the lock."""
        self._undo_after()
        with self.translating:
            if self._connection.in_transaction:  # SQLite ends the transaction itself on a full disk
                self._connection.execute("ROLLBACK")
            self._connection.execute("BEGIN IMMEDIATE")

    def prepare(self) -> None:
        """Call *write_more*; afterwards only `pause`, `commit` or `rollback` may be called.

        Raises:
            Unavailable: a write failed; the caller has to call `rollback`.
        """
        try:
            self.steps.write_more(self._pages)
            # Store in the table `due` that the sweep has to visit the changed feeds.
            for feed in self._changed:
                if feed not in self.marks:
                    self.on_rollback(partial(self.marks.pop, feed, None))
                    self._connection.execute("INSERT OR REPLACE INTO due VALUES (?, 0)", (feed,))
                self.marks[feed] = next(self._numbers)
        except sqlite3.Error as error:
            raise self.storage.translate(error) from error
        self._is_prepared = True

    def pause(self) -> None:
        """Detach the transaction from this thread, for `commit` or `rollback` by any thread."""
        self._owner = 0

    def rollback(self) -> None:
        """Undo the transaction and release the lock.

        Raises:
            Unavailable: SQLite failed to undo it. The lock is released; `begin` tries again.
        """
        try:
            if self._undo:
                self._undo_after()
            if self._connection.in_transaction:
                with self.translating:
                    self._connection.execute("ROLLBACK")
        finally:
            self._release()

    def commit(self) -> None:
        """Commit the transaction to disk and release the lock.

        Raises:
            Unavailable: the commit failed, and nothing was written; or a file is not in place, so
                the data must not be acknowledged.
        """
        self._owner = get_ident()
        pages: Pages = ()
        try:
            if not self._is_prepared:
                self.prepare()
            try:
                self._connection.execute("COMMIT")
            except sqlite3.Error as error:
                raise self.storage.translate(error) from error
            self.steps.record(self._pages)
            pages = [*self._pages]
            self._undo.clear()
            for each in self._then:
                each()
            if self.storage.sizes[-1] > WAL_BYTES_SMALL:
                self._save_space()
            self.storage.sizes = self.storage.check_writable()
        finally:
            self.rollback()
        if pages:
            self.steps.committed(pages)

    def _save_space(self) -> None:
        """Truncate the write-ahead log if it would take the last space of the disk."""
        if self.storage.is_space_short():
            with suppress(sqlite3.Error):  # there is no space for the copy
                self._truncate()

    def _truncate(self) -> bool:
        self.storage.sizes = SIZES_UNKNOWN
        (busy, *_) = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not busy

    def find_problem(self) -> StorageFailed | None:
        """Return the reason why nothing can be stored now, or None. Do not call it in the loop."""
        return self.storage.find(self._try_to_write)

    def _try_to_write(self) -> None:
        with suppress(Unavailable):
            self.truncate_wal()
        row = f"('', '', zeroblob({TRIAL_BYTES}), '', 0, 1)"  # expired, if the process is killed
        self.write(lambda sql: sql.execute(f"INSERT OR REPLACE INTO claims VALUES {row}"))
        self.write(lambda sql: sql.execute("DELETE FROM claims WHERE feed = '' AND key = ''"))

    def _release(self) -> None:
        self._owner, self._pages, self._changed, self._is_prepared = 0, [], set(), False
        self._then.clear()
        self._turn.release()

    def wrote(self, feed: str, *pages: Page) -> None:
        """Record within a transaction that *pages* were added to the log of *feed*."""
        self._pages.extend(zip(repeat(feed), pages))
        self._changed.add(feed)

    def changed(self, feed: str) -> None:
        """Record within a transaction that the sweep has to visit *feed*, because of a change."""
        self._changed.add(feed)

    def has_changed(self, feed: str) -> bool:
        """Return True if this transaction has changed *feed*; see `changed`."""
        return feed in self._changed

    def _undo_after(self, pages: int = 0, undone: int = 0) -> None:
        """Keep only the first *pages* pages, and call all undo functions but the first *undone*."""
        del self._pages[pages:]
        while len(self._undo) > undone:
            self._undo.pop()()

    @contextmanager
    def part(self) -> Iterator[None]:
        """On an exception, undo the statements inside the context, but not the whole transaction.

        Raises:
            Unavailable: the disk is full, or SQLite aborted the whole transaction.
        """
        if not self._connection.in_transaction:
            raise Unavailable(_GIVEN_UP)
        before = len(self._pages), len(self._undo)
        try:
            self._connection.execute("SAVEPOINT part")
            try:
                yield
            except BaseException:
                self._undo_after(*before)
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK TO part")
                raise
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("RELEASE part")
        except sqlite3.Error as error:
            raise self.storage.translate(error) from error
        if not self._connection.in_transaction:
            raise Unavailable(_GIVEN_UP)

    def reading(self) -> AbstractContextManager[sqlite3.Connection]:
        """Run the statements inside the context, which only read, on one state of the data.

        Statements within a transaction of this thread also see the writes of the transaction.

        Raises:
            Unavailable: the disk does not answer.
        """
        return self._inner if self._owner == get_ident() else self._read_only()

    @contextmanager
    def _read_only(self) -> Iterator[sqlite3.Connection]:
        with self.translating:
            connection = self._reader()
            try:
                connection.execute("BEGIN")
                yield connection
                connection.execute("COMMIT")
            finally:
                self._keep(connection)

    def _reader(self) -> sqlite3.Connection:
        try:
            return self._readers.pop()  # the connection that was used last has the newest cache
        except IndexError:
            pass
        if self._closed:
            raise Unavailable("the database is closed")
        self.storage.check()
        connection = _open(self.path, SHARED_WAIT_S)
        connection.execute("PRAGMA query_only = ON")
        return connection

    def _keep(self, connection: sqlite3.Connection) -> None:
        if connection.in_transaction:  # after an exception
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
        # A transaction that stays open would keep the write-ahead log from being truncated.
        if connection.in_transaction or self._closed or len(self._readers) >= READERS_KEPT:
            connection.close()
        else:
            self._readers.append(connection)

    def back_up(self, target: Path) -> None:
        """Write the committed data to the new file *target*, while others read and write.

        Raises:
            Unavailable: the file cannot be written completely, or `close` interrupted the backup.
                No partial file is left.
            StorageFailed: a part of the data is damaged, which VACUUM may copy without an error.
        """
        self.storage.find_damage()
        if self.storage.damage is not None:
            raise self.storage.damage
        part = target.with_name(f"{target.name}.part")
        part.unlink(missing_ok=True)
        try:
            _make_private(part)  # VACUUM INTO accepts an existing file only if it is empty
            with (
                translate_errors(self.storage.translate_backup),
                closing(self._connected_for_backup()) as sql,
            ):
                sql.execute("VACUUM INTO ?", (str(part),))
                # Writes during the backup stayed in the write-ahead log. Copy them into the
                # file here. Otherwise the next commit would do so, possibly in the event loop.
                sql.execute("PRAGMA wal_checkpoint(PASSIVE)")
                _mark_as_backup(part)
            self.storage.check()
            with part.open("rb") as file:
                os.fsync(file.fileno())
            publish(part, target)
        except OSError as error:
            raise Unavailable(f"{target}: {error.strerror}") from error
        finally:
            part.unlink(missing_ok=True)

    def truncate_wal(self) -> bool:
        """Copy the write-ahead log into the file and truncate it.

        The log may have rows that were changed or deleted long ago. Return False if a reader
        prevents that it is truncated.
        """
        # Most of the log is copied here, because the next commit must not take long.
        self.storage.check()
        with self.translating, closing(_open(self.path, SHARED_WAIT_S)) as sql:
            sql.execute("PRAGMA wal_checkpoint(PASSIVE)")
        done: list[bool] = []
        # After a commit, no transaction is open.
        self.write(lambda _: self.on_commit(lambda: done.append(self._truncate())))
        return any(done)

    def vacuum(self) -> None:
        """Rewrite the whole file without its free space. Nothing else may use the file during that.

        Raises:
            Unavailable: the disk is full or does not answer; the file is as before.
        """
        with self.translating:
            self._connection.execute("VACUUM")
            self._truncate()

    def delete_expired(self, now_ms: int) -> int:
        """Delete the rows that expired by *now_ms*; return their number.

        The rows are found by reading, and deleted in several short transactions.
        """
        deleted = 0
        for table, (key, done) in _EXPIRING.items():
            expired = f"FROM {table} WHERE expires_ms > 0 AND expires_ms <= ? AND ({done})"
            with self.reading() as sql:
                keys = sql.execute(f"SELECT {key} {expired}", (now_ms,)).fetchall()
            here = " AND ".join(f"{column} = ?" for column in key.split(", "))
            rows = [(now_ms, *each) for each in keys]
            for at in range(0, len(rows), DELETED_TOGETHER):
                some = rows[at : at + DELETED_TOGETHER]
                deleted += self._execute_each(f"DELETE {expired} AND {here}", some)
        return deleted

    def _execute_each(self, statement: str, rows: Sequence[tuple[object, ...]]) -> int:
        """Execute *statement* with each of *rows*; return the number of changed rows."""
        return self.write(lambda sql: sql.executemany(statement, rows).rowcount)

    def close(self) -> None:
        """Interrupt backups and close the file. Committed data stays."""
        self._closed = True
        self.acquire()
        try:
            while self._readers:
                self._readers.pop().close()
            self._connection.close()
            self._unlock()
        finally:
            self._release()

    def _connected_for_backup(self) -> sqlite3.Connection:
        self.storage.check()
        connection = _open(self.path, SHARED_WAIT_S)
        connection.set_progress_handler(lambda: self._closed, BACKUP_STEPS)
        return connection

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _migrate(self) -> None:
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if version > len(MIGRATIONS):
            rule = f"has schema {version}, but this release knows {len(MIGRATIONS)}"
            raise CannotOpen(f"{rule}: use the newer release")
        for number, statements in enumerate(MIGRATIONS[version:], version + 1):
            self._connection.executescript(
                f"BEGIN;{statements};PRAGMA user_version = {number};COMMIT;"
            )
        if self._connection.execute("SELECT 1 FROM documents LIMIT 1").fetchone():
            from tidings.server.sqlite.conversion import convert  # files of earlier releases only

            self._connection.execute("BEGIN IMMEDIATE")
            convert(self._connection)
            self._connection.execute("COMMIT")


def _lock_file(path: Path) -> int:
    """Lock a file next to *path* and return its descriptor; closing it releases the lock.

    The lock is on a file of its own, because closing any descriptor of *path* would release
    SQLite's locks.
    """
    try:
        descriptor = os.open(_lock_path(path), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise CannotOpen(f"{path}: unable to open its lock file: {error.strerror}") from error
    try:
        problem = "" if lock(descriptor) else IN_USE
    except OSError as error:
        problem = f"its file system refuses locks ({error.strerror}); use a folder on a local disk"
    if problem:
        os.close(descriptor)
        raise CannotOpen(f"{path}: {problem}")
    return descriptor


def _lock_path(path: Path) -> Path:
    return path.with_name(f"{path.name}-lock")


def _open(path: Path, wait_s: float) -> sqlite3.Connection:
    """Connect to a file that exists: a file that was removed must not be created again, empty."""
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw",
        uri=True,
        timeout=wait_s,
        isolation_level=None,
        check_same_thread=False,
    )


def _make_private(path: Path) -> None:
    """Create *path* as an empty file if it is missing. With any umask, only its owner may read it.

    SQLite creates the files next to a database with the mode of the database.
    """
    with suppress(OSError):  # SQLite reports the error later
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))


def _connect(path: Path, *, shared: bool) -> sqlite3.Connection:
    connection = _open(path, SHARED_WAIT_S if shared else 0)
    try:
        _check_owner(path, connection)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        # Overwrite content within a database page when it is deleted. `SqliteFreeSpace` overwrites
        # the free pages.
        connection.execute("PRAGMA secure_delete = FAST")
        # The copies of pages that a savepoint restores are in memory, not in a temporary file.
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_KEPT}")
        connection.execute("BEGIN IMMEDIATE")  # fails if another program has locked the file
        connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection


def _check_owner(path: Path, connection: sqlite3.Connection) -> None:
    """Check that the file is empty, or has the tables of its schema version."""
    connection.execute("BEGIN")  # another process may migrate a shared file between two reads
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    connection.execute("COMMIT")
    ours = _CREATED.findall("".join(MIGRATIONS[:version]))
    if not tables.issuperset(ours) or (tables and not version):
        _lock_path(path).unlink(missing_ok=True)  # leave nothing next to another program's file
        raise CannotOpen("is a database of another program; Tidings needs a file of its own")


def _mark_as_backup(path: Path) -> None:
    """Mark the file as a backup, from which a server begins a new generation; see `Start`."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(
            "BEGIN; DELETE FROM starts;"
            "INSERT INTO starts VALUES ('', 0, strftime('%s', 'now') * 1000); COMMIT;"
        )

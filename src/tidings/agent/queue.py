"""The queue on disk: a SQLite file shared by the receiver's process and the agent's threads.

A row of `chunks` contains either unchecked datagrams or checked lines that arrived together. A row
of `batches` is a request with its Idempotency-Key. A batch is stored with its key before it is
sent, and does not change afterwards. If the batch is sent again, by this process or its successor,
the request is the same, so the feed appends it only once. Triggers update `totals` on every change.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from tidings.client.files import make_private, private_opener
from tidings.core.limits import REQUEST_BYTES_MAX, REQUEST_OPERATIONS_MAX
from tidings.http.outbound.files import lock

QUEUED_EVENTS_MAX = 100_000  # the default of oplog
QUEUED_BYTES_MAX = 512 * 1024 * 1024  # the size of `QUEUED_EVENTS_MAX` operations of 5 KB
NAME = "queue.sqlite3"
WAIT_S = 5.0  # the longest wait for another thread's transaction, which takes milliseconds
WAL_BYTES_MAX = 64 * 1024 * 1024  # `Store.cut` truncates a longer write-ahead log
LOCK_WAIT_S = 2.0  # the receiver of a killed agent holds the lock until its datagrams are on disk
_LOOK_EVERY_S = 0.02  # interval of attempts to lock the folder; a shorter interval only uses CPU
_VERSION = 1  # schema version

_TABLES = """
CREATE TABLE chunks (
    seq INTEGER PRIMARY KEY,
    received_ms INTEGER NOT NULL,
    checked INTEGER NOT NULL,
    events INTEGER NOT NULL,
    body BLOB NOT NULL
);
CREATE INDEX unchecked ON chunks (seq) WHERE checked = 0;
CREATE TABLE batches (
    number INTEGER PRIMARY KEY,
    received_ms INTEGER NOT NULL,
    key TEXT NOT NULL,
    events INTEGER NOT NULL,
    body BLOB NOT NULL
);
CREATE TABLE totals (
    events INTEGER NOT NULL DEFAULT 0,
    bytes INTEGER NOT NULL DEFAULT 0,
    received INTEGER NOT NULL DEFAULT 0,
    errors INTEGER NOT NULL DEFAULT 0,
    discarded INTEGER NOT NULL DEFAULT 0,
    ingested INTEGER NOT NULL DEFAULT 0,
    refused INTEGER NOT NULL DEFAULT 0
);
INSERT INTO totals DEFAULT VALUES;
CREATE TABLE target (feed TEXT NOT NULL);
"""
_TRIGGERS = """
CREATE TRIGGER {table}_in AFTER INSERT ON {table} BEGIN UPDATE totals SET
    events = events + new.events, bytes = bytes + length(new.body); END;
CREATE TRIGGER {table}_out AFTER DELETE ON {table} BEGIN UPDATE totals SET
    events = events - old.events, bytes = bytes - length(old.body); END;
CREATE TRIGGER {table}_new AFTER UPDATE ON {table} BEGIN UPDATE totals SET
    events = events + new.events - old.events,
    bytes = bytes + length(new.body) - length(old.body); END;
"""
_FIRST = "SELECT number, received_ms, key, body FROM batches ORDER BY number LIMIT 1"
_ANY_READY = "SELECT 1 FROM (SELECT checked FROM chunks ORDER BY seq LIMIT 1) WHERE checked"
# Selects only chunks older than every unchecked datagram, to preserve the order of arrival.
_READY = """SELECT seq, received_ms, body FROM chunks
    WHERE seq < coalesce((SELECT min(seq) FROM chunks WHERE checked = 0), 1 << 62) ORDER BY seq"""


class Problem(Exception):
    """The agent cannot start or continue; the text is one sentence for a person."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Limits of the queue, which also contains the operations that are being sent."""

    events: int = QUEUED_EVENTS_MAX
    bytes: int = QUEUED_BYTES_MAX


@dataclass(frozen=True, slots=True)
class Totals:
    """The counters of the queue.

    *events* and *bytes* count the queue's present content. The other counters start at 0 when the
    agent starts.
    """

    events: int
    bytes: int
    received: int
    errors: int
    discarded: int
    ingested: int
    refused: int


_TOTALS = ", ".join(field.name for field in fields(Totals))


class Store:
    """A connection to the queue in *folder*, for one thread at a time.

    *wait_s* is how long a transaction waits for another transaction. With *cuts*, a commit may copy
    the write-ahead log into the file, which sometimes takes tens of milliseconds.
    """

    def __init__(self, folder: Path, *, wait_s: float = WAIT_S, cuts: bool = True) -> None:
        self._wal = folder / f"{NAME}-wal"
        make_private(folder / NAME)
        self._db = sqlite3.connect(
            folder / NAME, timeout=wait_s, isolation_level=None, check_same_thread=False
        )
        self._db.execute("PRAGMA journal_mode = WAL")
        self._durable = True
        if not cuts:
            self._db.execute("PRAGMA wal_autocheckpoint = 0")

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def transaction(self, *, durable: bool = False) -> Iterator[sqlite3.Connection]:
        """Run the body as a transaction, rolled back on an error.

        A committed transaction survives a kill of the process. A *durable* transaction and all
        transactions before it also survive a power loss.
        """
        if durable != self._durable:
            self._db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._durable = durable
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield self._db
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def read(self, query: str, *values: object) -> list[Any]:
        """Return the rows of *query*, outside of any transaction."""
        return self._db.execute(query, values).fetchall()

    def totals(self) -> Totals:
        return Totals(*self.read(f"SELECT {_TOTALS} FROM totals")[0])

    def oldest_ms(self) -> int | None:
        """Return when the oldest queued operation was received; None if the queue is empty."""
        first = "SELECT received_ms FROM (SELECT * FROM {} ORDER BY 1 LIMIT 1)"
        both = f"{first.format('chunks')} UNION ALL {first.format('batches')}"
        ((received_ms,),) = self.read(f"SELECT min(received_ms) FROM ({both})")
        return None if received_ms is None else int(received_ms)

    def cut(self) -> None:
        """Truncate a long write-ahead log. Other connections wait until this is done."""
        if self._wal.exists() and self._wal.stat().st_size > WAL_BYTES_MAX:
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def prepare(self, feed: str, address: str = "", adopt: int | None = None) -> None:
        """Create missing tables and reset the counters.

        *address* is the server of *feed*. *adopt* is the number of queued operations for another
        feed or server, which are then for *feed*.

        Raises:
            Problem: the queue contains operations for another feed, or has an unknown version.
        """
        ((version,),) = self.read("PRAGMA user_version")
        if version not in (0, _VERSION):
            rule = "use that version to send its operations, or another --queue-dir"
            raise Problem(f"the queue was written by another version of the agent; {rule}")
        if not version:
            triggers = "".join(_TRIGGERS.format(table=name) for name in ("chunks", "batches"))
            set_version = f"PRAGMA user_version = {_VERSION};"
            self._db.executescript(f"BEGIN IMMEDIATE; {_TABLES} {triggers} {set_version} COMMIT;")
        self._begin(feed, f"{feed} at {address}" if address else feed, adopt)

    def _begin(self, feed: str, target: str, adopt: int | None) -> None:
        with self.transaction(durable=True) as db:
            earlier = db.execute("SELECT feed FROM target").fetchone()
            (held,) = db.execute("SELECT events FROM totals").fetchone()
            # An earlier release stored only the name of the feed.
            if held and earlier and earlier[0] not in (feed, target) and adopt != held:
                raise Problem(
                    f"{held} queued operations are for the feed {earlier[0]!r}, not {target!r};"
                    " send them first, use another --queue-dir, or give them to this one with"
                    f" --adopt {held}"
                )
            db.execute("DELETE FROM target")
            db.execute("INSERT INTO target VALUES (?)", (target,))
            counted = ("received", "errors", "discarded", "ingested", "refused")
            db.execute(f"UPDATE totals SET {', '.join(f'{name} = 0' for name in counted)}")


def now_ms() -> int:
    """Return the milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def default_folder(home: Path, state_home: str) -> Path:
    """Return the default folder: `tidings/agent` in `$XDG_STATE_HOME` or in `~/.local/state`."""
    base = Path(state_home) if state_home.startswith("/") else home / ".local/state"
    return base / "tidings/agent"


def lock_folder(folder: Path) -> TextIOWrapper:
    """Create *folder* and lock it until the file is closed or the process has ended.

    Raises:
        Problem: *folder* cannot be created, or another agent uses it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = open(folder / "lock", "w", opener=private_opener)  # noqa: SIM115 (stays open)
    except OSError as error:
        raise Problem(f"cannot use the queue folder {folder}: {error.strerror}") from None
    deadline_s = time.monotonic() + LOCK_WAIT_S
    while not _lock(file, folder):
        if time.monotonic() >= deadline_s:
            file.close()
            rule = "give each agent its own --queue-dir"
            raise Problem(f"another agent uses the queue folder {folder}; {rule}")
        time.sleep(_LOOK_EVERY_S)
    return file


def _lock(file: TextIOWrapper, folder: Path) -> bool:
    try:
        return lock(file)
    except OSError as error:
        rule = "use a --queue-dir on a local disk"
        raise Problem(f"cannot lock the queue folder {folder}: {error.strerror}; {rule}") from None


@dataclass(frozen=True, slots=True)
class Batch:
    """The lines of one request; *received_ms* is the time when the first line arrived."""

    number: int
    received_ms: int
    key: str
    lines: list[bytes]

    @property
    def body(self) -> bytes:
        return b"\n".join(self.lines)


@dataclass(slots=True)
class _Filling:
    """Lines of chunks that fill a request; *rest* is the rest of the last chunk."""

    lines: list[bytes] = field(default_factory=list)
    rest: list[bytes] = field(default_factory=list)
    last: int = 0
    received_ms: int = 0
    size: int = 0

    def take(self, seq: int, received_ms: int, body: bytes) -> None:
        self.received_ms = self.received_ms or received_ms
        self.last = seq
        lines = body.split(b"\n")
        fit = self._fit(lines)
        self.lines += lines[:fit]
        self.rest = lines[fit:]

    def _fit(self, lines: list[bytes]) -> int:
        for at, line in enumerate(lines):
            full = len(self.lines) + at == REQUEST_OPERATIONS_MAX
            if full or self.size + len(line) + 1 > REQUEST_BYTES_MAX:
                return at
            self.size += len(line) + 1
        return len(lines)


def first(store: Store, new_key: Callable[[], str]) -> Batch | None:
    """Return the oldest stored batch, or else a new batch of checked lines.

    Return None if no lines are ready.
    """
    rows = store.read(_FIRST)
    if not rows:
        return _create(store, new_key)
    ((number, received_ms, key, body),) = rows
    return Batch(number, received_ms, key, body.split(b"\n"))


def _create(store: Store, new_key: Callable[[], str]) -> Batch | None:
    if not store.read(_ANY_READY):
        return None
    with store.transaction(durable=True) as db:
        filling = _fill_level(db)
        _consume(db, filling)
        return _insert(db, filling.received_ms, new_key(), filling.lines)


def _fill_level(db: sqlite3.Connection) -> _Filling:
    filling = _Filling()
    rows = db.execute(_READY)
    for row in rows:
        filling.take(*row)
        if filling.rest or len(filling.lines) == REQUEST_OPERATIONS_MAX:
            break
    rows.close()
    return filling


def _consume(db: sqlite3.Connection, filling: _Filling) -> None:
    db.execute("DELETE FROM chunks WHERE seq < ?", (filling.last,))
    if filling.rest:
        db.execute(
            "UPDATE chunks SET events = ?, body = ? WHERE seq = ?",
            (len(filling.rest), b"\n".join(filling.rest), filling.last),
        )
    else:
        db.execute("DELETE FROM chunks WHERE seq = ?", (filling.last,))


def _insert(db: sqlite3.Connection, received_ms: int, key: str, lines: list[bytes]) -> Batch:
    number = db.execute(
        "INSERT INTO batches (received_ms, key, events, body) VALUES (?, ?, ?, ?)",
        (received_ms, key, len(lines), b"\n".join(lines)),
    ).lastrowid
    assert number is not None
    return Batch(number, received_ms, key, lines)


def settle(store: Store, batch: Batch) -> None:
    """Record that *batch* is in the log.

    If a power loss undoes this transaction, the batch is sent again with the same key, so the feed
    does not append it again.
    """
    with store.transaction() as db:
        db.execute("DELETE FROM batches WHERE number = ?", (batch.number,))
        db.execute("UPDATE totals SET ingested = ingested + ?", (len(batch.lines),))


def divide(store: Store, batch: Batch, new_key: Callable[[], str]) -> None:
    """Replace *batch*, which the feed did not append, by its two halves in the same order."""
    middle = len(batch.lines) // 2
    with store.transaction(durable=True) as db:
        db.execute("DELETE FROM batches WHERE number = ?", (batch.number,))
        # Move the later batches up by one, so that both halves precede them.
        db.execute("UPDATE batches SET number = -number - 1 WHERE number > ?", (batch.number,))
        db.execute("UPDATE batches SET number = -number WHERE number < 0")
        for at, lines in enumerate((batch.lines[:middle], batch.lines[middle:])):
            db.execute(
                "INSERT INTO batches VALUES (?, ?, ?, ?, ?)",
                (batch.number + at, batch.received_ms, new_key(), len(lines), b"\n".join(lines)),
            )


def rename(store: Store, batch: Batch, key: str) -> None:
    """Change the key of *batch*.

    The feed did not append *batch*, because another request has used its key.
    """
    with store.transaction(durable=True) as db:
        db.execute("UPDATE batches SET key = ? WHERE number = ?", (key, batch.number))


def drop(store: Store, batch: Batch) -> None:
    """Delete *batch*, which the feed will never accept, and count its lines as refused."""
    count = len(batch.lines)
    with store.transaction(durable=True) as db:
        db.execute("DELETE FROM batches WHERE number = ?", (batch.number,))
        db.execute("UPDATE totals SET errors = errors + ?, refused = refused + ?", (count, count))

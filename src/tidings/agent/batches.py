"""
Batches to post, in order, each with its Idempotency-Key.

A batch and its key are stored on disk before it is sent. If it is sent again, by this process or
its successor, the request is the same and is appended once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field

from tidings.core.limits import REQUEST_BYTES_MAX, REQUEST_OPERATIONS_MAX

from .store import Store

_FIRST = "SELECT number, received_ms, key, body FROM batches ORDER BY number LIMIT 1"
_ANY_READY = "SELECT 1 FROM (SELECT checked FROM chunks ORDER BY seq LIMIT 1) WHERE checked"
# Only chunks older than every unchecked datagram, to preserve the order of arrival.
_READY = """SELECT seq, received_ms, body FROM chunks
    WHERE seq < coalesce((SELECT min(seq) FROM chunks WHERE checked = 0), 1 << 62) ORDER BY seq"""


@dataclass(frozen=True, slots=True)
class Batch:
    """The lines of one request; *received_ms* is when the first of them arrived."""

    number: int
    received_ms: int
    key: str
    lines: list[bytes]

    @property
    def body(self) -> bytes:
        return b"\n".join(self.lines)


@dataclass(slots=True)
class _Filling:
    """
    Lines of chunks that fill a request; *rest* is the part of the last chunk that did not fit.
    """

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
    """Return the batch to send now: the one stored earlier, else a new one of the checked lines."""
    rows = store.read(_FIRST)
    if not rows:
        return _made(store, new_key)
    ((number, received_ms, key, body),) = rows
    return Batch(number, received_ms, key, body.split(b"\n"))


def _made(store: Store, new_key: Callable[[], str]) -> Batch | None:
    if not store.read(_ANY_READY):
        return None
    with store.transaction(durable=True) as db:
        filling = _filled(db)
        _consume(db, filling)
        return _insert(db, filling.received_ms, new_key(), filling.lines)


def _filled(db: sqlite3.Connection) -> _Filling:
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
    """
    Record that *batch* is in the log. If a power loss undoes this, the batch is sent again.

    Its key is the same, so it is not appended again.
    """
    with store.transaction() as db:
        db.execute("DELETE FROM batches WHERE number = ?", (batch.number,))
        db.execute("UPDATE totals SET ingested = ingested + ?", (len(batch.lines),))


def divide(store: Store, batch: Batch, new_key: Callable[[], str]) -> None:
    """Split *batch*, of which nothing was appended, into halves to be sent in order."""
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
    """
    Change the key of *batch*: the old one is used by another request, so nothing was appended.
    """
    with store.transaction(durable=True) as db:
        db.execute("UPDATE batches SET key = ? WHERE number = ?", (key, batch.number))


def drop(store: Store, batch: Batch) -> None:
    """Delete *batch*, which the feed will never accept, and count its lines as refused."""
    count = len(batch.lines)
    with store.transaction(durable=True) as db:
        db.execute("DELETE FROM batches WHERE number = ?", (batch.number,))
        db.execute("UPDATE totals SET errors = errors + ?, refused = refused + ?", (count, count))

"""Put datagrams and lines into the queue, and check the datagrams later.

The datagrams of one transaction are stored as one chunk: their number, their lengths, their bytes.
"""

from __future__ import annotations

import os
import select
import sqlite3
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile

from tidings.agent.queue import Bound, Store
from tidings.core.errors import Rejected
from tidings.core.model.json_body import decode_json
from tidings.core.model.operations import line_from

NOTICE_EVERY_S = 60.0  # interval of similar messages; a night's outage logs a few hundred lines
WAKE_WAIT_S = 1.0  # the longest wait for a wake-up, which is lost if the pipe is full
CHECK_CHUNKS = 4  # chunks per transaction; few, because a shutdown waits for the transaction
_COUNT = struct.Struct("<I")
_INSERT = "INSERT INTO chunks (received_ms, checked, events, body) VALUES (?, ?, ?, ?)"
_UNCHECKED = "SELECT seq, received_ms, body FROM chunks WHERE checked = 0 ORDER BY seq LIMIT ?"


class Notices:
    """Rate-limited messages; *say* prints a line."""

    def __init__(
        self, say: Callable[[str], None], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._say = say
        self._monotonic = monotonic
        self._said_s: dict[str, float] = {}

    def report(self, kind: str, line: str) -> None:
        """Print *line*, unless a line of the same *kind* was printed within the last minute."""
        now_s = self._monotonic()
        if now_s - self._said_s.get(kind, -NOTICE_EVERY_S) >= NOTICE_EVERY_S:
            self._said_s[kind] = now_s
            self._say(line)


def pack(datagrams: Sequence[bytes]) -> bytes:
    """Encode *datagrams* with their lengths, because a datagram could contain any separator."""
    lengths = struct.pack(f"<{len(datagrams)}I", *map(len, datagrams))
    return b"".join((_COUNT.pack(len(datagrams)), lengths, *datagrams))


def unpack(packed: bytes) -> list[bytes]:
    """Decode the result of `pack`."""
    (count,) = _COUNT.unpack_from(packed)
    at = _COUNT.size + 4 * count
    datagrams = []
    for length in struct.unpack_from(f"<{count}I", packed, _COUNT.size):
        datagrams.append(packed[at : at + length])
        at += length
    return datagrams


def add_datagrams(
    store: Store, datagrams: Sequence[bytes], *, now_ms: int, bound: Bound, discarded: int = 0
) -> None:
    """Queue, without a check, the *datagrams* that fit. Count the others as discarded.

    *discarded* is a number of earlier datagrams that are also counted as discarded. Queued
    datagrams survive a kill of the agent. They may be lost in a power failure, which is acceptable
    because UDP does not guarantee delivery either.
    """
    with store.transaction() as db:
        events, size = db.execute("SELECT events, bytes FROM totals").fetchone()
        kept = _fitting(datagrams, bound.events - events, bound.bytes - size)
        if kept:
            db.execute(_INSERT, (now_ms, 0, len(kept), pack(kept)))
        discarded += len(datagrams) - len(kept)
        if discarded:
            db.execute("UPDATE totals SET discarded = discarded + ?", (discarded,))


def _fitting(datagrams: Sequence[bytes], events: int, size: int) -> Sequence[bytes]:
    fitting = datagrams[: max(events, 0)]
    if sum(map(len, fitting)) <= size:
        return fitting
    return fitting[: sum(1 for _ in takewhile(size.__ge__, accumulate(map(len, fitting))))]


def add_lines(
    store: Store, requests: Sequence[Sequence[str]], *, now_ms: int, bound: Bound
) -> list[bool]:
    """Queue the lines of each request, safe from power loss. Return whether each request fits."""
    kept = []
    with store.transaction(durable=True) as db:
        for lines in requests:
            body = "\n".join(lines).encode()
            events, size = db.execute("SELECT events, bytes FROM totals").fetchone()
            fits = events + len(lines) <= bound.events and size + len(body) <= bound.bytes
            if fits:
                db.execute(_INSERT, (now_ms, 1, len(lines), body))
                db.execute("UPDATE totals SET received = received + ?", (len(lines),))
            kept.append(fits)
    return kept


@dataclass(frozen=True, slots=True)
class _Checked:
    seq: int
    lines: list[str]
    errors: int


def check(store: Store, warn: Callable[[str], None] = lambda why: None) -> bool:
    """Replace the oldest unchecked datagrams by the lines of their operations, in place.

    Return False if all datagrams were checked already.

    For each datagram that is not an operation, *warn* is called with the reason. If the process
    crashes before the end, nothing is changed.
    """
    chunks = store.read(_UNCHECKED, CHECK_CHUNKS)
    if not chunks:
        return False
    _replace(store, [_check(*chunk, warn=warn) for chunk in chunks])
    return True


def _check(seq: int, received_ms: int, packed: bytes, *, warn: Callable[[str], None]) -> _Checked:
    lines = []
    datagrams = unpack(packed)
    for datagram in datagrams:
        try:
            lines.append(line_from(decode_json(datagram, "datagram"), now_ms=received_ms))
        except Rejected as error:
            warn(str(error))
    return _Checked(seq, lines, len(datagrams) - len(lines))


def _replace(store: Store, chunks: Sequence[_Checked]) -> None:
    with store.transaction() as db:
        for each in chunks:
            if each.lines:
                body = "\n".join(each.lines).encode()
                db.execute(
                    "UPDATE chunks SET checked = 1, events = ?, body = ? WHERE seq = ?",
                    (len(each.lines), body, each.seq),
                )
            else:
                db.execute("DELETE FROM chunks WHERE seq = ?", (each.seq,))
            db.execute(
                "UPDATE totals SET received = received + ?, errors = errors + ?",
                (len(each.lines), each.errors),
            )


class Checker:
    """The checker of the receiver's datagrams. Run `run` in a thread.

    The receiver wakes the checker through *wake_pipe*, which is closed once the receiver has ended.
    *grown* is called when there are more lines to send.
    """

    def __init__(
        self, store: Store, wake_pipe: int, notices: Notices, grown: Callable[[], None]
    ) -> None:
        self._store = store
        self._wake_pipe = wake_pipe
        self._notices = notices
        self._grown = grown

    def run(self) -> None:
        """Check until the receiver has ended and all datagrams are checked."""
        running = True
        while running:
            ready, _, _ = select.select([self._wake_pipe], [], [], WAKE_WAIT_S)
            running = not ready or bool(os.read(self._wake_pipe, 65_536))
            try:
                while check(self._store, self._report):
                    self._grown()
                    self._store.cut()
            except sqlite3.Error as error:
                self._notices.report("disk", f"the queue cannot be written: {error}")

    def _report(self, why: str) -> None:
        self._notices.report("error", f"a datagram is not an operation: {why}")

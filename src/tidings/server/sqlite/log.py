"""The log of each feed on SQLite: pages, head, floor, claims, followers, counters and relays.

Relays are in this module because a relay appends pages and stores its position in one transaction.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tidings.core import limits
from tidings.core.counters import LogCounter, Totals, is_present, refusal
from tidings.core.durable_streams.stream import Extent, Stream, streams_in
from tidings.core.log.append import Claim
from tidings.core.model.cursors import Place
from tidings.core.model.feeds import PUSH, STATE
from tidings.core.model.pages import Page, Pages
from tidings.core.records import Write
from tidings.core.replication.relay import Relay, RelayStore
from tidings.server.memory import MemoryFollowers, StoredFollower
from tidings.server.sqlite.database import Database, in_transaction
from tidings.server.sqlite.records import SqliteRecords

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidings.core.effects import Clock
    from tidings.core.log.stores import Result
    from tidings.server.memory import Saved

_MOVE = (
    "INSERT INTO heads (feed, page, operations) VALUES (?, ?, ?) ON CONFLICT DO UPDATE"
    " SET page = excluded.page, operations = operations + excluded.operations"
)
_ADD = "INSERT INTO pages VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_PUT = _ADD.replace("INSERT", "INSERT OR IGNORE")
_CLAIM = "INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?, ?, ?)"
_TAIL = (
    "SELECT page, successor, (SELECT page FROM pages WHERE feed = ?1 ORDER BY page DESC LIMIT 1)"
    " FROM (SELECT ?1 AS feed) LEFT JOIN heads USING (feed)"
)

# The weight of a packed page in the size of a read: it has 5 to 25 times as much text, and a filter
# may have to search all of it.
_PACKED = 3

# The list of numbers ends with the number after the head, so that missing numbers after the last
# page are found, too.
_MISSING = """
WITH numbers AS (
    SELECT page, page - skipped AS first FROM pages WHERE feed = ?1 AND page > ?2
    UNION ALL SELECT page + 1, page + 1 FROM heads WHERE feed = ?1 AND page > ?2)
SELECT before + 1, first - 1
FROM (SELECT first, lag(page, 1, ?2) OVER (ORDER BY page) AS before FROM numbers)
WHERE first > before + 1
"""


class Numbers(NamedTuple):
    """Consecutive page numbers."""

    first: int
    last: int

    def __str__(self) -> str:
        one = self.first == self.last
        return f"page {self.first}" if one else f"pages {self.first} to {self.last}"


class NewPage(NamedTuple):
    """A page without a number. *body* is the result of `pages.encode` for its *lines*.

    If *key* is not empty, the page gets a claim on this key, which must have no claim.
    """

    lines: list[str]
    body: str | bytes
    append_id: str
    trace: str
    key: str
    fingerprint: str


class SqliteLog:
    """Implements `LogStore` and `restore.Numbers`. Every read is strongly consistent."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def together(self, run: Callable[[], Result]) -> Result:
        return run() if self._database.is_writing else self._database.write(lambda _: run())

    @in_transaction
    def take(self, sql: sqlite3.Connection, feed: str, operations: int = 0) -> int:
        self._database.steps.check_feed(feed)
        number = _end(sql, feed) + 1
        self._move(sql, feed, number, operations)
        self._database.changed(feed)
        return number

    def _move(self, sql: sqlite3.Connection, feed: str, head: int, operations: int) -> None:
        """Store the last number *head* and add *operations*, those of the pages up to *head*."""
        sql.execute(_MOVE, (feed, head, operations))
        self._database.steps.count(feed, operations=operations)

    @in_transaction
    def extend(
        self,
        sql: sqlite3.Connection,
        feed: str,
        new: Sequence[NewPage],
        at_ms: int,
        expires_ms: int,
    ) -> list[Page]:
        """Append a page for each of *new* to a feed that exists in this transaction.

        Return the pages.

        Raises:
            Rejected: the log accepts no pages.
        """
        number, operations, claim_end_ms = _end(sql, feed), 0, at_ms + limits.CLAIM_MS
        pages, rows, claims = [], [], []
        for lines, body, append_id, trace, key, fingerprint in new:
            number += 1
            operations += len(lines)
            page = Page(number, body, append_id, at_ms, expires_ms, trace=trace)
            vars(page)["lines"] = lines
            pages.append(page)
            rows.append(_columns(feed, page))
            if key:
                claims.append((feed, key, fingerprint, append_id, number, claim_end_ms))
        sql.executemany(_ADD, rows)
        sql.executemany(_CLAIM, claims)
        self._move(sql, feed, number, operations)
        self._database.wrote(feed, *pages)
        return pages

    @in_transaction
    def put(self, sql: sqlite3.Connection, feed: str, page: Page) -> str:
        if sql.execute(_PUT, _columns(feed, page)).rowcount:
            self._database.wrote(feed, page)
            return page.append_id
        cursor = sql.execute(
            "SELECT append_id FROM pages WHERE feed = ? AND page = ?", (feed, page.number)
        )
        return str(cursor.fetchone()[0])

    @in_transaction
    def enter(
        self,
        sql: sqlite3.Connection,
        feed: str,
        pages: Sequence[Page],
        *,
        head: int,
        operations: int,
    ) -> bool:
        """Write all *pages* and their *head*; return True.

        If a page with one of the numbers exists, write nothing and return False.
        """
        numbers = [page.number for page in pages]
        marks = ", ".join("?" * len(numbers))
        existing = f"SELECT count(*) FROM pages WHERE feed = ? AND page IN ({marks})"
        if _number(sql, existing, feed, *numbers):
            return False
        self._put_all(sql, feed, pages)
        self._move(sql, feed, head, operations)
        return True

    def read(
        self, feed: str, after: int, limit: int | None = None, *, eventual: bool = False
    ) -> Pages:
        pages, size = Pages(), 0
        with self._database.reading() as sql:
            rows = sql.execute(
                "SELECT page, body, at_ms, slots, trace, skipped FROM pages"
                " WHERE feed = ? AND page > ? ORDER BY page",
                (feed, after),
            )
            try:
                for number, body, at_ms, slots, trace, skipped in rows:
                    size += len(body) * (_PACKED if isinstance(body, bytes) else 1)
                    pages.more = bool(pages) and (
                        size > limits.SERVER_READ_BYTES_MAX or len(pages) == limit
                    )
                    if pages.more:
                        break
                    page = Page(
                        number, body, "", at_ms, slots=_slots(slots), trace=trace, skipped=skipped
                    )
                    pages.append(page)
            except sqlite3.DatabaseError:  # the file is damaged
                if not pages:
                    raise
                pages.more = True  # the next read begins at the damaged page, and fails
            rows.close()
        return pages

    def head(self, feed: str) -> int:
        return self.log_counter(feed).page

    def log_counter(self, feed: str) -> LogCounter:
        with self._database.reading() as sql:
            statement = "SELECT page, operations, successor FROM heads WHERE feed = ?"
            return LogCounter(*(sql.execute(statement, (feed,)).fetchone() or (0, 0)))

    def missing(self, feed: str, after: int) -> list[Numbers]:
        """Return the numbers above *after* that were assigned but have no page."""
        with self._database.reading() as sql:
            return [Numbers(*each) for each in sql.execute(_MISSING, (feed, after))]

    @in_transaction
    def yield_to(self, sql: sqlite3.Connection, feed: str, successor: str) -> None:
        sql.execute(
            "INSERT INTO heads (feed, successor) VALUES (?, ?) ON CONFLICT DO UPDATE"
            " SET successor = excluded.successor",
            (feed, successor),
        )

    @in_transaction
    def raise_head(self, sql: sqlite3.Connection, feed: str, page: int) -> None:
        sql.execute(
            "INSERT INTO heads (feed, page) VALUES (?, ?) ON CONFLICT DO UPDATE"
            " SET page = max(page, excluded.page)",
            (feed, page),
        )
        self._database.changed(feed)

    @in_transaction
    def fill(self, sql: sqlite3.Connection, feed: str, pages: Sequence[Page]) -> None:
        self._put_all(sql, feed, pages)

    def _put_all(self, sql: sqlite3.Connection, feed: str, pages: Sequence[Page]) -> None:
        sql.executemany(_PUT, [_columns(feed, page) for page in pages])
        self._database.wrote(feed, *pages)

    def floor(self, feed: str) -> int:
        with self._database.reading() as sql:
            return _number(sql, "SELECT floor FROM heads WHERE feed = ?", feed) or 1

    @in_transaction
    def raise_floor(self, sql: sqlite3.Connection, feed: str, page: int) -> None:
        sql.execute(
            "INSERT INTO heads (feed, floor) VALUES (?, ?) ON CONFLICT DO UPDATE"
            " SET floor = max(floor, excluded.floor)",
            (feed, page),
        )
        sql.execute("DELETE FROM extents WHERE feed = ? AND page < ?", (feed, page))

    def expiries(self, feed: str, after: int, last: int) -> list[tuple[int, int]]:
        with self._database.reading() as sql:
            return sql.execute(
                "SELECT page, expires_ms FROM pages WHERE feed = ? AND page > ? AND page <= ?"
                " ORDER BY page LIMIT ?",
                (feed, after, last, limits.READ_ITEMS_MAX),
            ).fetchall()

    @in_transaction
    def renew(self, sql: sqlite3.Connection, feed: str, page: int, expires_ms: int) -> None:
        sql.execute(
            "UPDATE pages SET expires_ms = ?3"
            " WHERE feed = ?1 AND page = ?2 AND expires_ms > 0 AND expires_ms < ?3",
            (feed, page, expires_ms),
        )


class SqliteClaims:
    """Implements `ClaimStore`.

    A claim expires only when both *now_ms* of the caller and the clock *expiring* have reached its
    expiry.
    """

    def __init__(self, database: Database, expiring: Clock | None = None) -> None:
        self._database, self._expiring = database, expiring

    def find(self, feed: str, key: str, *, now_ms: int) -> Claim | None:
        with self._database.reading() as sql:
            claim = _claim(sql, feed, key)
        if self._expiring is not None:
            now_ms = min(now_ms, self._expiring())
        return claim if claim is not None and claim.expires_ms > now_ms else None

    @in_transaction
    def claim(self, _: sqlite3.Connection, feed: str, claim: Claim, *, now_ms: int) -> Claim:
        current = self.find(feed, claim.key, now_ms=now_ms)
        return current or self._put(feed, claim)

    @in_transaction
    def move(self, sql: sqlite3.Connection, feed: str, claim: Claim, page: int) -> Claim:
        current = _claim(sql, feed, claim.key) or claim
        if (current.append_id, current.page) != (claim.append_id, claim.page):
            return current
        return self._put(feed, replace(claim, page=page))

    @in_transaction
    def _put(self, sql: sqlite3.Connection, feed: str, claim: Claim) -> Claim:
        columns = feed, claim.key, claim.fingerprint, claim.append_id, claim.page, claim.expires_ms
        sql.execute(_CLAIM, columns)
        return claim


def _claim(sql: sqlite3.Connection, feed: str, key: str) -> Claim | None:
    row = sql.execute(
        "SELECT key, fingerprint, append_id, page, expires_ms FROM claims"
        " WHERE feed = ? AND key = ?",
        (feed, key),
    ).fetchone()
    return Claim(*row) if row else None


def _end(sql: sqlite3.Connection, feed: str) -> int:
    """Return the last number of *feed* that was taken.

    Raises:
        Rejected: the log was continued elsewhere, and accepts no pages.
    """
    head, successor, last = sql.execute(_TAIL, (feed,)).fetchone()
    if successor:
        raise refusal(feed, successor)
    # A page above the head, which only a damaged file has, must not be overwritten.
    return max(head or 0, last or 0)


def _columns(feed: str, page: Page) -> tuple[object, ...]:
    slots = None if page.slots is None else json.dumps(page.slots)
    written = page.body, page.append_id, page.at_ms, page.expires_ms, slots, page.trace
    return feed, page.number, *written, page.skipped


def _slots(stored: str | None) -> tuple[int, ...] | None:
    return None if stored is None else tuple(json.loads(stored))


def _number(sql: sqlite3.Connection, statement: str, *values: object) -> int:
    """Return the one number that *statement* selects; 0 if it selects no row."""
    row = sql.execute(statement, values).fetchone()
    return int(row[0]) if row else 0


class SqliteFollowers(MemoryFollowers):
    """The followers, with checkpoints on disk and leases in memory.

    Leases need not be stored, because no other process can open the file. A checkpoint is written
    with the next transaction of any thread. So after a crash a follower may resume from an earlier
    checkpoint and handle pages again, which every follower must tolerate. If a checkpoint moves
    within a transaction, other threads see the new checkpoint after the commit, like the rows.

    The followers of a feed are loaded when they are first used, so that idle feeds take no memory.
    Push then starts where the state is, because no client is connected yet.
    """

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._database = database
        self._moved: dict[StoredFollower, Saved] = {}  # checkpoints in the current transaction
        self._unwritten: dict[StoredFollower, None] = {}

    def _of_feed(self, feed: str) -> dict[str, StoredFollower]:
        known = self._feeds.get(feed)
        if known is not None:
            return known
        with self._database.reading() as sql:
            rows = sql.execute(
                "SELECT name, checkpoint, operations, note FROM followers WHERE feed = ?", (feed,)
            ).fetchall()
        stored = {name: StoredFollower(feed, name, saved=tuple(saved)) for name, *saved in rows}
        if STATE in stored:
            stored[PUSH] = StoredFollower(feed, PUSH, saved=(stored[STATE].saved[0], 0, b""))
        # Another thread may have loaded them at the same time, and moved a checkpoint since.
        return self._feeds.setdefault(feed, stored) if stored else stored

    def set_checkpoint(
        self, feed: str, name: str, checkpoint: int, operations: int = 0, note: bytes = b""
    ) -> None:
        super().set_checkpoint(feed, name, checkpoint, operations, note)
        self._unwritten[self._feeds[feed][name]] = None

    def forget(self, feed: str) -> None:
        """Forget the followers of the deleted *feed*; their rows are deleted separately."""
        for follower in self._feeds.pop(feed, {}).values():
            self._unwritten.pop(follower, None)

    @in_transaction
    def write(self, sql: sqlite3.Connection) -> None:
        """Write the checkpoints that have changed since the last write."""
        rows = []
        for each, saved in self._moved.items():
            rows.append((each.feed, each.name, *saved))
        if self._unwritten:
            changed = dict.fromkeys(list(self._unwritten))
            for each in changed:
                self._unwritten.pop(each, None)  # before the read: a later change is written again
                if each not in self._moved:
                    rows.append((each.feed, each.name, *each.saved))
            self._database.on_rollback(partial(self._unwritten.update, changed))
        if rows:
            sql.executemany("INSERT OR REPLACE INTO followers VALUES (?, ?, ?, ?, ?)", rows)

    def move(self, follower: StoredFollower, saved: Saved) -> None:
        if not self._database.is_writing:
            is_same = follower.saved == saved
            super().move(follower, saved)
            if not is_same:
                self._unwritten[follower] = None
            return
        if not self._moved:
            self._database.on_commit(self._publish)
        self._database.on_rollback(partial(self._take_back, follower, self._moved.get(follower)))
        self._moved[follower] = saved

    def saved_of(self, follower: StoredFollower) -> Saved:
        if self._moved and self._database.is_writing:
            return self._moved.get(follower, follower.saved)
        return follower.saved

    def _publish(self) -> None:
        for follower, saved in self._moved.items():
            follower.saved = saved
        self._moved.clear()

    def _take_back(self, follower: StoredFollower, before: Saved | None) -> None:
        if before is None:
            del self._moved[follower]
        else:
            self._moved[follower] = before


class SqliteCounters:
    """Implements `Counters`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def refuse(self, feed: str) -> None:
        self._add(feed, Totals(refused=1))

    def serve(self, feed: str, *, connections: int, sent: int) -> None:
        self._add(feed, Totals(connections=connections, sent=sent))

    @in_transaction
    def attend(
        self, sql: sqlite3.Connection, feed: str, reporter: str, clients: int, *, until_ms: int
    ) -> None:
        sql.execute("DELETE FROM clients WHERE feed = ? AND place = ?", (feed, reporter))
        if clients:
            columns = feed, reporter, clients, until_ms
            sql.execute("INSERT INTO clients VALUES (?, ?, ?, ?)", columns)

    def totals(self, feed: str, *, now_ms: int) -> Totals:
        with self._database.reading() as sql:
            counted = sql.execute(
                "SELECT refused, connections, sent FROM counts WHERE feed = ?", (feed,)
            ).fetchone()
            places = sql.execute(
                "SELECT clients, until_ms FROM clients WHERE feed = ?", (feed,)
            ).fetchall()
        refused, connections, sent = counted or (0, 0, 0)
        clients = sum(count for count, until_ms in places if is_present(until_ms, now_ms))
        return Totals(refused, connections, sent, clients)

    @in_transaction
    def _add(self, sql: sqlite3.Connection, feed: str, more: Totals) -> None:
        sql.execute(
            "INSERT INTO counts VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
            " refused = refused + excluded.refused,"
            " connections = connections + excluded.connections, sent = sent + excluded.sent",
            (feed, more.refused, more.connections, more.sent),
        )
        if more.sent:
            self._database.steps.count(feed, events=more.sent)


class SqliteRelays(RelayStore):
    def __init__(self, database: Database, log: SqliteLog) -> None:
        super().__init__(SqliteRecords(database))
        self._database, self._log = database, log

    @in_transaction
    def append(
        self, _: sqlite3.Connection, before: Relay, after: Relay, pages: Sequence[Page]
    ) -> bool:
        operations = after.counts.operations - before.counts.operations
        if self.relay(after.feed).version != before.version:
            return False
        entered = self._log.enter(after.feed, pages, head=after.checkpoint, operations=operations)
        return entered and self.write(before, after)


class SqliteStreams:
    """Implements `StreamStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._streams = streams_in(SqliteRecords(database))

    def stream(self, feed: str, name: str) -> Stream | None:
        return self._streams.get(feed, name)

    @in_transaction
    def write(
        self, sql: sqlite3.Connection, feed: str, stream: Stream, extent: Extent | None = None
    ) -> None:
        self._streams.save(feed, stream)
        if extent is not None:
            last, before = extent.last, extent.before
            sql.execute(
                "INSERT INTO extents VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (feed, stream.name, *_place(last), *_place(before)),
            )

    @in_transaction
    def remove(self, sql: sqlite3.Connection, feed: str, name: str) -> None:
        self._streams.store.write(feed, [Write(self._streams.kind, name, None)])
        sql.execute("DELETE FROM extents WHERE feed = ? AND stream = ?", (feed, name))

    def extents(self, feed: str, name: str, after: Place, limit: int) -> list[Extent]:
        with self._database.reading() as sql:
            rows = sql.execute(
                "SELECT before_page, before_slot, before_seconds, page, slot, seconds FROM extents"
                " WHERE feed = ? AND stream = ? AND (page, slot) > (?, ?) ORDER BY page LIMIT ?",
                (feed, name, after.page, after.slot, limit),
            ).fetchall()
        return [Extent(Place(*row[:3]), Place(*row[3:])) for row in rows]


def _place(place: Place) -> tuple[int, int, int]:
    return place.page, place.slot, place.seconds

"""Records in a database file of SQLite: the fields of each are JSON."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from tidings.core.changeagent.documents import USERS
from tidings.core.records import HOST_RECORDS, Record, Write, to_json
from tidings.server.sqlite.database import Database, in_transaction

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence

    from tidings.core.effects import Clock
    from tidings.core.records import Kind

_KEY = "kind = ? AND feed = ? AND owner = ? AND name = ?"
_LIVE = "(expires_ms = 0 OR expires_ms > ?)"
_PUT = "INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?, ?, ?)"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class SqliteRecords:
    """Implements `RecordStore`. Records expire by *clock*."""

    def __init__(self, database: Database, clock: Clock = _now_ms) -> None:
        self._database, self._clock = database, clock

    def get(
        self, feed: str, kind: Kind, name: str = "", of: str = "", *, eventual: bool = False
    ) -> Record | None:
        with self._database.reading() as sql:
            found = self._fields(sql, (kind.name, feed, of, name))
        return None if found is None else Record(name, found)

    def query(
        self,
        feed: str,
        kind: Kind,
        of: str = "",
        *,
        after: str = "",
        limit: int = 0,
        newest: bool = False,
    ) -> Iterator[Record]:
        above, order = ">" if after else ">=", "DESC" if newest else "ASC"
        with self._database.reading() as sql:
            rows = sql.execute(
                "SELECT name, body FROM records WHERE kind = ? AND feed = ? AND owner = ?"
                f" AND name {above} ? AND {_LIVE} ORDER BY name {order} LIMIT ?",
                (kind.name, feed, of, after, self._clock(), limit or -1),
            ).fetchall()
        return (Record(name, json.loads(body)) for name, body in rows)

    @in_transaction
    def write(
        self, sql: sqlite3.Connection, feed: str, writes: Sequence[Write], *, mark: bool = True
    ) -> bool:
        keys = [(each.kind.name, feed, each.of, each.name) for each in writes]
        stored = [self._fields(sql, key) or {} for key in keys]
        if not all(map(Write.is_expected, writes, stored)):
            return False
        for write, key, there in zip(writes, keys, stored, strict=True):
            if write.fields is None:
                sql.execute(f"DELETE FROM records WHERE {_KEY}", key)
            elif write.fields:
                body = to_json(write.applied(there))
                sql.execute(_PUT, (*key, body, write.expires_ms))
            self._report(feed, write.kind)
        return True

    def _report(self, feed: str, kind: Kind) -> None:
        if kind.is_due and feed != HOST_RECORDS:
            self._database.changed(feed)
        self._database.on_commit(lambda: self._database.steps.record_changed(feed, kind.name))

    def _fields(self, sql: sqlite3.Connection, key: tuple[str, ...]) -> dict[str, Any] | None:
        row = sql.execute(
            f"SELECT body FROM records WHERE {_KEY} AND {_LIVE}", (*key, self._clock())
        ).fetchone()
        return json.loads(row[0]) if row else None


_UNMARKED = """
SELECT DISTINCT feed FROM records AS used
WHERE (kind = 'key' OR (kind = 'operator-document' AND name = ?)) AND NOT EXISTS (
    SELECT 1 FROM records AS profile WHERE profile.kind = 'profile' AND profile.feed = used.feed
    AND instr(profile.body, '"closed":true'))
"""


def used_but_open(database: Database) -> list[str]:
    """Return feeds with keys or users, and without a profile that is closed; see `profiles.close`.

    Earlier releases did not close a feed when they stored a key or a user.
    """
    with database.reading() as sql:
        return [feed for (feed,) in sql.execute(_UNMARKED, (USERS,))]


def deleted_feeds(database: Database) -> list[str]:
    """Return the names of the feeds that were deleted, and not created again."""
    with database.reading() as sql:
        return [
            name
            for (name,) in sql.execute(
                "SELECT name FROM records WHERE kind = 'feed' AND feed = ''"
                " AND instr(body, '\"live\":false') ORDER BY name"
            )
        ]


def feeds_with_webhooks(database: Database) -> list[str]:
    """Return the feeds that have or had webhooks. They are found by an index of their own."""
    with database.reading() as sql:
        return [
            feed
            for (feed,) in sql.execute(
                "SELECT feed FROM records WHERE kind = 'operator-document' AND name = 'webhooks'"
            )
        ]

"""The feeds that the sweep visits, on SQLite.

A feed with a row in the table `due` is visited at the time in that row, 0 for at once. A feed
without a row is not visited. `Database` adds the row in the transaction that changes the feed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidings.core.log.due import Due
from tidings.server.sqlite.database import Database, in_transaction

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Sequence

# A feed with one of these kinds of work was changed and not settled since, so its row has the time
# 0. The join therefore reads nothing of idle feeds.
_LAGGING = """
SELECT h.feed FROM due AS d JOIN heads AS h ON h.feed = d.feed
LEFT JOIN followers AS f ON f.feed = d.feed AND f.name = 'state'
WHERE d.at_ms = 0 AND h.page > coalesce(f.checkpoint, 0) ORDER BY h.feed
"""
_ERASING = """
SELECT feed FROM due WHERE at_ms <= ? AND EXISTS (
    SELECT 1 FROM records AS e WHERE e.kind = 'erasure' AND e.feed = due.feed) ORDER BY feed
"""
_OTHER_LAGS = """
SELECT f.name, sum(max(h.page - f.checkpoint, 0))
FROM due AS d JOIN heads AS h ON h.feed = d.feed JOIN followers AS f ON f.feed = d.feed
WHERE d.at_ms = 0 AND f.name IN ('state', 'archive') AND d.feed NOT IN (SELECT value FROM named)
GROUP BY f.name ORDER BY f.name
"""
_OTHER_LOGS = """
SELECT count(*), coalesce(sum(page), 0) FROM heads WHERE feed NOT IN (SELECT value FROM named)
"""


class Others(NamedTuple):
    """The sums over some feeds: their number, their pages, and the lag of each stored follower.

    The checkpoint of push is stored late, so its lag is unknown.
    """

    feeds: int
    pages: int
    lags: Sequence[tuple[str, int]]


class SqliteDueFeeds:
    """Implements `DueFeeds`. Memory is used only for feeds that are due."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @in_transaction
    def mark(self, _: sqlite3.Connection, feed: str) -> None:
        self._database.changed(feed)

    def due(self, now_ms: int) -> Sequence[Due]:
        # The marks are read first: a feed that is marked after that has another version.
        marks = {**self._database.marks}
        with self._database.reading() as sql:
            rows = sql.execute("SELECT feed, at_ms FROM due WHERE at_ms <= ?", (now_ms,)).fetchall()
        return [Due(feed, marks.get(feed, 0), at_ms) for feed, at_ms in rows]

    @in_transaction
    def settle(self, sql: sqlite3.Connection, due: Due, next_ms: int | None, *, head: int) -> bool:
        database, feed, version = self._database, due.feed, due.version
        if database.marks.get(feed, 0) != version or database.has_changed(feed):
            return False
        # Later changes, also those of the same transaction, must add the row again.
        if database.marks.pop(feed, None) is not None:
            database.on_rollback(lambda: database.marks.setdefault(feed, version))
        if next_ms is None:
            sql.execute("DELETE FROM due WHERE feed = ?", (feed,))
        else:
            sql.execute("INSERT OR REPLACE INTO due VALUES (?, ?)", (feed, next_ms))
        return True

    def lagging(self) -> list[str]:
        """Return the feeds of which the state has not handled all pages."""
        with self._database.reading() as sql:
            return [feed for (feed,) in sql.execute(_LAGGING)]

    def erasing(self, now_ms: int) -> list[str]:
        """Return the feeds that are due at *now_ms* and have an unfinished erasure."""
        with self._database.reading() as sql:
            return [feed for (feed,) in sql.execute(_ERASING, (now_ms,))]

    def others(self, named: Collection[str]) -> Others:
        """Return the sums over the feeds with a log that are not in *named*."""
        rows = ",".join("(?)" for _ in named) or "(NULL)"
        with_named = f"WITH named (value) AS (VALUES {rows})"
        with self._database.reading() as sql:
            feeds, pages = sql.execute(with_named + _OTHER_LOGS, tuple(named)).fetchone()
            lags = sql.execute(with_named + _OTHER_LAGS, tuple(named)).fetchall()
        return Others(feeds, pages, lags)

"""The removal of a deleted feed's data from a database file of SQLite."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.core.feeds.records import Removed
from tidings.server.sqlite.database import DELETED_TOGETHER, Database, in_transaction

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence

    from tidings.core.effects import Clock
    from tidings.server.sqlite.log import SqliteFollowers

BYTES_TOGETHER = 1024 * 1024  # bytes of pages deleted in one transaction, in some 2 ms
_RECORDS = "records"  # the table with the kind of each row


class SqliteFeedData:
    """Implements `FeedData` for every table with a column `feed`.

    Each transaction deletes at most 250 rows or 1 MB of pages. The followers' checkpoints in memory
    are removed, too.
    """

    def __init__(self, database: Database, followers: SqliteFollowers, steady: Clock) -> None:
        self._database, self._followers, self._steady = database, followers, steady

    def remove(self, key: str, resume_at: str, until_ms: int) -> Removed:
        """Continue at the table *resume_at*; the counts are by table, and by kind of record."""
        counts: dict[str, int] = {}
        if not resume_at:
            self._followers.forget(key)
            self._database.marks.pop(key, None)
        for table in (each for each in self._tables() if each >= resume_at):
            while deleted := self._delete_some(table, key):
                for name, count in deleted:
                    counts[name] = counts.get(name, 0) + count
                if self._steady() >= until_ms:
                    return Removed(table, counts)
        return Removed(None, counts)

    def _tables(self) -> Sequence[str]:
        """Return the names of the tables with data of feeds."""
        with self._database.reading() as sql:
            rows = sql.execute(
                "SELECT m.name FROM sqlite_master AS m, pragma_table_info(m.name) AS c"
                " WHERE m.type = 'table' AND c.name = 'feed' ORDER BY m.name"
            ).fetchall()
        return [name for (name,) in rows]

    def _delete_some(self, table: str, key: str) -> Sequence[tuple[str, int]]:
        """Delete rows of *key* in one transaction; return what was deleted, by location."""
        if not self._has_rows(table, key):
            return ()  # the second pass usually writes nothing
        if table == _RECORDS:
            return self._delete_records(key)
        count = self._delete_pages(key) if table == "pages" else self._delete_rows(table, key)
        return [(table, count)] if count else []

    def _has_rows(self, table: str, key: str) -> bool:
        with self._database.reading() as sql:
            if table == _RECORDS:
                return any(_kinds_of(sql, key))
            found = sql.execute(f"SELECT 1 FROM {table} WHERE feed = ? LIMIT 1", (key,))
            return found.fetchone() is not None

    @in_transaction
    def _delete_pages(self, sql: sqlite3.Connection, key: str) -> int:
        last = size = 0
        pages = "SELECT page, length(body) FROM pages WHERE feed = ? ORDER BY page LIMIT ?"
        for page, length in sql.execute(pages, (key, DELETED_TOGETHER)):
            if size and size + length > BYTES_TOGETHER:
                break
            last, size = page, size + length + 1
        return sql.execute("DELETE FROM pages WHERE feed = ? AND page <= ?", (key, last)).rowcount

    @in_transaction
    def _delete_rows(self, sql: sqlite3.Connection, table: str, key: str) -> int:
        columns = ", ".join(_primary_key(sql, table))
        some = f"SELECT {columns} FROM {table} WHERE feed = ? LIMIT ?"
        delete = f"DELETE FROM {table} WHERE ({columns}) IN ({some})"
        return sql.execute(delete, (key, DELETED_TOGETHER)).rowcount

    @in_transaction
    def _delete_records(self, sql: sqlite3.Connection, key: str) -> Sequence[tuple[str, int]]:
        """Delete some records of *key*, of one kind; return their kind and number."""
        for kind in _kinds_of(sql, key):
            columns = ", ".join(_primary_key(sql, _RECORDS))
            some = f"SELECT {columns} FROM {_RECORDS} WHERE kind = ? AND feed = ? LIMIT ?"
            delete = f"DELETE FROM {_RECORDS} WHERE ({columns}) IN ({some})"
            deleted = sql.execute(delete, (kind, key, DELETED_TOGETHER)).rowcount
            return [(kind, deleted)]
        return []


def _kinds_of(sql: sqlite3.Connection, key: str) -> Iterator[str]:
    """Yield the kinds of the records of *key*."""
    kind, following = "", f"SELECT min(kind) FROM {_RECORDS} WHERE kind > ?"
    found = f"SELECT 1 FROM {_RECORDS} WHERE kind = ? AND feed = ? LIMIT 1"
    while kind := sql.execute(following, (kind,)).fetchone()[0] or "":
        if sql.execute(found, (kind, key)).fetchone():
            yield kind


def _primary_key(sql: sqlite3.Connection, table: str) -> list[str]:
    rows = sql.execute("SELECT name FROM pragma_table_info(?) WHERE pk > 0 ORDER BY pk", (table,))
    return [name for (name,) in rows]

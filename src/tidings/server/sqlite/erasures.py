"""The changes that erasures make to a database file of SQLite.

SQLite overwrites deleted content within a page of the file (`secure_delete`), but not pages that
become free, and not the copies of rows that it leaves in a page when it moves rows to another page.
`SqliteFreeSpace` overwrites the free pages while the server runs. The copies within pages (26 of
32,788 in a test) are removed by rewriting the file, at the next start of the server.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidings.core.errors import Unavailable
from tidings.core.records import HOST_RECORDS, Kind, Write
from tidings.server.sqlite.database import Database, in_transaction
from tidings.server.sqlite.records import SqliteRecords

if TYPE_CHECKING:
    import sqlite3

    from tidings.core.consumers.consumer import ConsumerStore, Parked
    from tidings.core.model.pages import Page
    from tidings.core.state.removed_parents import RemovedParents

log = logging.getLogger(__name__)
# The free pages that one transaction overwrites: 1 MB, in some 2 ms.
_PAGES = 256
_OVERHEAD = 4  # bytes of an overflow page that are not content
VACUUM = Kind("vacuum")  # exists while the file must be rewritten at the next start


class SqliteRewrites:
    """Implements `RewriteStore`."""

    def __init__(self, database: Database, consumers: ConsumerStore) -> None:
        self._database, self._consumers = database, consumers

    @in_transaction
    def rewrite_page(
        self, sql: sqlite3.Connection, feed: str, page: Page, body: str | bytes
    ) -> bool:
        return _rewrite(sql, "pages", (feed, page.number), page.body, body)

    @in_transaction
    def rewrite_removed_parents(
        self, sql: sqlite3.Connection, feed: str, removed: RemovedParents, body: str | bytes
    ) -> bool:
        return _rewrite(sql, "removed_parents", (feed, removed.page), removed.body, body)

    def rewrite_parked(self, feed: str, name: str, parked: Parked, changed: Parked) -> bool:
        return self._consumers.rewrite_parked(feed, name, parked, changed)


def _rewrite(
    sql: sqlite3.Connection,
    table: str,
    key: tuple[str, int],
    before: str | bytes,
    body: str | bytes,
) -> bool:
    """Replace the body *before* of the row *key* of *table*; see `RewriteStore`."""
    where = f"{table} WHERE feed = ? AND page = ?"
    stored = sql.execute(f"SELECT body FROM {where}", key).fetchone()
    if stored is None or stored[0] not in (before, body):
        return False
    sql.execute(f"UPDATE {table} SET body = ? WHERE feed = ? AND page = ?", (body, *key))
    return True


class SqliteFreeSpace:
    """The space in the file of *database* that may have content of deleted rows."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._records = SqliteRecords(database)

    def overwrite(self) -> bool:
        """Overwrite the free pages of the file, and truncate the write-ahead log.

        Note that the file must be rewritten at the next start. Return False if a reader, such as a
        backup, prevents that the log is truncated.

        Raises:
            Unavailable: the disk is full or does not answer.
        """
        if not self._is_due():
            self._records.write(HOST_RECORDS, [Write(VACUUM, "", {"due": True})])
        with self._database.reading() as sql:
            (pages,) = sql.execute("PRAGMA freelist_count").fetchone()
            (size,) = sql.execute("PRAGMA page_size").fetchone()
        # A killed process may have left the table, with rows.
        self._execute("CREATE TABLE IF NOT EXISTS free_space (body)")
        for first in range(0, pages, _PAGES):
            zeros = min(_PAGES, pages - first) * (size - _OVERHEAD)
            self._execute("INSERT INTO free_space VALUES (zeroblob(?))", zeros)
        oldest = "(SELECT rowid FROM free_space LIMIT 1)"
        while self._execute(f"DELETE FROM free_space WHERE rowid = {oldest}"):
            pass
        self._execute("DROP TABLE free_space")
        return self._database.truncate_wal()

    def rewrite_file(self) -> bool:
        """Rewrite the file if this is due; return False if that failed, so that it is still due.

        Nothing else may use the file at that time.
        """
        if not self._is_due():
            return True
        try:
            self._database.vacuum()
        except Unavailable as error:
            log.warning("the file was not rewritten without its free space: %s", error)
            return False
        self._records.write(HOST_RECORDS, [Write(VACUUM, "", None)])
        return True

    def _is_due(self) -> bool:
        return self._records.get(HOST_RECORDS, VACUUM) is not None

    @in_transaction
    def _execute(self, sql: sqlite3.Connection, statement: str, *values: object) -> int:
        return sql.execute(statement, values).rowcount

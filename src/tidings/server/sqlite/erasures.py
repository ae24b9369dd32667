"""The changes that erasures make to stored entries, on SQLite."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.server.sqlite.database import Database, in_transaction

if TYPE_CHECKING:
    import sqlite3

    from tidings.core.consumers.consumer import Parked
    from tidings.core.model.pages import Page
    from tidings.core.state.removed_parents import RemovedParents
    from tidings.server.sqlite.documents import SqliteConsumers


class SqliteRewrites:
    """Implements `RewriteStore`."""

    def __init__(self, database: Database, consumers: SqliteConsumers) -> None:
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

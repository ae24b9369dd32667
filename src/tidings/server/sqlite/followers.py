"""Checkpoints of followers on SQLite, and the counts that `/status` reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.core.counters import Totals
from tidings.server.memory.followers import MemoryFollowers

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from tidings.server.sqlite.database import Database


class SqliteFollowers(MemoryFollowers):
    """
    As in memory, where leases belong: nobody else can hold one while this process has the file.

    A checkpoint is written along with the next transaction, whoever makes it. So after a crash a
    follower may stand further back than it was, and handles pages again, as it must be able to.
    """

    def __init__(self, database: Database) -> None:
        super().__init__()
        with database.reading() as sql:
            for row in sql.execute(
                "SELECT feed, name, checkpoint, operations, note FROM followers"
            ):
                self.stand(*row)
        self._written = self.all_checkpoints()

    def write(self, sql: sqlite3.Connection) -> Callable[[], None]:
        """
        Write within a transaction the checkpoints that are not on disk as they are now.

        Call what is returned once the transaction is on disk: one that failed wrote nothing.
        """
        now = self.all_checkpoints()
        if changed := now - self._written:
            sql.executemany("INSERT OR REPLACE INTO followers VALUES (?, ?, ?, ?, ?)", changed)

        def written() -> None:
            self._written = now

        return written


class SqliteCounters:
    """Implements `Counters`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def refuse(self, feed: str) -> None:
        self._add(feed, Totals(refused=1))

    def serve(self, feed: str, *, connections: int, sent: int) -> None:
        self._add(feed, Totals(connections=connections, sent=sent))

    def attend(self, feed: str, place: str, clients: int, *, until_ms: int) -> None:
        with self._database.transaction() as sql:
            sql.execute("DELETE FROM clients WHERE feed = ? AND place = ?", (feed, place))
            if clients:
                columns = feed, place, clients, until_ms
                sql.execute("INSERT INTO clients VALUES (?, ?, ?, ?)", columns)

    def totals(self, feed: str, *, now_ms: int) -> Totals:
        with self._database.reading() as sql:
            counted = sql.execute(
                "SELECT refused, connections, sent FROM counts WHERE feed = ?", (feed,)
            ).fetchone()
            (clients,) = sql.execute(
                "SELECT total(clients) FROM clients WHERE feed = ? AND until_ms > ?", (feed, now_ms)
            ).fetchone()
        refused, connections, sent = counted or (0, 0, 0)
        return Totals(refused, connections, sent, int(clients))

    def _add(self, feed: str, more: Totals) -> None:
        with self._database.transaction() as sql:
            sql.execute(
                "INSERT INTO counts VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
                " refused = refused + excluded.refused,"
                " connections = connections + excluded.connections, sent = sent + excluded.sent",
                (feed, more.refused, more.connections, more.sent),
            )

"""Checkpoints of followers on SQLite, and the counters that `/status` reports."""

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
    The followers, with leases in memory: no other process can hold one while this one has the file.

    A checkpoint is written with the next transaction of any thread. So after a crash a follower may
    resume from an earlier checkpoint and handle pages again, as it must be able to.
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
        Write the checkpoints that have changed since they were last on disk, within a transaction.

        Call the returned function once the transaction is on disk: a failed transaction wrote
        nothing.
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

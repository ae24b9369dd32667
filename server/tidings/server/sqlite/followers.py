"""Checkpoints and leases of followers on SQLite, and the counts that `/status` reports."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.counters import Totals
from tidings.core.errors import LeaseLost
from tidings.core.followers.leases import Lease

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from tidings.core.followers.leases import Observation
    from tidings.server.sqlite.database import Database

# In the order of the fields of `Lease`.
_LEASE = "feed, name, owner, fence, bell, checkpoint, expires_ms, operations, beat, look"


class SqliteFollowers:
    """Implements `FollowerStore`, `Checkpoints` and `Standings`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def take(
        self, feed: str, name: str, *, owner: str, now_ms: int, over: Observation | None = None
    ) -> Lease:
        with self._database.transaction() as sql:
            lease = _lease(sql, feed, name) or Lease(feed, name, "", 0, 0, 0, 0)
            if lease.owner and not (over and over.is_of(lease)):
                return lease
            taken = replace(lease, owner=owner, fence=lease.fence + 1)
            return _put(sql, _renewed(taken, now_ms))

    def mark(self, feed: str, name: str, *, look: str = "") -> str | None:
        with self._database.transaction() as sql:
            lease = _lease(sql, feed, name)
            if lease is None or not lease.owner:
                return None
            _put(sql, replace(lease, bell=lease.bell + 1, look=look or lease.look))
            return lease.look

    def save(self, lease: Lease, checkpoint: int, *, now_ms: int) -> Lease:
        with self._database.transaction() as sql:
            held = _held(sql, lease)
            if held is None:
                raise LeaseLost(feed=lease.feed, follower=lease.name, fence=lease.fence)
            done = replace(held, checkpoint=checkpoint, operations=lease.operations)
            return _put(sql, _renewed(done, now_ms))

    def release(self, lease: Lease, *, force: bool = False) -> bool:
        with self._database.transaction() as sql:
            held = _held(sql, lease)
            if held is None:
                return True
            if held.bell != lease.bell and not force:
                return False
            done = replace(held, checkpoint=lease.checkpoint, operations=lease.operations)
            _put(sql, replace(done, owner="", expires_ms=0))
            return True

    def checkpoints(self, feed: str) -> dict[str, int]:
        return {lease.name: lease.checkpoint for lease in self.standings(feed)}

    def standings(self, feed: str) -> Sequence[Lease]:
        with self._database.reading() as sql:
            statement = f"SELECT {_LEASE} FROM followers WHERE feed = ? ORDER BY name"
            return [Lease(*each) for each in sql.execute(statement, (feed,)).fetchall()]


def _lease(sql: sqlite3.Connection, feed: str, name: str) -> Lease | None:
    statement = f"SELECT {_LEASE} FROM followers WHERE feed = ? AND name = ?"
    found = sql.execute(statement, (feed, name)).fetchone()
    return Lease(*found) if found else None


def _held(sql: sqlite3.Connection, lease: Lease) -> Lease | None:
    """*lease* as it is stored, None when it was lost or let go."""
    found = _lease(sql, lease.feed, lease.name)
    ours = found and (found.fence, found.owner) == (lease.fence, lease.owner)
    return found if ours else None


def _renewed(lease: Lease, now_ms: int) -> Lease:
    return replace(lease, expires_ms=now_ms + limits.LEASE_MS, beat=lease.beat + 1)


def _put(sql: sqlite3.Connection, lease: Lease) -> Lease:
    columns = tuple(getattr(lease, name) for name in _LEASE.split(", "))
    statement = f"INSERT OR REPLACE INTO followers ({_LEASE}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    sql.execute(statement, columns)
    return lease


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

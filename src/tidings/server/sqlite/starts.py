"""The last start of a server on this file, by which a copy of the file is recognized."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tidings.server.sqlite.database import Database


class Start(NamedTuple):
    """
    A start at *at_ms*: its *id*, and the modification time of the file next to the data file.

    The id is empty in a backup that was made at *at_ms*, and in a file that no server has started
    on.
    """

    id: str
    changed_ns: int
    at_ms: int

    def matches(self, found_id: str, changed_ns: int) -> bool:
        """Return True if the file next to the data file was written by this start."""
        return self.id != "" and (self.id, self.changed_ns) == (found_id, changed_ns)


class SqliteStarts:
    def __init__(self, database: Database) -> None:
        self.database = database

    def last(self) -> Start | None:
        """Return the last start; None for a new file, which no server has written to."""
        with self.database.reading() as sql:
            row = sql.execute("SELECT id, changed_ns, at_ms FROM starts").fetchone()
        if row is not None:
            return Start(*row)
        return Start("", 0, 0) if self.heads() else None

    def put(self, start: Start) -> None:
        with self.database.transaction() as sql:
            sql.execute("DELETE FROM starts")
            sql.execute("INSERT INTO starts VALUES (?, ?, ?)", start)

    def heads(self) -> dict[str, int]:
        """Return the last page number of each feed that has a log."""
        with self.database.reading() as sql:
            return dict(sql.execute("SELECT feed, page FROM heads").fetchall())

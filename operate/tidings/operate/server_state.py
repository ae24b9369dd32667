"""The state of a server that does not run, to be verified or rebuilt."""

from __future__ import annotations

from dataclasses import dataclass

from tidings.core.log.reader import Reader
from tidings.server.host import now_ms
from tidings.server.sqlite.database import Database
from tidings.server.sqlite.followers import SqliteFollowers
from tidings.server.sqlite.log import SqliteLog
from tidings.server.sqlite.state import SqliteState, SqliteTombstones
from tidings.web import settings


@dataclass(frozen=True, slots=True)
class ServerState:
    """*feed* in the file of a server, which *database* holds meanwhile."""

    feed: str
    database: Database

    def followers(self) -> SqliteFollowers:
        return SqliteFollowers(self.database)

    def reader(self) -> Reader:
        log = SqliteLog(self.database)
        return Reader(log, log, self.followers(), now_ms, uncounted)

    def states(self) -> SqliteState:
        return SqliteState(self.database)

    def tombstone_ms(self) -> int:
        """As the server has remembered, or by the retention that it has by itself."""
        values = settings.values_of({}, settings.SHARED)
        remembered = SqliteTombstones(self.database).remembered(self.feed)
        wanted = settings.parse(values, coordinated=False).tombstone_ms
        return max(wanted, remembered.life_ms if remembered else 0)


def uncounted(metric: str, value: int) -> None:
    """What a command finds is in what it prints."""

"""The state of a server that does not run, to be verified or rebuilt."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tidings.core.archive.reader import ArchiveReader
from tidings.core.log.reader import Reader
from tidings.core.maintenance.stores import Spill
from tidings.core.maintenance.verify import Verifier
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

    def verifier(
        self, spill: Spill, buckets: Collection[int], archive: ArchiveReader | None = None
    ) -> Verifier:
        log, followers = SqliteLog(self.database), SqliteFollowers(self.database)
        return Verifier(
            self.feed,
            self.states(),
            followers,
            Reader(log, log, followers, now_ms, _uncounted),
            spill,
            now_ms,
            self._tombstone_ms(),
            buckets,
            archive,
        )

    def states(self) -> SqliteState:
        return SqliteState(self.database)

    def _tombstone_ms(self) -> int:
        """As the server has remembered, or by the retention that it has by itself."""
        values = settings.values_of({}, settings.SHARED)
        remembered = SqliteTombstones(self.database).remembered(self.feed)
        wanted = settings.parse(values, coordinated=False).tombstone_ms
        return max(wanted, remembered.life_ms if remembered else 0)


def _uncounted(metric: str, value: int) -> None:
    """What a command finds is in what it prints."""

"""The stores of a server: one SQLite file, and memory for data that ends with the process."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidings.assembly.stores import Views
from tidings.core.model.feeds import HOST
from tidings.core.replication.election import Coordinator
from tidings.core.settings.profiles import Profile, ProfileStore
from tidings.http.outbound.folder_archive import FolderArchive, FolderLedger
from tidings.server.memory import (
    MemoryConnections,
    MemoryInbox,
    MemoryKeyUsage,
    MemoryRegistry,
    MemorySubscriptions,
)
from tidings.server.sqlite.database import Database
from tidings.server.sqlite.due import SqliteDueFeeds
from tidings.server.sqlite.erasures import SqliteFreeSpace, SqliteRewrites
from tidings.server.sqlite.log import (
    SqliteClaims,
    SqliteCounters,
    SqliteFollowers,
    SqliteLog,
    SqliteRelays,
    SqliteStreams,
)
from tidings.server.sqlite.records import SqliteRecords
from tidings.server.sqlite.state import (
    SqliteRemovedParents,
    SqliteState,
    SqliteSums,
    SqliteTags,
)

if TYPE_CHECKING:
    from tidings.core.effects import Clock
    from tidings.core.state.projector import SumDemand
    from tidings.server.settings import Settings
    from tidings.server.sockets import Sockets
    from tidings.server.wakeups import Wakeups


class ServerProfiles(ProfileStore):
    """The profiles of a server.

    *host_passwords* are the passwords in the options of this process, which also open the host.
    They are not stored, so that they end with the process.
    """

    host_passwords = Profile()

    def profile(self, feed: str) -> Profile:
        profile, more = super().profile(feed), self.host_passwords
        if feed != HOST or not more.is_protected:
            return profile
        return replace(
            profile,
            read_passwords=profile.read_passwords + more.read_passwords,
            ingest_passwords=profile.ingest_passwords + more.ingest_passwords,
        )

    def save(self, feed: str, profile: Profile) -> bool:
        if feed == HOST:
            more = self.host_passwords
            profile = replace(
                profile,
                read_passwords=_without(profile.read_passwords, more.read_passwords),
                ingest_passwords=_without(profile.ingest_passwords, more.ingest_passwords),
            )
        return super().save(feed, profile)


def _without(passwords: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(each for each in passwords if each not in others)


class FileStores(Views):
    """Implements `Stores` in *database*, and in the files that *settings* name.

    *folder* has the archive and the ledger of erasures. *elections* is the file of the leader
    elections, or None. *expiring* is the clock by which claims and records expire.
    """

    profiles: ServerProfiles
    records: SqliteRecords

    def __init__(
        self,
        database: Database,
        settings: Settings,
        *,
        sockets: Sockets,
        waker: Wakeups,
        sum_demand: SumDemand,
        expiring: Clock,
    ) -> None:
        coordinator, archive = settings.coordinator, settings.archive
        self.folder = archive or database.path.parent
        self.elections = Database(coordinator, shared=True) if coordinator else None
        self.records = SqliteRecords(database, expiring)
        self.log = SqliteLog(database)
        self.numbers = self.log
        self.due_feeds, self.claims = SqliteDueFeeds(database), SqliteClaims(database, expiring)
        self.followers = SqliteFollowers(database)
        self.counters = SqliteCounters(database)
        self.state = SqliteState(database, sum_demand.wants)
        self.removed_parents = SqliteRemovedParents(database)
        self.sums, self.tags = SqliteSums(database), SqliteTags(database)
        self.profiles = ServerProfiles(self.records)
        self.key_usage = MemoryKeyUsage()
        self.streams = SqliteStreams(database)
        self.rewrites = SqliteRewrites(database, self.consumers)
        self.erasure_ledger = FolderLedger(self.folder)
        self.free_space = SqliteFreeSpace(database)
        self.relays = SqliteRelays(database, self.log)
        self.coordinator = Coordinator(SqliteRecords(self.elections)) if self.elections else None
        self.archive = FolderArchive(archive) if archive else None
        self.inbox, self.subscriptions = MemoryInbox(), MemorySubscriptions()
        self.registry = MemoryRegistry()
        self.connections = MemoryConnections(self.inbox, self.subscriptions, self.registry)
        self.sockets, self.waker = sockets, waker
        self.replay_sockets, self.replay_room = sockets.for_replays, sockets
        self.without_retries = self.outbox = None

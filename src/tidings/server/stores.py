"""The stores of a server: one SQLite file, and memory for data that ends with the process."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidings.server.memory import (
    MemoryConnections,
    MemoryInbox,
    MemoryKeyUsage,
    MemoryRegistry,
    MemorySubscriptions,
)
from tidings.server.sqlite.documents import (
    Documents,
    SqliteConsumers,
    SqliteCoordinator,
    SqliteErasures,
    SqliteFeeds,
    SqliteKeys,
    SqliteOperatorDocuments,
    SqliteProfiles,
    SqliteStreams,
    SqliteUpstreams,
)
from tidings.server.sqlite.due import SqliteDueFeeds
from tidings.server.sqlite.erasures import SqliteFreeSpace, SqliteRewrites
from tidings.server.sqlite.log import (
    SqliteClaims,
    SqliteCounters,
    SqliteFollowers,
    SqliteLog,
    SqliteRelays,
)
from tidings.server.sqlite.state import (
    SqliteRemovedParents,
    SqliteState,
    SqliteSums,
    SqliteTags,
    SqliteTombstones,
)

if TYPE_CHECKING:
    from tidings.core.effects import Clock
    from tidings.core.state.projector import SumDemand
    from tidings.http.outbound.folder_archive import FolderArchive, FolderLedger
    from tidings.server.sockets import Sockets
    from tidings.server.sqlite.database import Database
    from tidings.server.wakeups import Wakeups


class FileStores:
    """Implements `Stores` in *database*.

    *elections* is the file of the leader elections, or None. *expiring* is the clock by which
    claims expire.
    """

    def __init__(
        self,
        database: Database,
        elections: Database | None,
        archive: FolderArchive | None,
        ledger: FolderLedger,
        *,
        sockets: Sockets,
        waker: Wakeups,
        sum_demand: SumDemand,
        expiring: Clock,
    ) -> None:
        documents = partial(Documents, database)
        self.feed_store, self.log = SqliteFeeds(database), SqliteLog(database)
        self.renewals = self.numbers = self.log
        self.due_feeds, self.claims = SqliteDueFeeds(database), SqliteClaims(database, expiring)
        self.followers = SqliteFollowers(database)
        self.counters = SqliteCounters(database)
        self.state = SqliteState(database, sum_demand.wants)
        self.removed_parents = SqliteRemovedParents(database)
        self.tombstones = SqliteTombstones(database)
        self.sums, self.tags = SqliteSums(database), SqliteTags(database)
        self.profiles = SqliteProfiles(documents)
        self.documents = SqliteOperatorDocuments(documents)
        self.keys = SqliteKeys(documents)
        self.key_usage = MemoryKeyUsage()
        self.streams = SqliteStreams(database)
        self.consumers = SqliteConsumers(database)
        self.erasures = SqliteErasures(database)
        self.rewrites = SqliteRewrites(database, self.consumers)
        self.erasure_ledger = ledger
        self.free_space = SqliteFreeSpace(database)
        self.relays = SqliteRelays(database, self.log)
        self.relay_passwords = SqliteUpstreams(database)
        self.coordinator = SqliteCoordinator(elections) if elections else None
        self.archive = archive
        self.inbox, self.subscriptions = MemoryInbox(), MemorySubscriptions()
        self.registry = MemoryRegistry()
        self.connections = MemoryConnections(self.inbox, self.subscriptions, self.registry)
        self.sockets, self.waker = sockets, waker
        self.replay_sockets, self.replay_room = sockets.for_replays, sockets
        self.without_retries = None

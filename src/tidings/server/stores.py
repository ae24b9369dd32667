"""The stores of a server: one SQLite file, plus memory for data of open connections."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidings.core.followers.follower import STATE
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
    SqliteKeys,
    SqliteOperatorDocuments,
    SqliteProfiles,
    SqliteStreams,
    SqliteUpstreams,
)
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
    from tidings.core.effects import Clock, Sleep
    from tidings.core.state.projector import SumDemand
    from tidings.http.outbound.folder_archive import FolderArchive
    from tidings.server.sockets import Sockets
    from tidings.server.sqlite.database import Database
    from tidings.server.wakeups import Wakeups

SETTLE_POLL_MS, SETTLE_POLLS_MAX = 2, 250  # half a second: the maximum wait of a registration


class FileStores:
    """
    Implements `Stores` in *database*.

    *elections* is the file of the leader election, if any; *expiring* is the clock by which claims
    expire.
    """

    def __init__(
        self,
        database: Database,
        elections: Database | None,
        archive: FolderArchive | None,
        *,
        sockets: Sockets,
        waker: Wakeups,
        sum_demand: SumDemand,
        expiring: Clock,
        sleep: Sleep,
    ) -> None:
        documents = partial(Documents, database)
        self.log = self.renewals = SqliteLog(database)
        self.claims = SqliteClaims(database, expiring)
        self.followers = SqliteFollowers(database)
        self.counters = SqliteCounters(database)
        self.state = SqliteState(database, sum_demand.wants)
        self.removed_parents = SqliteRemovedParents(database)
        self.tombstones = SqliteTombstones(database)
        self.sums = SqliteSums(database)
        self.tags = SqliteTags(database)
        self.profiles = SqliteProfiles(documents)
        self.documents = SqliteOperatorDocuments(documents)
        self.keys = SqliteKeys(documents)
        self.key_usage = MemoryKeyUsage()
        self.streams = SqliteStreams(database)
        self.consumers = SqliteConsumers(database)
        self.relays = SqliteRelays(database, self.log)
        self.relay_passwords = SqliteUpstreams(database)
        self.coordinator = SqliteCoordinator(elections) if elections else None
        self.archive = archive
        self.inbox, self.subscriptions = MemoryInbox(), MemorySubscriptions()
        self.registry = MemoryRegistry()
        self.connections = MemoryConnections(self.inbox, self.subscriptions, self.registry)
        self.sockets, self.waker = sockets, waker
        self.replay_sockets, self.replay_room = sockets.for_replays, sockets
        self.settled = _Settled(self.followers, self.log, sleep)
        self.unretried = None


class _Settled:
    """
    Implements `Checkpoints`: waits until the state has reached the head of the log.

    The state pauses between batches. Without the wait, a listener that registers during a pause
    would receive changes again that were acknowledged before.
    """

    def __init__(self, followers: SqliteFollowers, log: SqliteLog, sleep: Sleep) -> None:
        self._followers, self._log, self._sleep = followers, log, sleep

    def checkpoints(self, feed: str) -> dict[str, int]:
        head = self._log.head(feed)
        for _ in range(SETTLE_POLLS_MAX):
            checkpoints = self._followers.checkpoints(feed)
            if checkpoints.get(STATE, 0) >= head:
                return {**checkpoints, STATE: head}
            self._sleep(SETTLE_POLL_MS)
        return self._followers.checkpoints(feed)

"""A fake of every port, kept in this process: for tests, the simulation and benchmarks.

They pass the same contract as the stores of `tidings.aws` and bound their answers alike, so
that code which relies on more than the ports promise fails here too.
"""

from tests.fakes.records import MemoryRecords
from tidings.server.memory import (
    MemoryConnections,
    MemoryFollowers,
    MemoryInbox,
    MemoryKeyUsage,
    MemoryRegistry,
    MemorySubscriptions,
)

from .archive import MemoryArchive, MemoryLedger
from .counters import MemoryCounters
from .due import MemoryDueFeeds
from .log import MemoryClaims, MemoryLog
from .outbox import MemoryOutbox
from .settings import (
    MemoryConsumers,
    MemoryCoordinator,
    MemoryErasures,
    MemoryFeeds,
    MemoryKeys,
    MemoryOperatorDocuments,
    MemoryProfiles,
    MemoryRelays,
    MemoryRewrites,
    MemoryStreams,
)
from .sockets import MemorySockets, MemoryWaker
from .spill import MemorySpill
from .state import MemoryRemovedParents, MemoryState, MemorySums, MemoryTags, MemoryTombstones
from .upstream import MemoryUpstream

__all__ = [
    "MemoryArchive",
    "MemoryClaims",
    "MemoryConnections",
    "MemoryConsumers",
    "MemoryCoordinator",
    "MemoryCounters",
    "MemoryDueFeeds",
    "MemoryErasures",
    "MemoryFeeds",
    "MemoryFollowers",
    "MemoryInbox",
    "MemoryKeyUsage",
    "MemoryKeys",
    "MemoryLedger",
    "MemoryLog",
    "MemoryOperatorDocuments",
    "MemoryOutbox",
    "MemoryProfiles",
    "MemoryRecords",
    "MemoryRegistry",
    "MemoryRelays",
    "MemoryRemovedParents",
    "MemoryRewrites",
    "MemorySockets",
    "MemorySpill",
    "MemoryState",
    "MemoryStreams",
    "MemorySubscriptions",
    "MemorySums",
    "MemoryTags",
    "MemoryTombstones",
    "MemoryUpstream",
    "MemoryWaker",
]

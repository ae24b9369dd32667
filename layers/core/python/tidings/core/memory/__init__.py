"""
Every port of `ports`, kept in this process: for the simulation, for tests and to try things.

They pass the same contract as the stores of `tidings.aws` and bound their answers alike, so
that code which relies on more than the ports promise fails here too.
"""

from .archive import MemoryArchive
from .clusters import MemoryCoordinator
from .connections import MemoryConnections, MemoryInbox, MemoryRegistry, MemoryWatches
from .consumers import MemoryConsumers
from .control import MemoryClaims, MemoryFollowers
from .departures import MemoryDepartures
from .keys import MemoryKeyCounts, MemoryKeyHolds, MemoryKeys
from .log import MemoryLog
from .outbox import MemoryOutbox
from .profiles import MemoryProfiles
from .relays import MemoryRelays
from .sheets import MemorySheets
from .sockets import MemoryBells, MemorySockets
from .spill import MemorySpill
from .state import MemoryState
from .tags import MemoryTags
from .tallies import MemoryTallies
from .tombstones import MemoryTombstones
from .upstream import MemoryUpstream

__all__ = [
    "MemoryArchive",
    "MemoryBells",
    "MemoryClaims",
    "MemoryConnections",
    "MemoryConsumers",
    "MemoryCoordinator",
    "MemoryDepartures",
    "MemoryFollowers",
    "MemoryInbox",
    "MemoryKeyCounts",
    "MemoryKeyHolds",
    "MemoryKeys",
    "MemoryLog",
    "MemoryOutbox",
    "MemoryProfiles",
    "MemoryRegistry",
    "MemoryRelays",
    "MemorySheets",
    "MemorySockets",
    "MemorySpill",
    "MemoryState",
    "MemoryTags",
    "MemoryTallies",
    "MemoryTombstones",
    "MemoryUpstream",
    "MemoryWatches",
]

"""
Watching relays, once a minute: each is rung, and told to whom alarms belong.

Also of a relay that does not run at all: what is counted is in its document.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.core.errors import BrokenRelay
from tidings.core.replication.replica import RELAY, Wanted

if TYPE_CHECKING:
    from tidings.core.effects import Clock, Count
    from tidings.core.followers.stores import Waker
    from tidings.core.replication.source import Sources
    from tidings.core.replication.stores import RelayStore


@dataclass(frozen=True, slots=True)
class ReplicaMonitor:
    store: RelayStore
    sources: Sources
    waker: Waker
    clock: Clock
    count: Count

    def run(self, feed: str) -> None:
        """Nothing is told of what an operator has stopped, nor of a feed that is local."""
        if feed not in self.sources:
            return
        self.waker.ring(feed, RELAY)
        try:
            relay = self.store.relay(feed)
        except BrokenRelay:  # its run fails, and says why; other feeds are swept all the same
            self.count("RelaysStanding", 1)
            return
        if relay.version == 0 or relay.wanted is not Wanted.RUN:
            return
        self.count("RelayLag", max(0, relay.upstream_head - relay.checkpoint))
        self.count("RelaysStanding", int(relay.stands))
        self.count("RelayUpstreamAge", self._age_s(relay.upstream_read_ms))
        self.count("RelayMasterAge", self._age_s(relay.master_read_ms))

    def _age_s(self, read_ms: int) -> int:
        """0 where it was never read: the relay tells that by its retries."""
        return max(0, self.clock() - read_ms) // 1000 if read_ms else 0

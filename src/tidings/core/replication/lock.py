"""
Holding a relay: one run at a time, by its document, whose version guards every write.

What is read between two writes, where the upstream stands and what came twice, is kept here and
stored with the next one.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.deadlines import has_passed
from tidings.core.settings.profiles import bounded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidings.core.effects import Clock
    from tidings.core.model.pages import Page
    from tidings.core.replication.replica import Relay
    from tidings.core.replication.stores import RelayStore
    from tidings.core.replication.wire import Standing
    from tidings.core.settings.profiles import Lost


@dataclass(frozen=True, slots=True)
class Seen:
    """What the upstream said of itself when it was read last."""

    upstream_read_ms: int
    master_read_ms: int
    upstream_head: int
    upstream_ended: bool
    master: str
    via: tuple[str, ...]
    lost: tuple[Lost, ...]


@dataclass(slots=True)
class Hold:
    """
    *relay* is the document as *owner* knows it; where it may have changed since, `look` first.

    *repeated* pages came again since the last write.
    """

    store: RelayStore
    clock: Clock
    owner: str
    relay: Relay
    repeated: int = 0
    _stale: bool = False
    _saved_ms: int = 0
    _seen: Seen | None = None

    def look(self) -> bool:
        """Whether the relay is still held by us, as far as its document says."""
        if self._stale:
            self.relay, self._stale = self.store.relay(self.relay.feed), False
        return self.relay.owner == self.owner

    def doubt(self) -> None:
        """Time has passed: an operator may have been here."""
        self._stale = True

    def save(self, after: Relay) -> bool:
        """
        Store *after* and hold on; it becomes `relay`.

        False: somebody else was faster. Nothing was written.
        """
        held, self._stale = self._held(after), True  # whatever becomes of the next line
        return self._known(held) if self.store.write(self.relay, held) else False

    def append(self, after: Relay, pages: Sequence[Page]) -> bool:
        """As `save`, with *pages* in the log and its head at the checkpoint."""
        held, self._stale = self._held(after), True
        return self._known(held) if self.store.append(self.relay, held, pages) else False

    def keep(self) -> None:
        """Hold on, and store what was seen, every `limits.RELAY_TELL_MS`."""
        if has_passed(self._saved_ms, self.clock(), limits.RELAY_TELL_MS):
            self.save(self.relay)

    def let_go(self) -> None:
        free = replace(self._with_progress(self.relay), owner="", lease_until_ms=0)
        self.store.write(self.relay, free)

    def see(self, standing: Standing, url: str) -> None:
        """What *standing* says; the feed at *url* is a master if it names no other one."""
        now, known = self.clock(), self._seen or self.relay
        read_ms = min(now, standing.master_read_ms) if standing.master else now
        self._seen = Seen(
            upstream_read_ms=now,
            master_read_ms=max(known.master_read_ms, read_ms),
            upstream_head=standing.head,
            upstream_ended=standing.ended,
            master=standing.master or url,
            via=(*standing.via, self.relay.id),
            lost=bounded({*self.relay.lost, *standing.lost}),
        )

    @property
    def has_news(self) -> bool:
        """Whether those who read us should know at once what the upstream said."""
        seen, known = self._seen, self.relay
        return seen is not None and (seen.via, seen.upstream_ended, seen.lost) != (
            known.via,
            known.upstream_ended,
            known.lost,
        )

    def _held(self, relay: Relay) -> Relay:
        until_ms = self.clock() + limits.RELAY_LEASE_MS
        return replace(self._with_progress(relay), owner=self.owner, lease_until_ms=until_ms)

    def _with_progress(self, relay: Relay) -> Relay:
        counts = replace(relay.counts, repeated=relay.counts.repeated + self.repeated)
        seen = asdict(self._seen) if self._seen else {}
        return replace(relay, counts=counts, **seen)

    def _known(self, held: Relay) -> bool:
        self.relay = replace(held, version=self.relay.version + 1)
        self._stale, self._saved_ms = False, self.clock()
        self.repeated, self._seen = 0, None
        return True

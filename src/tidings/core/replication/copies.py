"""Determine which feeds are copies of another feed at present, and refuse writes to these feeds.

Every writer imports this module. The module `relay` is therefore imported only when it is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.core.errors import BrokenRelay, Chained, TidingsError
from tidings.core.settings.profiles import Losses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidings.core.effects import Clock
    from tidings.core.replication.relay import Relay, RelayStore
    from tidings.core.replication.source import Source, Sources
    from tidings.core.settings.profiles import Lost


# Maximum age of the cached answer whether a feed is a copy. A promoted copy may still refuse
# producers for this time.
COPIES_TTL_MS = 1_000


class Copies(Mapping[str, "Source"]):
    """The sources of all feeds in *sources* that are still copies, because they were not promoted.

    The relay of a feed is read again after `COPIES_TTL_MS`. A feed counts as a copy if its relay
    cannot be read, so that no producer writes to a copy by mistake.
    """

    def __init__(self, sources: Sources, store: Callable[[], RelayStore], clock: Clock) -> None:
        self._sources, self._store, self._clock = sources, store, clock
        self._cached: dict[str, tuple[int, bool]] = {}

    def __getitem__(self, feed: str) -> Source:
        source = self._sources[feed]
        if not self._is_copy(feed):
            raise KeyError(feed)
        return source

    def __contains__(self, feed: object) -> bool:
        return feed in self._sources and self._is_copy(str(feed))

    def __iter__(self) -> Iterator[str]:
        return filter(self._is_copy, self._sources)

    def __len__(self) -> int:
        return sum(map(self._is_copy, self._sources))

    def _is_copy(self, feed: str) -> bool:
        now = self._clock()
        read_ms, is_copy = self._cached.get(feed, (0, True))
        if not 0 <= now - read_ms < COPIES_TTL_MS:
            is_copy = self._read(feed)
            self._cached[feed] = now, is_copy
        return is_copy

    def _read(self, feed: str) -> bool:
        from tidings.core.replication.relay import Wanted

        try:
            return self._store().relay(feed).wanted is not Wanted.PROMOTED
        except TidingsError:
            return True


@dataclass(frozen=True, slots=True)
class WriteGuard:
    """A guard that refuses writes to chained feeds, which reads a relay only to refuse one."""

    sources: Sources
    store: Callable[[], RelayStore] | None = None

    def check(self, feed: str) -> None:
        """Check that producers may post to *feed*.

        Raises:
            Chained: *feed* is a copy; the error contains the address to post to.
            Unavailable: *store* cannot read whether *feed* is a copy.
        """
        if (source := self.sources.get(feed)) is None:
            return
        from tidings.core.replication.relay import Wanted

        relay = self._relay(feed)
        if relay is None or relay.wanted is not Wanted.PROMOTED:  # which `sources` may not know yet
            raise Chained(feed, relay.master if relay and relay.master else source.url)

    def _relay(self, feed: str) -> Relay | None:
        try:
            return self.store().relay(feed) if self.store else None
        except BrokenRelay:
            return None


ALL_LOCAL = WriteGuard({})


@dataclass(frozen=True, slots=True)
class CopiedLosses(Losses):
    """The pages that each feed or its upstream lost, and the relays of the feeds in *copies*."""

    copies: Sources
    store: Callable[[], RelayStore]

    def relay(self, feed: str) -> Relay | None:
        """Return the relay of *feed*; None for a local feed."""
        return self.store().relay(feed) if feed in self.copies else None

    def ranges(self, feed: str) -> tuple[Lost, ...]:
        relay = self.relay(feed)
        return (*self.profiles.profile(feed).lost, *(relay.lost if relay else ()))

    def is_copy(self, feed: str) -> bool:
        return feed in self.copies

    def copied_s(self, feed: str, page: int) -> int | None:
        relay = self.relay(feed)
        if relay is None:
            return None
        return relay.seconds if relay.checkpoint == page else 0

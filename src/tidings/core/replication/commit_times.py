"""What the relay of a chained feed knows of pages that are not in its log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container

    from tidings.core.replication.stores import RelayStore
    from tidings.core.settings.profiles import Lost


@dataclass(frozen=True, slots=True)
class CopiedUntil:
    """The commit times of pages of *chained* feeds that are not in the log, as far as known."""

    chained: Container[str]
    relays: RelayStore

    def __call__(self, feed: str, page: int) -> int | None:
        """
        The second in which *page* was committed upstream, 0 where nobody knows.

        None for a feed of our own: what follows its last page has yet to be written. What follows
        the last page of a copy may have been written long ago, and be on its way.
        """
        if feed not in self.chained:
            return None
        relay = self.relays.relay(feed)
        return relay.seconds if relay.checkpoint == page else 0


@dataclass(frozen=True, slots=True)
class CopiedLosses:
    """What the upstreams of *chained* feeds lost."""

    chained: Container[str]
    relays: RelayStore

    def __call__(self, feed: str) -> tuple[Lost, ...]:
        return self.relays.relay(feed).lost if feed in self.chained else ()

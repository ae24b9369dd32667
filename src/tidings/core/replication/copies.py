"""Which feeds are copies now: those that settings chain, but for the ones that were promoted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidings.core.errors import TidingsError
from tidings.core.replication.replica import Wanted
from tidings.core.replication.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidings.core.effects import Clock
    from tidings.core.replication.source import Sources
    from tidings.core.replication.stores import RelayStore

LOOK_MS = 1_000  # how long a copy that was promoted may still refuse producers


class Copies(Mapping[str, Source]):
    """
    Those of *sources* that are copies, as far as the relays of *store* say; looks every `LOOK_MS`.

    A relay that cannot be read is one of a copy: nobody may write to it by mistake.
    """

    def __init__(self, sources: Sources, store: Callable[[], RelayStore], clock: Clock) -> None:
        self._sources, self._store, self._clock = sources, store, clock
        self._looked: dict[str, tuple[int, bool]] = {}

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
        looked_ms, is_copy = self._looked.get(feed, (0, True))
        if not 0 <= now - looked_ms < LOOK_MS:
            is_copy = self._look(feed)
            self._looked[feed] = now, is_copy
        return is_copy

    def _look(self, feed: str) -> bool:
        try:
            return self._store().relay(feed).wanted is not Wanted.PROMOTED
        except TidingsError:
            return True

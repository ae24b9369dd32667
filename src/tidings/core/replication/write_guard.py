"""Masters: who may write to a feed. One that copies another is written by its relay alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.core.errors import Chained

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidings.core.replication.source import Sources


@dataclass(frozen=True, slots=True)
class WriteGuard:
    """Keeps writers off chained feeds. *master* tells what address a chained feed's master has."""

    sources: Sources
    master: Callable[[str], str] | None = None

    def check(self, feed: str) -> None:
        """
        Return if producers may post to *feed*.

        Raises:
            Chained: it is a copy; the error says where to post.
        """
        source = self.sources.get(feed)
        if source is not None:
            raise Chained(feed, (self.master(feed) if self.master else "") or source.url)


ALL_LOCAL = WriteGuard({})

"""What those who serve consumers with `leave=true` ask of the follower `state`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.core.followers.names import STATE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidings.core.log.stores import Checkpoints
    from tidings.core.model.pages import Page
    from tidings.core.state.removed_parents import Left
    from tidings.core.state.stores import RemovedParentsStore


@dataclass(frozen=True, slots=True)
class RemovedParentsReader:
    store: RemovedParentsStore
    checkpoints: Checkpoints

    def until(self, feed: str) -> int:
        """The last page whose departures are settled: what is not written never will be."""
        return self.checkpoints.checkpoints(feed).get(STATE, 0)

    def left(self, feed: str, pages: Sequence[Page]) -> Mapping[int, Left]:
        """By page, the departures of *pages*, which ascend; unknown ones are not in it."""
        if not pages:
            return {}
        stored = self.store.read(feed, pages[0].number, pages[-1].number)
        return {departures.page: departures.left for departures in stored}

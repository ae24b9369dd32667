"""The follower `state`: the latest operation of each object, in the state table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .state import project

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .pages import Page
    from .ports import StateStore

STATE = "state"


@dataclass(frozen=True, slots=True)
class Projector:
    """
    Writes without conditions: its lease outlives any holder, so nobody older writes any more.

    Pages seen again put a row back to an earlier operation for a moment, but never to one
    before the checkpoint, and the same run brings it forward again.
    """

    states: StateStore
    tombstone_ms: int

    @property
    def name(self) -> str:
        return STATE

    def prepare(self, feed: str, checkpoint: int) -> None:
        """Nothing to prepare."""

    def handle(self, feed: str, pages: Sequence[Page]) -> None:
        rows = project(pages, tombstone_ms=self.tombstone_ms)
        if rows:
            self.states.write(feed, rows)

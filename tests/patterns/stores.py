"""Stores that fail on command."""

from __future__ import annotations

from collections.abc import Sequence

from tests.fakes import MemoryConsumers, MemoryLog, MemoryState
from tidings.core.consumers.consumer import Change
from tidings.core.errors import Unavailable
from tidings.core.model.pages import Page
from tidings.core.state.rows import Overwritten, Row


class Breaking(MemoryState):
    """Takes some rows and fails, while it is *broken*."""

    broken = True

    def write(self, feed: str, rows: Sequence[Row]) -> list[Overwritten | None]:
        overwritten = super().write(feed, rows[:1] if self.broken else rows)
        if self.broken:
            raise Unavailable("the state did not answer")
        return overwritten


class Deaf(MemoryLog):
    """Does not take pages while it is *broken*."""

    broken = False

    def put(self, feed: str, page: Page) -> str:
        if self.broken:
            raise Unavailable("the log did not answer")
        return super().put(feed, page)


class Stuck(MemoryConsumers):
    """Loses every race for a write, while it is *stuck*."""

    stuck = False

    def write(self, feed: str, name: str, version: int, change: Change) -> bool:
        return not self.stuck and super().write(feed, name, version, change)

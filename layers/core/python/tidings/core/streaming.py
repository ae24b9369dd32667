"""
Streaming: a catch-up that never ends, as SSE text.

A stream is a state machine without a socket: `next` gives the text to send now. Whoever
serves it decides how long to wait when there is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import cursors, feeds, filters, frames

if TYPE_CHECKING:
    from .catchup import CatchUp, Progress
    from .filters import Filter

HEARTBEAT = ":\n"


@dataclass(frozen=True, slots=True)
class Chunk:
    """*text* may be empty; *at_frontier*: nothing more for now."""

    text: str
    at_frontier: bool


@dataclass(slots=True)
class Stream:
    """One consumer's way through *feed*."""

    catch_up: CatchUp
    feed: str
    filter: Filter
    progress: Progress

    def next(self) -> Chunk:
        step = self.catch_up.step(self.feed, self.progress, self.filter)
        self.progress = step.progress
        return Chunk("".join(map(frames.to_sse, step.events)), step.at_frontier)


@dataclass(frozen=True, slots=True)
class Streamer:
    catch_up: CatchUp
    feeds: frozenset[str]

    def open(self, feed: str, cursor: str, types: str | None, parents: str | None) -> Stream:
        """
        The stream of *feed* behind *cursor*.

        Raises:
            InvalidFeed, UnknownFeed, InvalidCursor, InvalidFilter: see the rule in the error.
        """
        name = feeds.check_known(feed, self.feeds)
        at, wanted = cursors.parse(cursor), filters.parse(types, parents)
        return Stream(self.catch_up, name, wanted, self.catch_up.start(name, at))

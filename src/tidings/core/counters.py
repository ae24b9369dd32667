"""
Tallies: what `/status` tells beside the log, kept without a write for each operation or event.

A process that serves streams adds up and writes now and then. Its clients are a presence that
runs out by itself, so that the number comes back after a kill.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tidings.core import limits


@dataclass(frozen=True, slots=True)
class Taken:
    """
    What a feed's counter says: the last page number, and the operations numbers were taken for.

    Requests that died between number and page are among them. No number is taken any more where
    there is a *successor*: the address of the feed that goes on with the next one.
    """

    page: int
    operations: int
    successor: str = ""


@dataclass(frozen=True, slots=True)
class Totals:
    """*refused* requests, *connections* and *sent* events of streams ever; *clients* now."""

    refused: int = 0
    connections: int = 0
    sent: int = 0
    clients: int = 0


@dataclass(frozen=True, slots=True)
class Share:
    """What one process has to write: what came since the last time, and who is there now."""

    connections: int
    sent: int
    clients: int


@dataclass(slots=True)
class StreamCounter:
    """The streams of one feed in one process, and what of them is not written yet."""

    _clients: int = 0
    _connections: int = 0
    _sent: int = 0
    _changed: bool = False
    _written_ms: int = 0

    @property
    def is_empty(self) -> bool:
        """Nobody there and nothing to write."""
        return not (self._clients or self._changed or self._sent)

    @property
    def has_left(self) -> bool:
        """The last client is gone and nobody was told yet."""
        return self._changed and not self._clients

    def open(self) -> None:
        self._clients += 1
        self._connections += 1
        self._changed = True

    def send(self, events: int) -> None:
        self._sent += events

    def close(self) -> None:
        self._clients -= 1
        self._changed = True

    def is_due(self, now_ms: int) -> bool:
        """Whether to write: soon when somebody came or left, else now and then."""
        wait_ms = limits.COUNT_SOON_MS if self._changed else limits.COUNT_EVERY_MS
        return not self.is_empty and now_ms - self._written_ms >= wait_ms

    def share(self, now_ms: int) -> Share:
        """What to write; from now on it counts as written."""
        share = Share(self._connections, self._sent, self._clients)
        self._connections = self._sent = 0
        self._changed, self._written_ms = False, now_ms
        return share

    def give_back(self, share: Share) -> None:
        """The store did not answer: *share* is written with the next one."""
        self._connections += share.connections
        self._sent += share.sent
        self._changed = True


class Counters(Protocol):
    """What is counted for `/status` beside the log; good to a few seconds, never in the way."""

    def refuse(self, feed: str) -> None:
        """Count a request whose operations were refused."""

    def serve(self, feed: str, *, connections: int, sent: int) -> None:
        """Add to the streams that were opened and the events that were sent on them."""

    def attend(self, feed: str, place: str, clients: int, *, until_ms: int) -> None:
        """*place* has so many clients connected; forgotten unless said again by *until_ms*."""

    def totals(self, feed: str, *, now_ms: int) -> Totals:
        """Everything counted so far, and the clients of all places now."""

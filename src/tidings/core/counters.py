"""Count the figures of `/status` that are not in the log, without a write per operation.

A process that serves streams accumulates counts and writes them periodically. The number of clients
of a process is stored with an expiry, so that the clients of a crashed process are soon left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tidings.core import limits
from tidings.core.effects import has_passed, is_ahead
from tidings.core.errors import TidingsError, Unavailable, Yielded


@dataclass(frozen=True, slots=True)
class LogCounter:
    """The last page number of a feed, and the number of operations in the pages up to this number.

    *operations* also counts the operations of requests that took a page number and then failed to
    write the page. *successor* is the address of the feed that continues the log, or "". With a
    successor, no more numbers are taken.
    """

    page: int
    operations: int
    successor: str = ""


RESTORED = "restored"  # the successor of a log that continues in restored tables


def refusal(feed: str, successor: str) -> TidingsError:
    """Return the error for a request for a number of a log with a *successor*."""
    if successor == RESTORED:
        return Unavailable(f"{feed}: restored tables continue the log; repeat the request later")
    return Yielded(feed, successor)


@dataclass(frozen=True, slots=True)
class Totals:
    """Totals of *refused* requests, stream *connections* and *sent* events since the beginning.

    *clients* is the current number of clients.
    """

    refused: int = 0
    connections: int = 0
    sent: int = 0
    clients: int = 0


@dataclass(frozen=True, slots=True)
class CounterDelta:
    """The increments since the last write of a process, and the current number of its clients."""

    connections: int
    sent: int
    clients: int


@dataclass(slots=True)
class StreamCounter:
    """The unwritten counts of the streams of one feed in one process."""

    _clients: int = 0
    _connections: int = 0
    sent: int = 0
    _changed: bool = False
    _written_ms: int = 0

    @property
    def is_empty(self) -> bool:
        """Return True if there are no clients and there is nothing to write."""
        return not (self._clients or self._changed or self.sent)

    @property
    def has_left(self) -> bool:
        """Return True if the last client has disconnected, and this is not written yet."""
        return self._changed and not self._clients

    def open(self) -> None:
        self._clients += 1
        self._connections += 1
        self._changed = True

    def send(self, events: int) -> None:
        self.sent += events

    def close(self) -> None:
        self._clients -= 1
        self._changed = True

    def is_due(self, now_ms: int) -> bool:
        """Return True if a write is due.

        A write is due `limits.COUNT_SOON_MS` after the previous write if a client has connected or
        disconnected, and otherwise after `limits.COUNT_EVERY_MS`.
        """
        wait_ms = limits.COUNT_SOON_MS if self._changed else limits.COUNT_EVERY_MS
        return not self.is_empty and has_passed(self._written_ms, now_ms, wait_ms)

    def take_delta(self, now_ms: int) -> CounterDelta:
        """Return the figures to write and mark them as written."""
        delta = CounterDelta(self._connections, self.sent, self._clients)
        self._connections = self.sent = 0
        self._changed, self._written_ms = False, now_ms
        return delta

    def give_back(self, delta: CounterDelta) -> None:
        """Take back *delta* after a failed write, so that the next write includes it."""
        self._connections += delta.connections
        self.sent += delta.sent
        self._changed = True


def is_present(until_ms: int, now_ms: int) -> bool:
    """Return True if a record of `Counters.attend` that expires at *until_ms* still counts."""
    return is_ahead(until_ms, now_ms, max(limits.PRESENCE_MS, limits.SWEPT_PRESENCE_MS))


class Counters(Protocol):
    """Counters for `/status`, accurate to a few seconds. A failure never blocks a request."""

    def refuse(self, feed: str) -> None:
        """Count a request with rejected operations."""

    def serve(self, feed: str, *, connections: int, sent: int) -> None:
        """Add to the numbers of opened streams and sent events."""

    def attend(self, feed: str, reporter: str, clients: int, *, until_ms: int) -> None:
        """Record that *reporter* has *clients* connections; the record expires at *until_ms*.

        *reporter* names a process, or the WebSockets that the sweep counts.
        """

    def totals(self, feed: str, *, now_ms: int) -> Totals:
        """Return the totals; the clients are those of all records that have not expired."""

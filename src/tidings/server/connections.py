"""Limits of client connections: their number, and the time that a client may take."""

from __future__ import annotations

import array
import asyncio
import contextlib
import fcntl
import logging
import resource
import termios
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from tidings.core import limits

log = logging.getLogger(__name__)
REPORT_EVERY_S = 60.0  # a flood of connections must not become a flood of log lines


def raise_file_limit() -> int:
    """Raise the limit of open files as far as the system allows, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, limits.FILES_MAX)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return limits.FILES_MAX if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def connections_within(files: int) -> int:
    """Return how many connections a process that may open *files* can accept."""
    return max(1, files - min(limits.FILES_RESERVED, files // 4))


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits per server: the number of *connections*, and the seconds of each phase."""

    connections: int = limits.FILES_MAX
    head_s: float = limits.HEAD_S
    keep_alive_s: float = limits.KEEP_ALIVE_S
    stall_s: float = limits.STALL_S
    close_s: float = limits.CLOSE_S
    linger_s: float = limits.LINGER_S


class Idle(Protocol):
    """A connection that waits for a request."""

    def evict(self) -> None:
        """Close the connection to make room for another one."""


@dataclass(slots=True)
class Admission:
    """
    The decision which connections are kept if there are too many.

    If the limit is reached, the oldest connection that waits for a request, or has sent half a
    head, is closed in favour of a new one, so that silent connections lock no client out. If all
    are in use, the new one is refused.
    """

    bounds: Bounds
    _idle: dict[Idle, None] = field(default_factory=dict)  # in the order in which they became idle
    _evicted: int = 0
    _refused: int = 0
    _reported_s: float = float("-inf")

    def admit(self, count: int) -> bool:
        """Return True if a new connection may be accepted in addition to *count* open ones."""
        if count < self.bounds.connections:
            return True
        oldest = next(iter(self._idle), None)
        if oldest is None:
            self._refused += 1
        else:
            del self._idle[oldest]
            self._evicted += 1
            oldest.evict()
        self._report()
        return oldest is not None

    def add_idle(self, connection: Idle) -> None:
        """Record that *connection* waits for a request."""
        self._idle[connection] = None

    def remove_idle(self, connection: Idle) -> None:
        """Record that *connection* has a request, or is closed."""
        self._idle.pop(connection, None)

    def _report(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s < self._reported_s + REPORT_EVERY_S:
            return
        log.warning(
            "all %d connections that the limit of open files allows are open: "
            "refused %d and closed %d idle ones since the last report; raise LimitNOFILE",
            self.bounds.connections,
            self._refused,
            self._evicted,
        )
        self._reported_s, self._refused, self._evicted = now_s, 0, 0


class Connection:
    """
    A transport that does not wait for its client when it closes.

    `close` sends the buffered bytes for at most `close_s`, then resets the connection. If
    *is_receiving* returns True, a request is still arriving; it is read and discarded before the
    reset, because a reset would destroy the answer before a client that is still sending has read
    it.
    """

    def __init__(
        self, transport: asyncio.Transport, bounds: Bounds, is_receiving: Callable[[], bool]
    ) -> None:
        self._transport, self._bounds, self._is_receiving = transport, bounds, is_receiving
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self.is_lingering = False
        self.write = transport.write
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        """Return True if nothing may be written any more."""
        return self.is_lingering or self._transport.is_closing()

    def close(self) -> None:
        """Close in order: discard the rest of a request, send the buffer, reset."""
        if self.is_closing():
            return
        if not self._is_receiving():
            self.finish()
            return
        self.is_lingering = True
        self._timer = self._loop.call_later(self._bounds.linger_s, self.finish)
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def finish(self) -> None:
        """Close without reading any more."""
        self._cancel()
        self.is_lingering = False
        self._transport.close()
        self._timer = self._loop.call_later(self._bounds.close_s, self._transport.abort)

    def lost(self) -> None:
        """Record that the connection is closed."""
        self._cancel()
        self.written()

    def stalled(self) -> None:
        """Reset the connection unless its client reads something within `stall_s`."""
        self.written()
        size = self._unread()
        self._stall = self._loop.call_later(self._bounds.stall_s, self._check_stall, size)

    def written(self) -> None:
        """Stop the stall timer: the client has read enough of the buffer."""
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _check_stall(self, size: int) -> None:
        if self._unread() < size:
            self.stalled()
        else:
            self._transport.abort()

    def _unread(self) -> int:
        """Return how many bytes the client's machine has not received yet."""
        size = self._transport.get_write_buffer_size()
        connection = self._transport.get_extra_info("socket")
        if connection is None:
            return size
        # The kernel accepts more from this process only after megabytes were read, but counts each
        # byte.
        queued = array.array("i", [0])
        with contextlib.suppress(OSError):
            fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, queued)
        return size + queued[0]

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

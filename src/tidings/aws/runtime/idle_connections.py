"""Connections that wait for the next request to the same host."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    import socket

_IDLE_S_MAX = 20.0  # the other side may close what is idle, and a frozen sandbox would not see it


class Connection(Protocol):
    """*used_s* is when its last answer came, by `time.monotonic`."""

    socket: socket.socket
    used_s: float


Kept = TypeVar("Kept", bound=Connection)


class IdleConnections(Generic[Kept]):
    """Several threads may take and keep at a time."""

    def __init__(self) -> None:
        self._idle: list[Kept] = []

    def take(self) -> Kept | None:
        """The one that was kept last, unless it was idle for too long; older ones are closed."""
        now_s = time.monotonic()
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread has taken the last one
                return None
            if now_s - connection.used_s <= _IDLE_S_MAX:
                return connection
            connection.socket.close()
        return None

    def keep(self, connection: Kept) -> None:
        self._idle.append(connection)  # of a list this is atomic, as is `pop`

"""Idle persistent connections to one host."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    import socket

_IDLE_S_MAX = 20.0  # the server may close idle connections, and a frozen sandbox would not notice


class Connection(Protocol):
    """A persistent connection; *used_s* is the time of its last answer, by `time.monotonic`."""

    socket: socket.socket
    used_s: float


Kept = TypeVar("Kept", bound=Connection)


class IdleConnections(Generic[Kept]):
    """A pool of idle connections; several threads may use it concurrently."""

    def __init__(self) -> None:
        self._idle: list[Kept] = []

    def take(self) -> Kept | None:
        """
        Return the most recently used connection, unless it was idle for too long; close older ones.
        """
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
        self._idle.append(connection)  # `append` and `pop` of a list are atomic

"""The outbox of each feed."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidings.core.ingest.outbox import OutboxMessage


class MemoryOutbox:
    """Implements `Outbox`; *leave* is what a transaction of an owner does."""

    def __init__(self) -> None:
        self._messages: dict[tuple[str, str], OutboxMessage] = {}
        self.aside: dict[tuple[str, str], str] = {}
        self._lock = Lock()

    def leave(self, feed: str, message: OutboxMessage) -> None:
        with self._lock:
            self._messages[feed, message.id] = message

    def pending(self, feed: str) -> Sequence[OutboxMessage]:
        with self._lock:
            return [message for (of, _), message in sorted(self._messages.items()) if of == feed]

    def done(self, feed: str, message: OutboxMessage) -> None:
        with self._lock:
            self._messages.pop((feed, message.id), None)

    def put_aside(self, feed: str, message: OutboxMessage, reason: str) -> None:
        with self._lock:
            self._messages.pop((feed, message.id), None)
            self.aside[feed, message.id] = reason

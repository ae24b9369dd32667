"""The outbox of each feed."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidings.core.ingest.outbox import Letter


class MemoryOutbox:
    """Implements `Outbox`; *leave* is what a transaction of an owner does."""

    def __init__(self) -> None:
        self._letters: dict[tuple[str, str], Letter] = {}
        self.aside: dict[tuple[str, str], str] = {}
        self._lock = Lock()

    def leave(self, feed: str, letter: Letter) -> None:
        with self._lock:
            self._letters[feed, letter.id] = letter

    def pending(self, feed: str) -> Sequence[Letter]:
        with self._lock:
            return [letter for (of, _), letter in sorted(self._letters.items()) if of == feed]

    def done(self, feed: str, letter: Letter) -> None:
        with self._lock:
            self._letters.pop((feed, letter.id), None)

    def put_aside(self, feed: str, letter: Letter, reason: str) -> None:
        with self._lock:
            self._letters.pop((feed, letter.id), None)
            self.aside[feed, letter.id] = reason

"""Bounded buffers for items that arrive faster than the listener handles them."""

from __future__ import annotations

import sqlite3
from collections import deque
from pathlib import Path
from typing import Protocol

from tidings.client import private_files

ITEMS_MAX = 10_000  # a few MB: an item has a few hundred bytes, never above 64 KB


class Buffer(Protocol):
    """A queue of texts, used by one thread at a time."""

    def put(self, text: str) -> bool:
        """Store *text*; return False if the buffer is full."""
        ...

    def take(self) -> str | None:
        """Remove and return the oldest text; None if the buffer is empty."""
        ...

    def clear(self) -> None:
        """Remove all texts."""
        ...

    def __len__(self) -> int: ...


class MemoryBuffer:
    """Implements `Buffer` in this process."""

    def __init__(self, items_max: int = ITEMS_MAX) -> None:
        self._items_max = items_max
        self._texts: deque[str] = deque()

    def __len__(self) -> int:
        return len(self._texts)

    def put(self, text: str) -> bool:
        if len(self._texts) >= self._items_max:
            return False
        self._texts.append(text)
        return True

    def take(self) -> str | None:
        return self._texts.popleft() if self._texts else None

    def clear(self) -> None:
        self._texts.clear()


class SqliteBuffer:
    """
    Implements `Buffer` in a file, for limits that do not fit into memory.

    It deletes texts of an earlier process, because the new process registers and bootstraps again.
    """

    def __init__(self, path: Path | str, items_max: int = 100 * ITEMS_MAX) -> None:
        self._items_max = items_max
        if str(path) != ":memory:":
            private_files.make(Path(path))
        self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("PRAGMA synchronous = OFF")  # no data needs to survive a crash
        self._database.execute("CREATE TABLE IF NOT EXISTS item (at INTEGER PRIMARY KEY, text)")
        self._length = 0
        self.clear()

    def __len__(self) -> int:
        return self._length

    def put(self, text: str) -> bool:
        if self._length >= self._items_max:
            return False
        self._database.execute("INSERT INTO item (text) VALUES (?)", (text,))
        self._length += 1
        return True

    def take(self) -> str | None:
        row = self._database.execute("SELECT at, text FROM item ORDER BY at LIMIT 1").fetchone()
        if row is None:
            return None
        self._database.execute("DELETE FROM item WHERE at = ?", (row[0],))
        self._length -= 1
        return str(row[1])

    def clear(self) -> None:
        self._database.execute("DELETE FROM item")
        self._length = 0

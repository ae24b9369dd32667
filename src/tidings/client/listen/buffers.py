"""Where a listener keeps the items that come faster than they are handled. Bounded."""

from __future__ import annotations

import sqlite3
from collections import deque
from pathlib import Path
from typing import Protocol

from tidings.client import private_files

ITEMS_MAX = 10_000  # some megabytes: an item has a few hundred bytes, never above 64 KB


class Buffer(Protocol):
    """Texts in the order they came; one thread at a time asks."""

    def put(self, text: str) -> bool:
        """Keep *text*; False when there is no room for it."""
        ...

    def take(self) -> str | None:
        """The oldest text, which is not kept any longer; None when there is none."""
        ...

    def clear(self) -> None:
        """Keep nothing."""
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
    Implements `Buffer` in a file, for bounds that memory does not hold.

    What a process before us left in it is dropped: it registers and bootstraps anew.
    """

    def __init__(self, path: Path | str, items_max: int = 100 * ITEMS_MAX) -> None:
        self._items_max = items_max
        if str(path) != ":memory:":
            private_files.make(Path(path))
        self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("PRAGMA synchronous = OFF")  # nothing in it outlives a crash
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

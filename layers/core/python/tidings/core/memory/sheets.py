"""The sheets of feeds, by name."""

from __future__ import annotations

from threading import Lock

from tidings.core.changeagent.documents import Sheet


class MemorySheets:
    """Implements `Sheets`."""

    def __init__(self) -> None:
        self._sheets: dict[tuple[str, str], Sheet] = {}
        self._lock = Lock()

    def sheet(self, feed: str, name: str) -> Sheet:
        with self._lock:
            return self._sheets.get((feed, name), Sheet())

    def write(self, feed: str, name: str, sheet: Sheet) -> bool:
        with self._lock:
            standing = self._sheets.get((feed, name), Sheet())
            if standing.version != sheet.version:
                return False
            self._sheets[feed, name] = Sheet(sheet.text, sheet.version + 1)
            return True

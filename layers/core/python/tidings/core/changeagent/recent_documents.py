"""Documents of operators as a process remembers them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.core import limits

if TYPE_CHECKING:
    from tidings.core.changeagent.documents import Sheet
    from tidings.core.changeagent.stores import Sheets
    from tidings.core.effects import Clock


class RecentSheets:
    """Implements `Sheets`: another one's, remembered for `limits.SHEET_AGE_MS`."""

    def __init__(self, sheets: Sheets, clock: Clock) -> None:
        self._sheets, self._clock = sheets, clock
        self._known: dict[tuple[str, str], tuple[int, Sheet]] = {}

    def sheet(self, feed: str, name: str) -> Sheet:
        now = self._clock()
        read_at, known = self._known.get((feed, name), (0, None))
        if known is not None and 0 <= now - read_at < limits.SHEET_AGE_MS:
            return known
        found = self._sheets.sheet(feed, name)
        self._known[feed, name] = (now, found)
        return found

    def write(self, feed: str, name: str, sheet: Sheet) -> bool:
        done = self._sheets.write(feed, name, sheet)
        self._known.pop((feed, name), None)
        return done

"""
Sheets: what an operator writes down for a feed or the whole deployment, each a text.

Its configuration, its users, whether it is up. A change counts within seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from . import limits

if TYPE_CHECKING:
    from .change_ports import Sheets
    from .ports import Clock

CONFIGURATION, USERS, HEALTH = "configuration", "users", "health"
DEPLOYMENT = "-"  # stands for all feeds; no feed can be named so


@dataclass(frozen=True, slots=True)
class Sheet:
    """*text* is empty where nothing was ever written. *version* guards every update."""

    text: str = field(default="", repr=False)
    version: int = 0


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

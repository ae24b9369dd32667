"""
Where the objects of some corrections stand in the log, and whether they moved.

Learned from the state and from the log behind the state's checkpoint, in any order: of what is
seen of an object the highest position counts.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum
from typing import TYPE_CHECKING

from tidings.core.model.operations import key_of
from tidings.core.sync.corrections import NOWHERE, Correction, Position

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidings.core.model.pages import Page
    from tidings.core.state.rows import Row


class Verdict(Enum):
    """What became of the object of a correction since the plan was made."""

    STANDS = "stands"
    MOVED = "moved"
    DONE = "done"  # its latest operation is the correction, or just what it says


class Conflicts:
    """*page* is the last one that was looked at: what is above it is not known yet."""

    def __init__(self, corrections: Iterable[Correction], page: int) -> None:
        self.page = page
        self._wanted = {each.key: each for each in corrections}
        self._at: dict[str, Position] = {}
        self._done: dict[str, bool] = {}

    def verdict(self, correction: Correction) -> Verdict:
        key = correction.key
        if self._at.get(key, NOWHERE) == correction.at:
            return Verdict.STANDS
        return Verdict.DONE if self._done.get(key) else Verdict.MOVED

    def verdicts(self, corrections: Iterable[Correction]) -> Counter[Verdict]:
        return Counter(map(self.verdict, corrections))

    def see_rows(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self._see(row.key, Position(row.page, row.slot), row.line)

    def see_pages(self, pages: Sequence[Page]) -> None:
        """*pages* follow `page` without a hole."""
        for page in pages:
            assert page.first <= self.page + 1
            for slot, line in page.entries():
                self._see(key_of(line), Position(page.number, slot), line)
            self.page = page.number

    def _see(self, key: str, at: Position, line: str) -> None:
        """Lines are compared at once, not kept: those of others may be large."""
        if key in self._wanted and at > self._at.get(key, NOWHERE):
            self._at[key] = at
            self._done[key] = line == self._wanted[key].line

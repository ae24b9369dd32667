"""
Conflicts: the positions of the objects of some corrections in the log, and whether they changed.

Rows of the state and pages after the state's checkpoint may be passed in any order: the highest
position of an object counts.
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
    """The state of a correction's object, compared with the plan."""

    STANDS = "stands"
    MOVED = "moved"
    DONE = "done"  # its latest operation is the correction, or equal to it


class Conflicts:
    """
    The latest position of each object of *corrections*, from the rows and pages passed so far.

    *page* is the last page that was read; later pages are unknown.
    """

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
        """Read *pages*, which follow `page` without a hole."""
        for page in pages:
            assert page.first <= self.page + 1
            for slot, line in page.entries():
                self._see(key_of(line), Position(page.number, slot), line)
            self.page = page.number

    def _see(self, key: str, at: Position, line: str) -> None:
        """Compare the line at once instead of keeping it, because lines may be large."""
        if key in self._wanted and at > self._at.get(key, NOWHERE):
            self._at[key] = at
            self._done[key] = line == self._wanted[key].line

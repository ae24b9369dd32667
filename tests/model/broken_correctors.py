"""Correctors with one rule taken out: the model and the simulation have to notice each."""

from __future__ import annotations

from collections.abc import Sequence

from tidings.core.followers.follower import STATE
from tidings.core.sync.apply import Corrector
from tidings.core.sync.corrections import Conflicts, Correction


class LooksBefore(Corrector):
    """The last look is before the number is taken."""

    def _read_to(self, feed: str, last: int, where: Conflicts, polls_max: int) -> bool:
        where.page = last
        return True


class LeapsOverHoles(Corrector):
    """A number without a page below its own is nothing to wait for."""

    def _read_to(self, feed: str, last: int, where: Conflicts, polls_max: int) -> bool:
        for page in self.reader.log.read(feed, where.page):
            if page.number <= last:
                where.page = page.number - 1
                where.see_pages([page])
        where.page = last
        return True


class RowsFirst(Corrector):
    """The checkpoint is read after the rows, which may be older than it."""

    def _look(self, feed: str, section: Sequence[Correction]) -> Conflicts:
        rows = self.states.find(feed, [each.key for each in section])
        where = Conflicts(section, self.reader.checkpoints.checkpoints(feed).get(STATE, 0))
        where.see_rows(rows)
        return where

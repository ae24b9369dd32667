"""
Renewal: extend the lifetime of pages that are needed longer than planned.

A page is written with a lifetime (`page_ms` of the settings) after which no reader may need it, so
usually no page is renewed. The exceptions are the last pages of a feed with little traffic, pages
that a stopped built-in follower has not handled, and pages written with a shorter lifetime than the
current setting. The pages are checked in rounds, a part each minute, and renewed before they
expire.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from tidings.core import limits

if TYPE_CHECKING:
    from tidings.core.effects import Clock, Count, Spread


@dataclass(frozen=True, slots=True)
class Round:
    """A round of renewals. *page* is the last page checked, 0 after the end of the round."""

    page: int = 0
    began_ms: int = 0


class RenewStore(Protocol):
    """The expiry times of pages, and the progress of the renewal round."""

    def expiries(self, feed: str, after: int, last: int) -> list[tuple[int, int]]:
        """
        Return pages above *after* up to *last* with their expiry time in ms, ascending, about 1 MB.

        The expiry time is 0 for a page that never expires. The result may be some seconds old. An
        empty list means that no such page exists.
        """

    def renew(self, feed: str, page: int, expires_ms: int) -> None:
        """
        Extend the life of an existing page to at least *expires_ms*; do not create a missing page.
        """

    def round(self, feed: str) -> Round:
        """Return the last round that was stored, `Round()` before the first."""

    def keep(self, feed: str, round_: Round) -> None:
        """Store the progress of the round."""


@dataclass(frozen=True, slots=True)
class Renewer:
    """The renewal of pages that expire too soon. *page_ms* is the lifetime of a page."""

    store: RenewStore
    spread: Spread
    clock: Clock
    count: Count
    page_ms: int

    def begin(self, feed: str) -> Round | None:
        """
        Return the round to continue, or None if no round is due.

        The caller then need not determine which pages must stay.
        """
        round_, now = self.store.round(feed), self.clock()
        if round_.page:
            return round_
        return None if now - round_.began_ms < limits.RENEW_EVERY_MS else Round(began_ms=now)

    def run(self, feed: str, round_: Round, first: int, last: int) -> None:
        """Renew the pages from *first* to *last* that expire soon, up to the limit of a run."""
        if first > last:
            self.store.keep(feed, replace(round_, page=0))
            return
        now, renewed = self.clock(), 0
        while renewed < limits.RENEW_PAGES_MAX:
            expiries = self.store.expiries(feed, max(round_.page, first - 1), last)
            soon = [str(page) for page, ms in expiries if 0 < ms < now + limits.RENEW_WITHIN_MS]
            self.spread(lambda page: self.store.renew(feed, int(page), now + self.page_ms), soon)
            self.count("PagesRenewed", len(soon))
            renewed += len(soon)
            end = not expiries or expiries[-1][0] >= last
            round_ = replace(round_, page=0 if end else expiries[-1][0])
            self.store.keep(feed, round_)
            if end:
                return

"""
Renewing: pages that must stay for longer than they were written to live.

A page is written to live until nobody may need it (`page_ms` of the settings), so that usually
nothing is renewed. What is: the last pages of a feed in which little happens, what a built-in
follower that stands still has not handled, and pages that were written to live for less than what
is set now. They are looked at in rounds, a part each minute, and renewed before their time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from tidings.core import limits

if TYPE_CHECKING:
    from tidings.core.effects import Clock, Count, Spread


@dataclass(frozen=True, slots=True)
class Round:
    """*page* is the last one that was looked at, 0 behind the end of the round."""

    page: int = 0
    began_ms: int = 0


class RenewStore(Protocol):
    """When pages expire, and how far a round of renewals is."""

    def expiries(self, feed: str, after: int, last: int) -> list[tuple[int, int]]:
        """
        Pages above *after* up to *last* with when they expire in ms, ascending, some 1 MB of log.

        Of those that never expire 0. May be some seconds old. Nothing: there is none.
        """

    def renew(self, feed: str, page: int, expires_ms: int) -> None:
        """Keep an existing page until *expires_ms* at least; a missing page stays missing."""

    def round(self, feed: str) -> Round:
        """The last one that was stored; `Round()` before the first."""

    def keep(self, feed: str, round_: Round) -> None:
        """Store how far it is."""


@dataclass(frozen=True, slots=True)
class Renewer:
    """*page_ms* is how long a page lives."""

    store: RenewStore
    spread: Spread
    clock: Clock
    count: Count
    page_ms: int

    def begin(self, feed: str) -> Round | None:
        """Where a run goes on; None between two rounds: then nobody has to look for what stays."""
        round_, now = self.store.round(feed), self.clock()
        if round_.page:
            return round_
        return None if now - round_.began_ms < limits.RENEW_EVERY_MS else Round(began_ms=now)

    def run(self, feed: str, round_: Round, first: int, last: int) -> None:
        """Renew those of the pages *first* to *last* whose time comes soon, as many as we may."""
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

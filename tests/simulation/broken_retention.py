"""Retention with one rule taken out."""

from __future__ import annotations

from tidings.core.log import reader
from tidings.core.log.reader import Gap
from tidings.core.log.renewal import Renewer
from tidings.core.model.pages import Page

from tests.simulation.broken_relays import instead


def _not_renewed(self: Renewer, feed: str, first: int, last: int) -> None:
    """Whatever lives shorter than it is needed is let go."""


def _never_lost(missing: int, beyond: Page, *, floor: int, handled: int, now_ms: int) -> Gap:
    """A page that was there is taken for one that somebody is about to write."""
    found = _judge(missing, beyond, floor=floor, handled=handled, now_ms=now_ms)
    return Gap.OVERDUE if found is Gap.LOST else found


_judge = reader.judge
not_renewed = instead(Renewer, "run", _not_renewed)
never_lost = instead(reader, "judge", _never_lost)

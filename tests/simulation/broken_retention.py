"""Retention, settings, clocks and sweeps with one rule taken out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.simulation.parts import instead
from tidings.core import limits
from tidings.core.catchup import catchup
from tidings.core.log import reader
from tidings.core.log.reader import Gap
from tidings.core.maintenance.retention import Renewer, Round
from tidings.core.maintenance.sweep import Failures
from tidings.core.model.pages import Page, filler

if TYPE_CHECKING:
    from tidings.core.state.tombstones import TombstoneStore


def _not_renewed(self: Renewer, feed: str, round_: Round, first: int, last: int) -> None:
    """Does not extend the lifetime of items that expire before they may."""


def _never_lost(missing: int, beyond: Page, **more: int) -> Gap:
    """A removed page is regarded as one that a writer is about to write."""
    found = _classify_gap(missing, beyond, **more)
    return Gap.OVERDUE if found is Gap.LOST else found


_classify_gap = reader.classify_gap
not_renewed = instead(Renewer, "run", _not_renewed)
never_lost = instead(reader, "classify_gap", _never_lost)


def _by_the_last(store: TombstoneStore, feed: str, now_ms: int) -> int:
    """Assumes that every tombstone was written with the present settings."""
    found = store.remembered(feed)
    return now_ms - found.life_ms if found else now_ms


def _without_margin(seconds: int) -> int:
    """Assumes that the clocks of writers agree."""
    return seconds


@contextmanager
def _not_kept(self: Failures, what: str) -> Iterator[None]:
    """Collect no errors: the first one ends the run."""
    yield


def _as_of_now(number: int, *, at_ms: int, expires_ms: int) -> Page:
    """The age of a filler is taken from the clock of its writer."""
    now_ms = expires_ms - limits.RETENTION_MS_MIN - limits.TTL_SLACK_MS
    return filler(number, at_ms=now_ms, expires_ms=expires_ms)


by_the_last = instead(catchup, "known_since", _by_the_last)
without_margin = instead(catchup, "margin", _without_margin)
filled_now = instead(reader, "filler", _as_of_now)
at_the_first = instead(Failures, "record", _not_kept)

"""Settings, clocks and sweeps with one rule taken out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.catchup import catchup
from tidings.core.log import reader
from tidings.core.maintenance.sweep import Failures
from tidings.core.model.pages import Page, filler

from tests.simulation.broken_relays import instead

if TYPE_CHECKING:
    from tidings.core.state.tombstones import TombstoneStore


def _by_the_last(store: TombstoneStore, feed: str, now_ms: int) -> int:
    """As if every tombstone had been written with the settings of today."""
    found = store.remembered(feed)
    return now_ms - found.life_ms if found else now_ms


def _without_margin(seconds: int) -> int:
    """As if the clocks of writers agreed."""
    return seconds


@contextmanager
def _not_kept(self: Failures, what: str) -> Iterator[None]:
    """The first thing that fails is the last one."""
    yield


def _as_of_now(number: int, *, at_ms: int, expires_ms: int) -> Page:
    """A filler is as old as the clock of who writes it says."""
    now_ms = expires_ms - limits.RETENTION_MS_MIN - limits.TTL_SLACK_MS
    return filler(number, at_ms=now_ms, expires_ms=expires_ms)


by_the_last = instead(catchup, "known_since", _by_the_last)
without_margin = instead(catchup, "margin", _without_margin)
filled_now = instead(reader, "filler", _as_of_now)
at_the_first = instead(Failures, "kept", _not_kept)

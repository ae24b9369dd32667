"""
Tombstones: since when every deletion of a feed is remembered.

A tombstone carries the time it expires, by the retention in force when it was written. A longer
retention does not prolong those that are there, so what the settings say now is not what is
known. Who writes tombstones notes first how long they live from then on, and how long those
before may have lived; who judges reads that, never its own settings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tidings.core import limits
from tidings.core.errors import Unavailable

_ATTEMPTS = 3  # writers of tombstones exclude each other by a lease; a loser meets one winner


@dataclass(frozen=True, slots=True)
class Remembered:
    """
    How long the tombstones of a feed live, in ms.

    *life_ms* for deletions committed from *since_ms* on, at least *least_ms* for those before.
    """

    life_ms: int
    least_ms: int
    since_ms: int

    def known_since(self, now_ms: int) -> int:
        """The moment from which on no deletion is forgotten."""
        return max(now_ms - self.life_ms, min(self.since_ms, now_ms - self.least_ms))

    def then(self, life_ms: int, now_ms: int) -> Remembered:
        """With *life_ms* from now on; what is spent is not carried along."""
        spent = now_ms - self.life_ms >= self.since_ms
        least_ms = self.life_ms if spent else min(self.life_ms, self.least_ms)
        return Remembered(life_ms, least_ms, now_ms + limits.CLOCK_SKEW_MS_MAX)


class TombstoneStore(Protocol):
    """How long the tombstones of each feed live."""

    def remembered(self, feed: str) -> Remembered | None:
        """As it stands now; None where nothing was noted."""
        ...

    def remember(self, feed: str, old: Remembered | None, new: Remembered) -> bool:
        """Put *new* over *old*; False where another one stands there."""
        ...


def unnoted(now_ms: int) -> Remembered:
    """Of a feed whose tombstones were written by a release that noted nothing."""
    least_ms = limits.TOMBSTONE_MS_MIN
    return Remembered(least_ms, least_ms, now_ms)


def known_since(store: TombstoneStore, feed: str, now_ms: int) -> int:
    """The moment from which on no deletion of *feed* is forgotten, in ms."""
    remembered = store.remembered(feed) or unnoted(now_ms)
    return remembered.known_since(now_ms)


def note(store: TombstoneStore, feed: str, life_ms: int, now_ms: int, *, first: bool) -> Remembered:
    """
    Before tombstones are written that live for *life_ms*; what is remembered then.

    *first*: no operation of *feed* was ever before these.

    Raises:
        Unavailable: others note something else all the while.
    """
    for _ in range(_ATTEMPTS):
        old = store.remembered(feed)
        if old is not None and old.life_ms == life_ms:
            return old
        if old is None and first:
            new = Remembered(life_ms, life_ms, 0)
        else:
            new = (old or unnoted(now_ms)).then(life_ms, now_ms)
        if store.remember(feed, old, new):
            return new
    raise Unavailable(f"{feed}: how long deletions are remembered was changed meanwhile")


def note_copied(store: TombstoneStore, feed: str, life_ms: int, now_ms: int) -> None:
    """
    Before tombstones of another deployment are written, which live as long as its settings say.

    Raises:
        Unavailable: as `note`.
    """
    least_ms = min(life_ms, limits.TOMBSTONE_MS_MIN)
    new = Remembered(life_ms, least_ms, now_ms + limits.CLOCK_SKEW_MS_MAX)
    for _ in range(_ATTEMPTS):
        if store.remember(feed, store.remembered(feed), new):
            return
    raise Unavailable(f"{feed}: how long deletions are remembered was changed meanwhile")


def forgotten(since_s: int, known_since_ms: int) -> bool:
    """Whether deletions since then may be forgotten before a copy has sent them all."""
    return since_s * 1000 < known_since_ms + limits.CONNECTION_MS_MAX

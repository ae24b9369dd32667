"""Record the time since which every deletion of a feed has a tombstone.

The expiry of a tombstone is set by the retention when the tombstone is written. A longer retention
does not extend existing tombstones, so the current settings do not determine their lifetime. A
writer of tombstones therefore first records the lifetime of new tombstones and the minimum lifetime
of earlier tombstones. Readers use that record and never their own settings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.records import Kind, Layout, Records, until_saved

if TYPE_CHECKING:
    from tidings.core.records import RecordStore


@dataclass(frozen=True, slots=True)
class Remembered:
    """The lifetime of the tombstones of a feed.

    Tombstones of deletions committed from *since_ms* on live for *life_ms*. Tombstones of earlier
    deletions live for at least *least_ms*.
    """

    life_ms: int
    least_ms: int
    since_ms: int

    def known_since(self, now_ms: int) -> int:
        """Return the time since which every deletion has a tombstone."""
        return max(now_ms - self.life_ms, min(self.since_ms, now_ms - self.least_ms))

    def then(self, life_ms: int, now_ms: int) -> Remembered:
        """Return the record after the lifetime of new tombstones was changed to *life_ms*."""
        spent = now_ms - self.life_ms >= self.since_ms
        least_ms = self.life_ms if spent else min(self.life_ms, self.least_ms)
        return Remembered(life_ms, least_ms, now_ms + limits.CLOCK_SKEW_MS_MAX)


REMEMBERED = Kind("tombstones", "remembered")
_LAYOUT = Layout(Remembered)


class TombstoneStore:
    """A store of the `Remembered` record of each feed."""

    def __init__(self, records: RecordStore) -> None:
        self._records = Records(records, REMEMBERED, _LAYOUT)

    def remembered(self, feed: str) -> Remembered | None:
        """Return the stored record, or None if nothing was recorded."""
        return self._records.get(feed)

    def remember(self, feed: str, old: Remembered | None, new: Remembered) -> bool:
        """Replace *old* by *new*; return False if another record is stored."""
        expected = _LAYOUT.encode(old) if old is not None else {"life_ms": None}
        write = self._records.put(new)._replace(expected=expected)
        return self._records.store.write(feed, [write])


def default_record(now_ms: int) -> Remembered:
    """Return the record for a feed that has tombstones but no record."""
    least_ms = limits.TOMBSTONE_MS_MIN
    return Remembered(least_ms, least_ms, now_ms)


def known_since(store: TombstoneStore, feed: str, now_ms: int) -> int:
    """Return the time in ms since which every deletion of *feed* has a tombstone."""
    remembered = store.remembered(feed) or default_record(now_ms)
    return remembered.known_since(now_ms)


def note(store: TombstoneStore, feed: str, life_ms: int, now_ms: int, *, first: bool) -> Remembered:
    """Record *life_ms*, the lifetime of tombstones, before they are written; return the record.

    *first* is True if *feed* had no operation before.

    Raises:
        Unavailable: other processes changed the record at each attempt.
    """

    def attempt() -> Remembered | None:
        old = store.remembered(feed)
        if old is not None and old.life_ms == life_ms:
            return old
        if old is None and first:
            new = Remembered(life_ms, life_ms, 0)
        else:
            new = (old or default_record(now_ms)).then(life_ms, now_ms)
        return new if store.remember(feed, old, new) else None

    return until_saved(attempt, f"{feed}: the lifetime of tombstones")


def note_copied(store: TombstoneStore, feed: str, life_ms: int, now_ms: int) -> None:
    """Record, before tombstones of another deployment are written, that they may expire earlier.

    *life_ms* is the lifetime of the tombstones that this deployment creates. Copied tombstones live
    at least for the minimum lifetime.

    Raises:
        Unavailable: see `note`.
    """
    least_ms = min(life_ms, limits.TOMBSTONE_MS_MIN)
    new = Remembered(life_ms, least_ms, now_ms + limits.CLOCK_SKEW_MS_MAX)
    until_saved(
        lambda: store.remember(feed, store.remembered(feed), new) or None,
        f"{feed}: the lifetime of tombstones",
    )


def forgotten(since_s: int, known_since_ms: int) -> bool:
    """Return True if a replication from *since_s* may lack a deletion.

    A tombstone may have expired, or may expire before the replication sends it.
    """
    return since_s * 1000 < known_since_ms + limits.CONNECTION_MS_MAX

"""What is asked of the settings of feeds, and how long they are remembered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.model.cursors import Place, Replication
from tidings.core.model.feeds import Retention
from tidings.core.settings.lost_pages import hit
from tidings.core.settings.recent import Recent

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidings.core.effects import Clock
    from tidings.core.model.cursors import Cursor
    from tidings.core.settings.feed import Profile
    from tidings.core.settings.lost_pages import Lost
    from tidings.core.settings.stores import Profiles


@dataclass(frozen=True, slots=True)
class MaxAges:
    """What the trimmer asks for each feed: items older than `maxAge` are gone."""

    profiles: Profiles

    def __call__(self, feed: str) -> Retention | None:
        seconds = self.profiles.profile(feed).max_age_s
        return Retention(age_ms=seconds * 1000, records_min=0) if seconds else None


class RecentProfiles:
    """
    Implements `Profiles`: another one's, remembered for `limits.PROFILE_AGE_MS`.

    What this process saves counts at once; `forget` is for what it stores by another way.
    """

    def __init__(self, profiles: Profiles, clock: Clock) -> None:
        self._profiles = profiles
        self._recent = Recent(profiles.profile, lambda: limits.PROFILE_AGE_MS, clock)

    def profile(self, feed: str) -> Profile:
        return self._recent.get(feed)

    def forget(self, feed: str) -> None:
        """Read the profile again the next time."""
        self._recent.forget(feed)

    def fresh(self, feed: str) -> Profile:
        """The profile as it is now."""
        self.forget(feed)
        return self.profile(feed)

    def save(self, feed: str, profile: Profile) -> bool:
        try:
            return self._profiles.save(feed, profile)
        finally:  # also after a failure, which may be that of the answer alone
            self.forget(feed)


@dataclass(frozen=True, slots=True)
class PushLanes:
    """How many lanes of push a feed has, as remembered or as it is now."""

    profiles: RecentProfiles

    def __call__(self, feed: str) -> int:
        return self.profiles.profile(feed).push_lanes

    def fresh(self, feed: str) -> int:
        return self.profiles.fresh(feed).push_lanes


def _nothing(feed: str) -> tuple[Lost, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class Losses:
    """
    The pages of each feed that were lost, as its profile says.

    *copied* tells what the upstream of a chained feed lost.
    """

    profiles: Profiles
    copied: Callable[[str], tuple[Lost, ...]] = _nothing

    def __call__(self, feed: str, cursor: Cursor) -> bool:
        """Return True if a reader with *cursor* may have seen pages that were lost."""
        return isinstance(cursor, Place | Replication) and hit(cursor, self.ranges(feed))

    def ranges(self, feed: str) -> tuple[Lost, ...]:
        """Return the first and last page of each loss of *feed*."""
        return (*self.profiles.profile(feed).lost, *self.copied(feed))

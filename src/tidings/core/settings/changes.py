"""Changes of a profile on top of what other processes save at the same time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidings.core.errors import Unavailable
from tidings.core.settings.lost_pages import bounded

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidings.core.settings.feed import Profile
    from tidings.core.settings.lost_pages import Lost
    from tidings.core.settings.stores import Profiles

_ATTEMPTS = 5  # each loss means that another operator saved within the same tenth of a second


def change(profiles: Profiles, feed: str, make: Callable[[Profile], Profile]) -> None:
    """
    Save what *make* returns for the profile of *feed*, unless it is the profile as it is stored.

    Raises:
        Unavailable: other processes saved the profile each time.
    """
    for _ in range(_ATTEMPTS):
        profile = profiles.profile(feed)
        changed = make(profile)
        if changed == profile or profiles.save(feed, changed):
            return
    raise Unavailable(f"the profile of {feed} kept changing")


def close(profiles: Profiles, feed: str) -> None:
    """
    Close every role of *feed* that has no password, because a key or a user is about to be stored.

    Raises:
        Unavailable: other processes saved the profile each time.
    """
    change(profiles, feed, lambda profile: replace(profile, closed=True))


def remember_lost(profiles: Profiles, feed: str, lost: Lost) -> None:
    """
    Record that the pages *lost* were sent and are not in the log of *feed* any more.

    Raises:
        Unavailable: other processes saved the profile each time.
    """

    def with_lost(profile: Profile) -> Profile:
        if lost in profile.lost:
            return profile
        others = [each for each in profile.lost if each[0] != lost[0]]
        return replace(profile, lost=bounded([*others, lost]))

    change(profiles, feed, with_lost)

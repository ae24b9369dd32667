"""The stores of `settings`; `tests/contract` has what every adapter keeps to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tidings.core.settings.feed import Profile


class Profiles(Protocol):
    """What the owner of each feed has set."""

    def profile(self, feed: str) -> Profile:
        """Strongly consistent; the defaults when nothing was ever set."""

    def save(self, feed: str, profile: Profile) -> bool:
        """
        Replace all of it if `profile.version` is still there; False when it is not.

        What is stored has `profile.version + 1`. Two who change at once cannot undo each other.
        """

"""What the owners of feeds have set."""

from __future__ import annotations

from threading import Lock

from tidings.core.settings.feed import Profile, saved


class MemoryProfiles:
    """Implements `Profiles`."""

    def __init__(self) -> None:
        self._profiles: dict[str, Profile] = {}
        self._lock = Lock()

    def profile(self, feed: str) -> Profile:
        with self._lock:
            return self._profiles.get(feed, Profile())

    def save(self, feed: str, profile: Profile) -> bool:
        with self._lock:
            if self._profiles.get(feed, Profile()).version != profile.version:
                return False
            self._profiles[feed] = saved(profile)
            return True

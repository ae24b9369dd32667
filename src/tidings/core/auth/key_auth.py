"""
The keys of feeds, as those who let people in know them.

A key that was read is remembered for `limits.KEY_AGE_MS`: one read of half a unit for a key, a
process and that time, and a revocation counts after it at the latest.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.auth import keys
from tidings.core.auth.guard import Allowed, opens
from tidings.core.errors import OutsideKey, WrongKey
from tidings.core.settings.revocations import Admission

if TYPE_CHECKING:
    from tidings.core.auth.guard import Credential, Role
    from tidings.core.auth.guessing_limit import Misses
    from tidings.core.auth.keys import Given, Key
    from tidings.core.auth.rate_limit import Meter
    from tidings.core.auth.stores import Keys
    from tidings.core.effects import Clock


class KeyRing:
    """Implements `guard.Bearers`."""

    def __init__(
        self, stored: Keys, clock: Clock, misses: Misses, meter: Meter | None = None
    ) -> None:
        self._stored, self._clock, self._meter = stored, clock, meter
        self._misses = misses
        self._known: OrderedDict[tuple[str, str], tuple[int, Key]] = OrderedDict()
        self._lock = Lock()

    def knows(self, given: Credential) -> bool:
        return keys.parse(given.secret) is not None

    def allowed(self, feed: str, role: Role, given: Credential) -> Allowed:
        """
        Raises:
            WrongKey: there is no such key, or it has ended.
            OutsideKey: it has not this role.
            TooManyRequests: its rate is used up, or too many wrong ones came just before.
        """
        shown = keys.parse(given.secret)
        key = self._key(feed, shown) if shown else None
        if shown is None or key is None or not key.matches(shown.secret):
            self._misses.add(feed)
            raise WrongKey(f"is no key of the feed {feed}", field="key")
        self._check_holds(key)
        if not opens(key.roles, role):
            has = ", ".join(sorted(each.value for each in key.roles))
            raise OutsideKey(f"has {has}, and this needs {role.value}")
        if self._meter and key.rate and not given.is_charged:
            self._meter.spend(feed, key.id, key.rate)
        admission = Admission(key.id, key.expires_ms, key.rate)
        return Allowed(key.bound, admission, key.id, key.streams or limits.KEY_STREAMS)

    def forget(self, feed: str, name: str) -> None:
        """Read the key with the id *name* again the next time, because it was changed."""
        with self._lock:
            self._known.pop((feed, name), None)

    def _check_holds(self, key: Key) -> None:
        if key.revoked_ms:
            raise WrongKey("was revoked", field="key")
        if 0 < key.expires_ms <= self._clock():
            raise WrongKey("has expired", field="key")

    def _key(self, feed: str, shown: Given) -> Key | None:
        """
        What is not there is not remembered: it may be made the next moment.

        A key that we know is read again without asking for misses, or guesses would keep it out.
        """
        now, place = self._clock(), (feed, shown.id)
        with self._lock:
            read_at, known = self._known.get(place, (0, None))
            if known is not None and 0 <= now - read_at < limits.KEY_AGE_MS:
                self._known.move_to_end(place)
                return known
        if known is None or not known.matches(shown.secret):
            self._misses.check(feed)
        key = self._stored.key(feed, shown.id)
        with self._lock:
            if key is None:
                self._known.pop(place, None)
            else:
                self._known[place] = (now, key)
                while len(self._known) > limits.KEYS_KNOWN_MAX:
                    self._known.popitem(last=False)
        return key

"""
Issuing: keys are made, replaced and revoked.

What opens nothing more is written down twice: in the key, for whoever shows it, and in the feed's
profile, for who is connected with it already (`settings.revocations`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.auth.keys import Given, Key, check_id, checked_key, digest_of, heir
from tidings.core.errors import InvalidSetting, Unavailable, UnknownKey
from tidings.core.settings.changes import change, close
from tidings.core.settings.revocations import Ended, noted

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidings.core.auth.stores import Keys
    from tidings.core.effects import Clock
    from tidings.core.settings.stores import Profiles

_ATTEMPTS = 5  # each loss means that another operator saved within the same tenth of a second


@dataclass(frozen=True, slots=True)
class Issuer:
    keys: Keys
    profiles: Profiles
    clock: Clock

    def create(self, feed: str, given: Given, wanted: Key) -> Key:
        """
        Store *given*, which is fresh and random, with the rights of *wanted*.

        Raises:
            InvalidSetting: a right breaks its rule, or the id is taken.
        """
        now = self.clock()
        made = replace(wanted, id=given.id, digest=digest_of(given.secret), made_ms=now)
        if 0 < made.expires_ms <= now:
            raise InvalidSetting("lies in the past", field="expires")
        return self._made(feed, made)

    def find(self, feed: str, name: str) -> Key:
        """
        The key with the id *name*.

        Raises:
            InvalidSetting: *name* is no id.
            UnknownKey: there is none.
        """
        key = self.keys.key(feed, check_id(name))
        if key is None:
            raise UnknownKey("is the id of no key of the feed", field="id", value=name)
        return key

    def revoke(self, feed: str, name: str) -> Key:
        """
        End the key at once; one that has been revoked before stays as it is.

        Raises:
            InvalidSetting, UnknownKey: see `find`.
        """
        ended = self._end(feed, name, "")
        self._note(feed, Ended(ended.id, self.clock()))
        return ended

    def rotate(self, feed: str, name: str, given: Given, overlap_ms: int, made_by: str) -> Key:
        """
        A new key, *given*, with the rights of the one that has the id *name*.

        That one holds for *overlap_ms* more, so that who has it can change to the new one; 0: it is
        revoked.

        Raises:
            InvalidSetting, UnknownKey: see `find`; or it has ended.
        """
        now, old = self.clock(), self.find(feed, name)
        if 0 < old.ended_ms <= now:
            raise InvalidSetting("has ended: create another one", field="id", value=name)
        made = self._made(feed, heir(old, given, now_ms=now, made_by=made_by))
        if overlap_ms <= 0:
            self._end(feed, name, made.id)
            self._note(feed, Ended(name, now))
            return made
        until = min(now + overlap_ms, old.expires_ms or now + overlap_ms)
        self._change(feed, name, lambda key: replace(key, expires_ms=until, successor=made.id))
        if until - now < limits.CONNECTION_MS_MAX:  # else nobody is connected by then
            self._note(feed, Ended(name, now, until))
        return made

    def _made(self, feed: str, made: Key) -> Key:
        checked_key(made)
        close(self.profiles, feed)  # first: a crash in between must not leave the feed open
        if not self.keys.save(feed, made):
            raise InvalidSetting("is taken: try again", field="id", value=made.id)
        return made

    def _end(self, feed: str, name: str, successor: str) -> Key:
        now = self.clock()
        return self._change(
            feed,
            name,
            lambda key: replace(
                key, revoked_ms=key.revoked_ms or now, successor=successor or key.successor
            ),
        )

    def _change(self, feed: str, name: str, change: Callable[[Key], Key]) -> Key:
        for _ in range(_ATTEMPTS):
            wanted = change(self.find(feed, name))
            if self.keys.save(feed, wanted):
                return wanted
        raise Unavailable(f"the key {name} kept changing")

    def _note(self, feed: str, ended: Ended) -> None:
        change(
            self.profiles,
            feed,
            lambda profile: replace(profile, ended=noted(profile.ended, ended)),
        )

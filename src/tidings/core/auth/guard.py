"""
Decides who may read a feed, post to it and administer it: by password, key or token.

A feed without any credential is open if the deployment is open, and closed otherwise. The first
password, key or user closes all roles of the feed, also those that have no password. A password
opens the whole feed; a key may be restricted to a part of it, which `Guard.check` returns.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from tidings.core.errors import (
    KeyEnded,
    LeaveNotKept,
    NoPasswordSet,
    OutsideKey,
    WrongPassword,
)
from tidings.core.model.filters import EVERYTHING, Filter, within
from tidings.core.settings.feed import is_let_go
from tidings.core.settings.revocations import FOR_GOOD, Admission

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tidings.core.auth.guessing_limit import Misses
    from tidings.core.auth.passwords import Verifier
    from tidings.core.settings.feed import Profile
    from tidings.core.settings.stores import Profiles

_BASIC, _BEARER = "basic", "bearer"
OWNER_END = "\t"  # between the credential and the id that a client chose, which is printable
KEY_PREFIX = "tdk_"  # of each key, for scanners; and who shows none need not load what keys take


class Role(Enum):
    """
    What a key allows: `consume` moves named consumers by working for them, `admin` steers.

    There is no password for these two: the one for `ingest` opens both.
    """

    READ = "read"
    INGEST = "ingest"
    CONSUME = "consume"
    ADMIN = "admin"


WHOLE = frozenset({Role.CONSUME, Role.ADMIN})  # roles that mean all of a feed: no bound fits them
PASSWORD_ROLES = (Role.READ, Role.INGEST)  # there is a password for; one is no use for the other


def opens(roles: Collection[Role], wanted: Role) -> bool:
    """Whether *roles* allow *wanted*; who may put a consumer anywhere may work for it, too."""
    return wanted in roles or (wanted is Role.CONSUME and Role.ADMIN in roles)


@dataclass(frozen=True, slots=True)
class Credential:
    """
    What somebody showed. *user* is the name beside it by HTTP Basic, which says nothing of a feed.

    *bearer*: it came as `Authorization: Bearer`, as which no password is taken. *is_charged*: the
    rate of the key was spent when the same request was looked at first.
    """

    secret: str = field(repr=False)
    user: str = ""
    bearer: bool = False
    is_charged: bool = False


@dataclass(frozen=True, slots=True)
class Allowed:
    """
    What of a feed somebody may have who was let in, and by what admission.

    *who* identifies the key, the token's subject or the user that was shown; it is empty for every
    caller with a password.
    *streams* is how many they may hold open at once, 0 for no bound.
    """

    bound: Filter = EVERYTHING
    admission: Admission = FOR_GOOD
    who: str = ""
    streams: int = 0

    @property
    def is_bounded(self) -> bool:
        return not self.bound.is_everything

    def narrowed(self, wanted: Filter, *, leave: bool = False) -> Filter:
        """What of *wanted* is within; *leave*: leaves were asked for, whatever *wanted* names."""
        return within(wanted, self.bound, leave=leave) if self.is_bounded else wanted

    def own(self, key: str) -> str:
        """
        Return *key*, which is printable, in the namespace of the caller's credential.

        Every id that clients choose and the feed remembers goes through here, so that no
        credential can use the ids of another one.
        """
        return f"{self.who}{OWNER_END}{key}" if self.who else key

    def check_whole(self) -> None:
        """
        Return if all of the feed is allowed.

        Raises:
            OutsideKey: the answer tells of the whole feed, and cannot be narrowed.
        """
        if self.is_bounded:
            raise OutsideKey("is bounded to a part of the feed, and this is of all of it")


ALL = Allowed()


class Bearers(Protocol):
    """Credentials that say by themselves whose they are, such as keys."""

    def knows(self, given: Credential) -> bool:
        """Whether *given* looks like one of this kind; nobody else is asked then."""

    def allowed(self, feed: str, role: Role, given: Credential) -> Allowed:
        """
        What *given*, which is of this kind, allows.

        Raises:
            Rejected: not *role* on *feed*.
        """


@dataclass(frozen=True, slots=True)
class Guard:
    """
    *open* admits every caller to a feed that has no credential. *bearers* are asked first, in
    their order: a caller that shows a key is limited to it, also on an open feed. *misses* are
    those of passwords. *target* is the option by which an operator's command names this host.
    """

    profiles: Profiles
    verifier: Verifier
    open: bool
    misses: Misses
    bearers: Sequence[Bearers] = ()
    target: str = "--stage STAGE"

    def check(
        self, feed: str, role: Role, given: Credential | None, *, whole: bool = False
    ) -> Allowed:
        """
        What *given*, None where there was nothing, allows who asks for *role* on *feed*.

        Raises:
            NoPasswordSet: there is no password that would.
            WrongPassword, WrongKey: it does not.
            OutsideKey: the key has not this role, or is bounded and the *whole* feed is asked for.
            TooManyRequests: its rate is used up, or too many wrong ones came just before.
        """
        kind = self._kind(given)
        if kind is None or given is None:
            self._check_password(feed, role, given)
            return ALL
        allowed = kind.allowed(feed, role, given)
        if whole:
            allowed.check_whole()
        return allowed

    def knows(self, given: Credential | None) -> bool:
        """Whether *given* says by itself whose it is, so that it is neither user nor password."""
        return self._kind(given) is not None

    def must_hash(self, feed: str, role: Role, given: Credential | None) -> bool:
        """Return True if `check` would compute a slow hash, which takes milliseconds."""
        if given is None or given.bearer or self.knows(given):
            return False
        stored = passwords_of(self.profiles.profile(feed), role)
        return bool(stored) and not self.verifier.remembers(given.secret, stored)

    def _kind(self, given: Credential | None) -> Bearers | None:
        if given is None:
            return None
        return next((each for each in self.bearers if each.knows(given)), None)

    def _check_password(self, feed: str, role: Role, given: Credential | None) -> None:
        profile = self.profiles.profile(feed)
        if self.open and not profile.is_protected:
            return
        stored, name = passwords_of(profile, role), password_role(role).value
        if not stored:
            command = f"tidings feed password {name} --feed {feed} {self.target}"
            way = "opens to a key or token only" if profile.is_protected else "is closed"
            raise NoPasswordSet(f"{way} until its operator runs `{command}`", field="feed")
        if given is None or given.bearer:
            rule = f"must be the {name} password of the feed, by HTTP Basic with any user, or a key"
            raise WrongPassword(rule, field="password")
        if self.verifier.remembers(given.secret, stored):
            return
        self.misses.check(feed)
        if not self.verifier.matches(given.secret, stored):
            self.misses.add(feed)
            raise WrongPassword(f"is not a {name} password of the feed", field="password")

    def check_held(self, feed: str, admission: Admission, since_ms: int, now_ms: int) -> None:
        """
        Return if who was let in at *since_ms* may still be answered; asked behind what was read.

        Raises:
            KeyEnded: its key has ended meanwhile.
        """
        if admission.may_end and is_let_go(
            self.profiles.profile(feed), admission, since_ms, now_ms
        ):
            raise KeyEnded("was revoked or has expired", field="key")

    def check_leave(self, feed: str, wanted: Filter) -> None:
        """
        Return if *feed* keeps what *wanted* asks for.

        Raises:
            LeaveNotKept: it wants to hear of leaves, and the feed does not keep departures.
        """
        if wanted.leave and not self.profiles.profile(feed).leave:
            command = f"tidings feed set --feed {feed} --leave on"
            rule = f"is not kept until the feed's operator runs `{command}`"
            raise LeaveNotKept(rule, field="leave", value=True)


def password_role(role: Role) -> Role:
    """Which password opens *role*: there is none of its own to work for consumers or to steer."""
    return Role.READ if role is Role.READ else Role.INGEST


def passwords_of(profile: Profile, role: Role) -> tuple[str, ...]:
    """The stored hashes for *role*."""
    wanted = password_role(role)
    return profile.read_passwords if wanted is Role.READ else profile.ingest_passwords


def credential(secret: str | None) -> Credential | None:
    """*secret* as a WebSocket's message says it; None where it says none."""
    return None if secret is None else Credential(secret)


def credential_from(header: str | None) -> Credential | None:
    """
    What an Authorization header carries, by HTTP Basic or as a bearer; None where it has neither.

    The scheme is taken in any case, as RFC 7617 and RFC 6750 want it.
    """
    if not header:
        return None
    scheme, _, rest = header.strip().partition(" ")
    if scheme.lower() == _BEARER:
        return Credential(rest.strip(), bearer=True) if rest.strip() else None
    if scheme.lower() != _BASIC:
        return None
    try:
        pair = base64.b64decode(rest.strip(), validate=True).decode()
    except (binascii.Error, ValueError):
        return None
    user, colon, password = pair.partition(":")
    return Credential(password, user) if colon else None

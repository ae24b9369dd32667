"""
Who may read a feed and who may post to it: one kind of password for each.

A role without a password is open only where the deployment says so; elsewhere it is closed, so
that a feed somebody forgot to protect is not the world's.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from .errors import LeaveNotKept, NoPasswordSet, WrongPassword

if TYPE_CHECKING:
    from .filters import Filter
    from .passwords import Verifier
    from .ports import Profiles
    from .profiles import Profile

_BASIC = "basic"


class Role(Enum):
    """What a password allows; one is never valid for the other."""

    READ = "read"
    INGEST = "ingest"


@dataclass(frozen=True, slots=True)
class Guard:
    """*open* lets everybody in where a feed has no password for the role."""

    profiles: Profiles
    verifier: Verifier
    open: bool

    def check(self, feed: str, role: Role, password: str | None) -> None:
        """
        Return if *password*, None where there was none, allows *role* on *feed*.

        Raises:
            NoPasswordSet: there is none that would.
            WrongPassword: it does not.
        """
        stored = passwords_of(self.profiles.profile(feed), role)
        if not stored and self.open:
            return
        if not stored:
            command = f"tidings feed password {role.value} --feed {feed}"
            raise NoPasswordSet(f"is closed until its operator runs `{command}`", field="feed")
        if password is None:
            rule = f"must be the {role.value} password of the feed, by HTTP Basic with any user"
            raise WrongPassword(rule, field="password")
        if not self.verifier.matches(password, stored):
            raise WrongPassword(f"is not a {role.value} password of the feed", field="password")

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


def passwords_of(profile: Profile, role: Role) -> tuple[str, ...]:
    """The stored hashes for *role*."""
    return profile.read_passwords if role is Role.READ else profile.ingest_passwords


def basic_password(header: str | None) -> str | None:
    """
    The password in an Authorization header by HTTP Basic; None where there is none.

    The user name says nothing. The scheme is taken in any case, as RFC 7617 wants it.
    """
    scheme, _, encoded = (header or "").strip().partition(" ")
    if scheme.lower() != _BASIC:
        return None
    try:
        pair = base64.b64decode(encoded.strip(), validate=True).decode()
    except (binascii.Error, ValueError):
        return None
    _, colon, password = pair.partition(":")
    return password if colon else None

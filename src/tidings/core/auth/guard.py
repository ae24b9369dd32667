"""Decide by password, key or token which callers may read a feed, post to it and administer it.

A feed without any credential is open if the deployment is open, and closed otherwise. When the
first password, key or user of a feed is stored, all roles of the feed are closed, including roles
that have no password. A password opens the whole feed. A key may be restricted to a part of the
feed, which is called its bound; `Guard.check` returns this part.

The host has credentials of its own, under the name `model.feeds.HOST`, which permit to create and
delete feeds. Its keys open every feed, or the feeds with names that begin with the prefixes of the
key. Its passwords open the feeds without passwords. A host with a credential closes all feeds.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from tidings.core import limits
from tidings.core.errors import (
    KeyEnded,
    LeaveNotKept,
    NoPasswordSet,
    OutsideKey,
    TooManyRequests,
    WrongKey,
    WrongPassword,
)
from tidings.core.model.feeds import HOST, public_name
from tidings.core.model.filters import EVERYTHING, Filter, within
from tidings.core.settings.profiles import endings_at, must_disconnect
from tidings.core.settings.values import FOR_GOOD, Admission

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tidings.core.auth.passwords import Verifier
    from tidings.core.effects import Clock
    from tidings.core.model.feeds import FeedNames
    from tidings.core.settings.profiles import Profile, ProfileStore

_BASIC, _BEARER = "basic", "bearer"
# The separator between the principal and an id that a client chose. Such an id is printable, so it
# has no tab.
OWNER_END = "\t"
# Every key begins with this prefix, by which secret scanners find keys. The prefix is defined here,
# so that a check of a password does not load the module of keys.
KEY_PREFIX = "tdk_"


class Role(Enum):
    """A role that a key grants.

    `consume` moves named consumers, `erase` erases objects, and `admin` administers the feed. These
    three roles have no password of their own. The ingest password opens all of them.
    """

    READ = "read"
    INGEST = "ingest"
    CONSUME = "consume"
    ERASE = "erase"
    ADMIN = "admin"


_OF_ADMIN = (Role.CONSUME, Role.ERASE)  # the roles that `admin` includes
UNRESTRICTED_ROLES = frozenset({*_OF_ADMIN, Role.ADMIN})  # roles that a restricted key cannot have
PASSWORD_ROLES = (Role.READ, Role.INGEST)  # the password of one role does not open the other role


def opens(roles: Collection[Role], wanted: Role) -> bool:
    """Return True if *roles* include *wanted*; `admin` includes `consume` and `erase`."""
    return wanted in roles or (wanted in _OF_ADMIN and Role.ADMIN in roles)


@dataclass(frozen=True, slots=True)
class Credential:
    """A credential in a request. *user* is the user name of HTTP Basic.

    *bearer* is True if the credential was sent as `Authorization: Bearer`, so that it cannot be a
    password. *is_charged* is True if the request was already counted against the rate of the key.
    *size* is the number of bytes of the body that arrived with the request, which count as well.
    """

    secret: str = field(repr=False)
    user: str = ""
    bearer: bool = False
    is_charged: bool = False
    size: int = 0


@dataclass(frozen=True, slots=True)
class Allowed:
    """The part of a feed that a caller may use, and the caller's admission, which may end.

    *bound* is that part. *principal* identifies the key, the token's subject or the user, and is
    empty for all callers with a password. *streams* is the maximum number of open streams, or 0 if
    the number is unlimited. *feed_prefixes* are the prefixes of the names of the feeds that a
    credential of the host permits; if it is empty, the credential permits every feed.
    """

    bound: Filter = EVERYTHING
    admission: Admission = FOR_GOOD
    principal: str = ""
    streams: int = 0
    feed_prefixes: tuple[str, ...] = ()

    @property
    def is_bounded(self) -> bool:
        return not self.bound.is_everything

    def permits(self, name: str) -> bool:
        """Return True if *name* begins with one of the prefixes of the credential."""
        return permits(self.feed_prefixes, name)

    def narrow(self, wanted: Filter, *, leave: bool = False) -> Filter:
        """Return the requested filter *wanted*, restricted to the bound.

        With *leave*, the result also requests events `leave`, if *wanted* or the bound names
        parents.
        """
        return within(wanted, self.bound, leave=leave) if self.is_bounded else wanted

    def namespaced_key(self, key: str) -> str:
        """Return *key*, which is printable, prefixed by the principal and a separator.

        Every id that a client chooses and the feed stores must be passed through this method, so
        that no credential can use the ids of another credential.
        """
        return f"{self.principal}{OWNER_END}{key}" if self.principal else key

    def require_unrestricted(self) -> None:
        """Check that the caller may use the whole feed.

        Raises:
            OutsideKey: the key is restricted, and the response cannot be filtered.
        """
        if self.is_bounded:
            raise OutsideKey("is bounded to a part of the feed, and this request needs all of it")


ALL = Allowed()


def permits(prefixes: tuple[str, ...], name: str) -> bool:
    """Return True if *name* begins with one of *prefixes*, or if *prefixes* is empty."""
    return not prefixes or name.startswith(prefixes)


class Bearers(Protocol):
    """An authenticator for one kind of credential, such as keys. The text shows the kind."""

    def knows(self, given: Credential) -> bool:
        """Return True if *given* looks like a credential of this kind.

        In this case, *given* is not tried as a credential of another kind or as a password.
        """

    def may_block(self, feed: str, given: Credential) -> bool:
        """Return True if `authorize` may wait for a lock, a store or another host."""

    def authorize(self, feed: str, role: Role, given: Credential) -> Allowed:
        """Return the rights of *given*, a credential of this kind.

        Raises:
            Rejected: *given* does not grant *role* on *feed*.
        """


class FailedAttemptLimiter:
    """A limit of *most* failed attempts per feed in each `limits.MISSES_MS`.

    Guesses of a credential of the host count for the host, whichever feed they were sent to.

    The streaming URL has no API throttle, and each guess costs a slow hash or two reads of the
    store. Each process therefore counts the failed attempts of a feed. Above the limit, the process
    rejects every credential that it has not verified before, without a read or a hash. Credentials
    that the process has verified before still pass.
    """

    def __init__(self, clock: Clock, most: int) -> None:
        self._clock, self._most = clock, most
        # A list for each feed and window, with an item for each failed attempt. A server may count
        # in its event loop, which must not wait for a lock. No lock is needed, because `setdefault`
        # and `append` are atomic.
        self._counted: dict[tuple[str, int], list[None]] = {}

    def check(self, feed: str) -> None:
        """Check that another attempt on *feed*, which must exist, is allowed.

        Raises:
            TooManyRequests: there were too many failed attempts.
        """
        now = self._clock()
        if len(self._counted.get((feed, now // limits.MISSES_MS), ())) >= self._most:
            rest_s = -(-(limits.MISSES_MS - now % limits.MISSES_MS) // 1000)
            rule = f"cannot be checked now, after {self._most} failed attempts; try again later"
            raise TooManyRequests(rule, retry_after_s=rest_s, field="credential")

    def add(self, feed: str) -> None:
        """Count a failed attempt."""
        window = feed, self._clock() // limits.MISSES_MS
        if window not in self._counted:
            for old in [each for each in list(self._counted) if each[1] != window[1]]:
                self._counted.pop(old, None)
        self._counted.setdefault(window, []).append(None)


@dataclass(frozen=True, slots=True)
class PasswordCheck:
    """The check of passwords by *verifier*; *failures* counts the wrong ones."""

    verifier: Verifier
    failures: FailedAttemptLimiter

    def opened(self, scope: str, secret: str, stored: Mapping[Role, Sequence[str]]) -> set[Role]:
        """Return the roles with a hash in *stored* that *secret* matches.

        A password that matches no hash counts as a failed attempt on *scope*.

        Raises:
            TooManyRequests: there were too many failed attempts, and *secret* was not verified yet.
        """
        if not any(self.verifier.remembers(secret, each) for each in stored.values()):
            self.failures.check(scope)
        opened = {role for role, each in stored.items() if self.verifier.matches(secret, each)}
        if not opened:
            self.failures.add(scope)
        return opened


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """The access check of all feeds.

    If *open* is True, every caller is admitted to a feed that has no credential. *bearers* are
    tried first, in order, so a caller that presents a key has only the rights of the key, even on
    an open feed. Error messages suggest commands to the operator; *target* is the option of these
    commands that names this host.
    """

    profiles: ProfileStore
    passwords: PasswordCheck
    open: bool
    feed_names: FeedNames
    bearers: Sequence[Bearers] = ()
    target: str = "--stage STAGE"

    def check(
        self,
        feed: str,
        role: Role,
        given: Credential | None,
        *,
        unrestricted: bool = False,
        other: Role | None = None,
    ) -> Allowed:
        """Return the rights of a caller that needs *role* on *feed*, with the credential *given*.

        A credential with the role *other* is sufficient, too.

        Raises:
            NoPasswordSet: the feed has no password for the role.
            WrongPassword, WrongKey: the credential is wrong.
            OutsideKey: the key lacks the role, or *unrestricted* is True and the key is restricted.
            TooManyRequests: the rate is used up, or there were too many failed attempts.
        """
        kind = self._kind(given)
        if kind is None or given is None:
            self._check_password(feed, role, given, other)
            return ALL
        try:
            allowed = kind.authorize(feed, role, given)
        except OutsideKey:
            if other is None:
                raise
            allowed = kind.authorize(feed, other, given)
        if unrestricted:
            allowed.require_unrestricted()
        return allowed

    def rights(self, feed: str, given: Credential | None) -> dict[Role, Allowed]:
        """Return the rights of *given* on *feed* for each role that it grants.

        The result is empty for a wrong or missing credential. A wrong credential counts as one
        failed attempt.

        Raises:
            TooManyRequests: see `check`.
        """
        kind = self._kind(given)
        if kind is None or given is None:
            return dict.fromkeys(self._password_rights(feed, given), ALL)
        found: dict[Role, Allowed] = {}
        for role in Role:
            try:
                found[role] = kind.authorize(feed, role, given)
            except OutsideKey:
                continue  # the credential may grant another role
            except WrongKey:
                return {}
            given = replace(given, is_charged=True)
        return found

    def _password_rights(self, feed: str, given: Credential | None) -> list[Role]:
        if self.open and not self.is_protected(feed):
            return [*Role]
        stored = {role: self._passwords(feed, role) for role in PASSWORD_ROLES}
        if given is None or given.bearer or not any(stored.values()):
            return []
        opened = self.passwords.opened(self.scope(feed), given.secret, stored)
        return [role for role in Role if password_role(role) in opened]

    def knows(self, given: Credential | None) -> bool:
        """Return True if *given* is a key or a token rather than a user or a password."""
        return self._kind(given) is not None

    def may_block(self, feed: str, role: Role, given: Credential | None) -> bool:
        """Return True if `check` may wait for a lock, or compute a slow hash for milliseconds."""
        if given is None:
            return False
        kind = self._kind(given)
        if kind is not None:
            return kind.may_block(feed, given)
        if given.bearer:
            return False
        stored = self._passwords(feed, role)
        return bool(stored) and not self.passwords.verifier.remembers(given.secret, stored)

    def _kind(self, given: Credential | None) -> Bearers | None:
        if given is None:
            return None
        return next((each for each in self.bearers if each.knows(given)), None)

    def _check_password(
        self, feed: str, role: Role, given: Credential | None, other: Role | None = None
    ) -> None:
        is_protected = self.is_protected(feed)
        if self.open and not is_protected:
            return
        stored, name = self._passwords(feed, role), password_role(role).value
        stored += self._passwords(feed, other) if other else ()
        if not stored:
            command = f"tidings feed password {name} --feed {public_name(feed)} {self.target}"
            if feed == HOST:
                command = f"tidings keys create --host --role {role.value} {self.target}"
            way = "opens to a key or token only" if is_protected else "is closed"
            raise NoPasswordSet(f"{way} until its operator runs `{command}`", field="feed")
        if given is None or given.bearer:
            rule = f"must be the {name} password of the feed (HTTP Basic, any user name) or a key"
            raise WrongPassword(rule, field="password")
        if not self.passwords.opened(self.scope(feed), given.secret, {role: stored}):
            raise WrongPassword(f"is not the {name} password of the feed", field="password")

    def is_protected(self, feed: str) -> bool:
        """Return True if *feed* or the host has or had a credential."""
        profile, host = self.profiles.profile(feed), self.profiles.profile(HOST)
        return profile.is_protected or host.is_protected

    def require_protected(self, feed: str) -> None:
        """Check that *feed* or the host has a credential, or that the host is closed.

        Raises:
            NoPasswordSet: the feed is open, and its first key would close it for every client.
        """
        if self.open and not self.is_protected(feed):
            scope = "--host" if feed == HOST else f"--feed {public_name(feed)}"
            command = f"tidings keys create {scope} --role admin {self.target}"
            rule = f"is open; its operator creates the first key with `{command}`"
            raise NoPasswordSet(rule, field="feed")

    def check_host(
        self,
        role: Role,
        given: Credential | None,
        name: str | None = None,
        *,
        other: Role | None = None,
    ) -> Allowed:
        """Return the rights of a caller that needs *role* at the host, for the feed *name* if any.

        A credential with the role *other* is sufficient, too.
        `Allowed.feed_prefixes` of the result has the prefixes of the names that the caller may use.

        Raises:
            NoPasswordSet, WrongPassword, WrongKey, TooManyRequests: see `check`.
            OutsideKey: the credential lacks the role, is restricted to a part of its feeds, or does
                not permit *name*.
        """
        allowed = self.check(HOST, role, given, unrestricted=True, other=other)
        if name is not None and not allowed.permits(name):
            raise OutsideKey(f"does not permit the feed {name}")
        return allowed

    def _passwords(self, feed: str, role: Role) -> tuple[str, ...]:
        """Return the hashes of the passwords that open *feed* for *role*."""
        return passwords_of(self.profiles.profile(self.scope(feed)), role)

    def scope(self, feed: str) -> str:
        """Return the owner of the passwords that open *feed*: the feed or the host.

        The passwords of the host open only feeds without passwords. Otherwise a password that was
        replaced for the feed would still open it as a password of the host.
        """
        own = self.profiles.profile(feed)
        return feed if own.read_passwords or own.ingest_passwords else HOST

    def version(self, feed: str) -> int:
        """Return a number that changes with the passwords of *feed* and of the host."""
        return self.profiles.profile(feed).version + self.profiles.profile(HOST).version

    def check_held(self, feed: str, admission: Admission, since_ms: int, now_ms: int) -> None:
        """Check that a caller of *since_ms* may still be answered; call it after each read.

        Raises:
            FeedDeleted: the feed was deleted in the meantime.
            KeyEnded: the key has ended in the meantime.
        """
        self.feed_names.check(feed)
        if admission.may_end and must_disconnect(
            endings_at(self.profiles, feed), admission, since_ms, now_ms
        ):
            raise KeyEnded("was revoked or has expired", field="key")

    def check_leave(self, feed: str, wanted: Filter) -> None:
        """Check that *feed* stores the removed parents if *wanted* requests events `leave`.

        Raises:
            LeaveNotKept: *wanted* requests events `leave`, and the feed stores no removed parents.
        """
        if wanted.leave and not self.profiles.profile(feed).leave:
            command = f"tidings feed set --feed {public_name(feed)} --leave on"
            rule = f"is not available until the feed's operator runs `{command}`"
            raise LeaveNotKept(rule, field="leave", value=True)


class Bounded(Enum):
    """The way in which a request is answered if its key is restricted to a part of the feed."""

    NARROWED = "narrowed"  # the response has only the part that the key allows
    BY_TYPE = "by type"  # like NARROWED, but a key that is restricted by parents is rejected
    REFUSED = "refused"  # the request is rejected, because the response covers the whole feed


@dataclass(frozen=True, slots=True)
class Need:
    """The permission that a route or message needs; if *role* is None, all callers have it."""

    role: Role | None = None
    bounded: Bounded = Bounded.NARROWED

    def admit(self, guard: Guard, feed: str, given: Credential | None) -> Allowed:
        """Return the rights of *given* on *feed*.

        Raises:
            Rejected: *given* lacks this permission; see `Guard.check`.
        """
        if self.role is None:
            return ALL
        allowed = guard.check(feed, self.role, given, unrestricted=self.bounded is Bounded.REFUSED)
        if self.bounded is Bounded.BY_TYPE and allowed.bound.parents is not None:
            raise OutsideKey("is bounded by parents; this request can be narrowed only by types")
        return allowed


PUBLIC = Need()
READ = Need(Role.READ)
REPLICATE = Need(Role.READ, Bounded.BY_TYPE)  # a `leave` would reveal parents outside the bound
READ_ALL = Need(Role.READ, Bounded.REFUSED)
CONSUME = Need(Role.CONSUME, Bounded.REFUSED)  # moving a consumer affects every worker
ERASE = Need(Role.ERASE, Bounded.REFUSED)  # an erasure reaches every store of the feed
INGEST = Need(Role.INGEST)
PUBLISH = Need(Role.INGEST, Bounded.BY_TYPE)  # items have no parents to compare with a bound
ADMIN = Need(Role.ADMIN, Bounded.REFUSED)


def password_role(role: Role) -> Role:
    """Return the role with the password for *role*: INGEST for all roles except READ."""
    return Role.READ if role is Role.READ else Role.INGEST


def passwords_of(profile: Profile, role: Role) -> tuple[str, ...]:
    """Return the stored hashes for *role*."""
    wanted = password_role(role)
    return profile.read_passwords if wanted is Role.READ else profile.ingest_passwords


def credential(secret: str | None) -> Credential | None:
    """Return the credential with the *secret* of a WebSocket message; None if *secret* is None."""
    return None if secret is None else Credential(secret)


def credential_from(header: str | None) -> Credential | None:
    """Parse an Authorization header, HTTP Basic or Bearer; return None for anything else.

    The scheme is case-insensitive (RFC 7617 and RFC 6750).
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

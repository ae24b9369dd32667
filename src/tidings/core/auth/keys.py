"""Keys, each of which is the credential of one user, with roles, a bound, an expiry and a rate.

The bound is the part of the feed to which the key is restricted. A key is `tdk_<id>_<secret>`, and
is looked up by its id, which is public. The secret has 192 random bits and cannot be guessed. A
plain SHA-256 of the secret, which is compared in a microsecond, is therefore safe to store. The
prefix lets secret scanners find keys that were published by mistake.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.auth.guard import KEY_PREFIX as PREFIX
from tidings.core.auth.guard import UNRESTRICTED_ROLES, Allowed, Role, opens, permits
from tidings.core.errors import (
    InvalidFilter,
    InvalidSetting,
    OutsideKey,
    UnknownKey,
    WrongKey,
)
from tidings.core.model.feeds import HOST, NAME, NAME_RULE, public_name
from tidings.core.model.filters import (
    EVERYTHING,
    Filter,
    from_text,
    to_text,
    validate_values,
)
from tidings.core.model.timestamps import MS_MAX
from tidings.core.newest import Newest
from tidings.core.records import Kind, Layout, Records, until_saved
from tidings.core.settings.profiles import change, close
from tidings.core.settings.values import Admission, Ended, with_ending

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tidings.core.auth.guard import Credential, FailedAttemptLimiter
    from tidings.core.auth.quotas import RateLimiter
    from tidings.core.effects import Clock
    from tidings.core.records import RecordStore
    from tidings.core.settings.profiles import ProfileStore

ID_CHARS = "0123456789abcdefghijklmnopqrstuvwxyz"
ID_LENGTH = 12  # 62 random bits, so that collisions are unlikely among a billion keys of a feed
SECRET_BYTES = 24  # 192 bits; their base64url has no padding
_ID_RANDOM_BYTES = 16  # far more than the 62 bits of an id, so that all ids are equally likely
_KEY = re.compile(rf"{PREFIX}(?P<id>[0-9a-z]{{{ID_LENGTH}}})_(?P<secret>[A-Za-z0-9_-]{{32}})")
_ID = re.compile(rf"[0-9a-z]{{{ID_LENGTH}}}")


@dataclass(frozen=True, slots=True)
class PresentedKey:
    """The id and the secret of a key in a request."""

    id: str
    secret: str = field(repr=False)

    def encode(self) -> str:
        return f"{PREFIX}{self.id}_{self.secret}"


@dataclass(frozen=True, slots=True)
class Key:
    """A stored key. *digest* is the digest of its secret, in hex.

    *rate* is in requests per second, or 0 if it is unlimited. *expires_ms* is 0 if the key does not
    expire. *streams* is the maximum number of open streams, or 0 for `limits.KEY_STREAMS`.
    *feeds* is only for keys of the host: prefixes of the names of the feeds that the key opens. If
    it is empty, the key opens all feeds. *revoked_ms* is 0 unless the key was revoked. *successor*
    is the id of the key that replaces this key, or "". An update is rejected if the stored
    *version* has changed in the meantime.
    """

    id: str
    digest: str = field(repr=False)
    roles: frozenset[Role]
    bound: Filter = EVERYTHING
    expires_ms: int = 0
    rate: int = 0
    streams: int = 0
    label: str = ""
    made_ms: int = 0
    made_by: str = ""
    revoked_ms: int = 0
    successor: str = ""
    version: int = 0
    feeds: tuple[str, ...] = ()

    def matches(self, secret: str) -> bool:
        return hmac.compare_digest(digest_of(secret), self.digest)

    @property
    def ended_ms(self) -> int:
        """Return the time at which the key ends or has ended; 0 if it does not end."""
        return min(filter(None, (self.revoked_ms, self.expires_ms)), default=0)


KEYS = Kind("key")
_LAYOUT = Layout(
    Key,
    {
        "bound": "filter",
        "expires_ms": "until",
        "made_ms": "made",
        "made_by": "by",
        "revoked_ms": "revoked",
    },
    {
        "roles": (
            lambda roles: sorted(role.value for role in roles),
            lambda names: frozenset(map(Role, names)),
        ),
        "bound": (to_text, from_text),
    },
    name="id",
)


class KeyStore:
    """The keys of each feed. A key that has ended is kept for `limits.KEY_KEPT_MS`."""

    def __init__(self, records: RecordStore) -> None:
        self._records = Records(records, KEYS, _LAYOUT)

    def key(self, feed: str, name: str) -> Key | None:
        """Return the key with the id *name*, or None if it does not exist.

        A key created before the call is found. Later changes of a key are visible within a second.
        """
        return self._records.get(feed, name, eventual=True)

    def keys(self, feed: str) -> Iterator[Key]:
        """Yield all keys of *feed* in the order of their ids; read them in batches."""
        return self._records.all(feed)

    def save(self, feed: str, key: Key) -> bool:
        """Write *key* and return True if the stored version is `key.version`; otherwise False.

        The key is stored with the version `key.version + 1`. With version 0, a new key is created.
        """
        kept_until_ms = key.ended_ms + limits.KEY_KEPT_MS if key.ended_ms else 0
        return self._records.save(feed, key, expires_ms=kept_until_ms)


def parse(text: str) -> PresentedKey | None:
    """Parse *text* as a key; return None if *text* is not a key."""
    match = _KEY.fullmatch(text)
    return PresentedKey(match["id"], match["secret"]) if match else None


def find_id(text: str) -> str:
    """Return the id of the first key in *text*, or "" if it has no key."""
    match = _KEY.search(text)
    return match["id"] if match else ""


def digest_of(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def fresh(new_key: Callable[[int], bytes]) -> PresentedKey:
    """Return a new key. *new_key* returns the given number of random bytes."""
    number = int.from_bytes(new_key(_ID_RANDOM_BYTES))
    characters = []
    for _ in range(ID_LENGTH):
        number, digit = divmod(number, len(ID_CHARS))
        characters.append(ID_CHARS[digit])
    secret = base64.urlsafe_b64encode(new_key(SECRET_BYTES)).decode()
    return PresentedKey("".join(characters), secret)


def check_id(text: str) -> str:
    """Return *text* if it can be the id of a key.

    Raises:
        InvalidSetting: *text* cannot be an id. The error does not show *text*, which may be a key.
    """
    if not _ID.fullmatch(text):
        rule = f"must be the {ID_LENGTH} letters and digits after {PREFIX}, not the whole key"
        raise InvalidSetting(rule, field="id")
    return text


def bound_of(types: Iterable[str], parents: Iterable[str]) -> Filter:
    """Return a filter by *types* and *parents*; an empty argument does not restrict.

    Raises:
        InvalidSetting: there are too many values, or a value is invalid.
    """
    try:
        return Filter(_values(types, "types"), _values(parents, "parents"))
    except InvalidFilter as error:
        raise InvalidSetting(error.rule, field=error.field, value=error.value) from None


def _values(given: Iterable[str], field: str) -> frozenset[str] | None:
    return validate_values(list(given), field) or None


def validate_key(key: Key) -> Key:
    """Return *key* if it may be stored.

    Raises:
        InvalidSetting: a field breaks its rule.
    """
    if not key.roles:
        raise InvalidSetting("must have at least one role", field="roles")
    unrestricted = sorted(role.value for role in key.roles & UNRESTRICTED_ROLES)
    if unrestricted and not key.bound.is_everything:
        rule = (
            f"{' and '.join(unrestricted)} needs the whole feed and cannot be combined with a bound"
        )
        raise InvalidSetting(rule, field="roles")
    if len(to_text(key.bound)) > limits.KEY_BOUND_CHARS_MAX:
        rule = f"must be at most {limits.KEY_BOUND_CHARS_MAX} characters as JSON in ASCII"
        raise InvalidSetting(rule, field="bound")
    if key.rate < 0 or key.rate > limits.KEY_RATE_MAX:
        rule = f"must be 1 to {limits.KEY_RATE_MAX} requests a second, or 0 for no limit"
        raise InvalidSetting(rule, field="rate", value=key.rate)
    if not 0 <= key.expires_ms <= MS_MAX:
        raise InvalidSetting("must be before the year 10000", field="expires")
    if key.streams < 0 or key.streams > limits.KEY_STREAMS_MAX:
        rule = f"must be 1 to {limits.KEY_STREAMS_MAX} at once, or 0 for {limits.KEY_STREAMS}"
        raise InvalidSetting(rule, field="streams", value=key.streams)
    if len(key.feeds) > limits.KEY_PREFIXES_MAX:
        raise InvalidSetting(f"has at most {limits.KEY_PREFIXES_MAX} prefixes", field="feeds")
    for prefix in key.feeds:
        if not NAME.fullmatch(prefix):
            raise InvalidSetting(f"a prefix of names {NAME_RULE}", field="feeds", value=prefix)
    for name, text in (("label", key.label), ("by", key.made_by)):
        if len(text) > limits.KEY_LABEL_CHARS_MAX or not text.isprintable():
            rule = f"must be at most {limits.KEY_LABEL_CHARS_MAX} printable characters"
            raise InvalidSetting(rule, field=name, value=text)
    return key


def _has_all(right: Allowed, scope: str, key: Key) -> bool:
    return not right.is_bounded and (scope != HOST or all(map(right.permits, key.feeds)))


def covers(creator: Allowed, scope: str, key: Key) -> bool:
    """Return True if *creator*, which administers *scope*, may list and revoke *key*.

    A credential of the host that permits only some feeds covers the keys that permit no other feed.
    """
    if scope != HOST or not creator.feed_prefixes:
        return True
    return bool(key.feeds) and all(map(creator.permits, key.feeds))


def within(wanted: Key, creator: Allowed, rights: Mapping[Role, Allowed], *, scope: str) -> Key:
    """Return *wanted*, a new key for *scope*, with at most the rights of its *creator*.

    *rights* are the rights of the creator at *scope* by role: each role of the key needs one that
    permits all feeds of the key. Limits that *wanted* does not set are those of the creator.

    Raises:
        OutsideKey: the key would have more rights than its creator.
        InvalidSetting: a field breaks its rule, or the key would permit all feeds of the host.
    """
    validate_key(wanted)
    if scope == HOST and not wanted.feeds:
        rule = "must have a prefix; only `tidings keys create --host` creates a key for all feeds"
        raise InvalidSetting(rule, field="feeds")
    if not covers(creator, scope, wanted):
        rule = (
            f"must begin with {' or '.join(creator.feed_prefixes)}, like those of your credential"
        )
        raise OutsideKey(rule, field="feeds")
    missing = sorted(
        role.value
        for role in wanted.roles
        if role not in rights or not _has_all(rights[role], scope, wanted)
    )
    if missing:
        rule = f"may not have {', '.join(missing)}, because the credential of the request has not"
        raise OutsideKey(rule, field="roles")
    admission = creator.admission
    streams = wanted.streams or min(limits.KEY_STREAMS, creator.streams or limits.KEY_STREAMS)
    return replace(
        wanted,
        expires_ms=_at_most(wanted.expires_ms, admission.until_ms, "expires"),
        rate=_at_most(wanted.rate, admission.rate, "rate"),
        streams=_at_most(streams, creator.streams, "streams"),
    )


def _at_most(wanted: int, own: int, field: str) -> int:
    """Return the limit *wanted*, or *own* if *wanted* is 0, which means unlimited."""
    if own and wanted > own:
        limit = "end no later than the" if field == "expires" else f"be at most {own}, like the"
        raise OutsideKey(f"must {limit} credential of the request", field=field)
    return wanted or own


class KeyRing:
    """The authentication by keys; implements `guard.Bearers`.

    A key is cached for `limits.KEY_AGE_MS`. Each process therefore reads a key once in this time,
    for half a read unit, and a revocation takes effect within this time. A server checks keys in
    its event loop, which must not wait for a lock. The cache needs no lock, because each operation
    on the cache is atomic.

    *clock* decides whether a key has expired, *aging* how long a key was cached.
    """

    def __init__(
        self,
        stored: KeyStore,
        clock: Clock,
        aging: Clock,
        failures: FailedAttemptLimiter,
        meter: RateLimiter | None = None,
    ) -> None:
        self._stored, self._clock, self._aging = stored, clock, aging
        self._failures, self._meter = failures, meter
        # The time at which each key was read, and the key, in the order of these times.
        self._known: Newest[tuple[str, str], tuple[int, Key]] = Newest(limits.KEYS_KNOWN_MAX)

    def knows(self, given: Credential) -> bool:
        return parse(given.secret) is not None

    def may_block(self, feed: str, given: Credential) -> bool:
        """Return True if the key is not cached, or has a rate, which is counted under a lock."""
        shown = parse(given.secret)
        known = self._cached(feed, shown.id) if shown else None
        return known is None or bool(known[1].rate)

    def authorize(self, feed: str, role: Role, given: Credential) -> Allowed:
        """Return the rights of the key *given*.

        Raises:
            WrongKey: the key does not exist or has ended.
            OutsideKey: the key does not have this role.
            TooManyRequests: the rate is used up, or there were too many failed attempts.
        """
        shown = parse(given.secret)
        scope, key = self._find(feed, shown) if shown else (feed, None)
        if shown is None or key is None or not key.matches(shown.secret):
            self._failures.add(scope)
            where = "this host" if feed == HOST else f"the feed {public_name(feed)}"
            raise WrongKey(f"is not a key of {where}", field="key")
        if key.revoked_ms:
            raise WrongKey("was revoked", field="key")
        if 0 < key.expires_ms <= self._clock():
            raise WrongKey("has expired", field="key")
        if scope != feed and not permits(key.feeds, public_name(feed)):
            raise OutsideKey("does not permit this feed")
        if not opens(key.roles, role):
            has = ", ".join(sorted(each.value for each in key.roles))
            raise OutsideKey(f"has {has}, but this request needs {role.value}")
        if self._meter and key.rate:
            if not given.is_charged:
                self._meter.spend(feed, key.id, key.rate)
            if given.size:
                weight = limits.KEY_READ_SIZE // limits.KEY_BODY_BYTES
                self._meter.charge(feed, key.id, key.rate, weight * given.size)
        admission = Admission(key.id, key.expires_ms, key.rate)
        streams = key.streams or limits.KEY_STREAMS
        return Allowed(key.bound, admission, key.id, streams, key.feeds)

    def forget(self, feed: str, name: str) -> None:
        """Remove the key with the id *name* from the cache, because the key was changed."""
        self._known.pop((feed, name), None)

    def _find(self, feed: str, shown: PresentedKey) -> tuple[str, Key | None]:
        """Return the key, and the feed in which it is stored: *feed* or the host.

        A cached key is used first, and a key that was found at the host is read there again. So a
        request with a key of the host does not search for the key in its feed each time.
        """
        cached = self._cached(feed, shown.id)
        if cached is not None:
            return cached
        scopes = (HOST, feed) if (HOST, shown.id) in self._known else (feed, HOST)
        for scope in dict.fromkeys(scopes):
            key = self._key(scope, shown)
            if key is not None:
                return scope, key
        return feed, None

    def _cached(self, feed: str, name: str) -> tuple[str, Key] | None:
        """Return the cached key with the id *name* of *feed* or of the host, and its feed."""
        for scope in (feed, HOST):
            known = self._from_cache((scope, name))
            if known is not None:
                return scope, known
        return None

    def _from_cache(self, cache_key: tuple[str, str]) -> Key | None:
        read_at, known = self._known.get(cache_key, (0, None))
        return known if 0 <= self._aging() - read_at < limits.KEY_AGE_MS else None

    def _key(self, feed: str, shown: PresentedKey) -> Key | None:
        """Return the cached or stored key.

        A missing key is not cached, because it may be created at any time. If *shown* matches a key
        that was cached before, read that key again regardless of failed attempts, so that the
        guesses of another client cannot block the key.
        """
        now, cache_key = self._aging(), (feed, shown.id)
        cached = self._from_cache(cache_key)
        if cached is not None:
            return cached
        known = self._known.get(cache_key, (0, None))[1]
        if known is None or not known.matches(shown.secret):
            self._failures.check(feed)
        key = self._stored.key(feed, shown.id)
        self._known.pop(cache_key, None)
        if key is not None:
            self._known[cache_key] = (now, key)
        return key


@dataclass(frozen=True, slots=True)
class KeyIssuer:
    """The creation, rotation and revocation of keys.

    The end of a key is recorded twice: in the key, so that new requests are rejected, and in the
    feed's profile, so that open connections are closed (`settings.profiles`). *on_change* is called
    after each change of a key, with its feed and its id.
    """

    keys: KeyStore
    profiles: ProfileStore
    clock: Clock
    on_change: Callable[[str, str], None] = lambda feed, name: None

    def create(self, feed: str, given: PresentedKey, wanted: Key) -> Key:
        """Store *given*, which must be fresh and random, with the rights of *wanted*.

        Raises:
            InvalidSetting: a field of *wanted* breaks its rule, or the id is taken.
        """
        now = self.clock()
        made = replace(wanted, id=given.id, digest=digest_of(given.secret), made_ms=now)
        if 0 < made.expires_ms <= now:
            raise InvalidSetting("must be in the future", field="expires")
        return self._store(feed, made)

    def find(self, feed: str, name: str) -> Key:
        """Return the key with the id *name*.

        Raises:
            InvalidSetting: *name* is not an id.
            UnknownKey: the feed has no such key.
        """
        key = self.keys.key(feed, check_id(name))
        if key is None:
            raise UnknownKey("is not the id of a key of the feed", field="id", value=name)
        return key

    def revoke(self, feed: str, name: str) -> Key:
        """Revoke the key at once; a key that was revoked before keeps the time of that revocation.

        Raises:
            InvalidSetting, UnknownKey: see `find`.
        """
        ended = self._end(feed, name, "")
        self._note(feed, Ended(ended.id, self.clock()))
        return ended

    def rotate(
        self, feed: str, name: str, given: PresentedKey, overlap_ms: int, made_by: str
    ) -> Key:
        """Store *given* as a new key with the rights of the key with the id *name*.

        The old key stays valid for *overlap_ms*, so that its user can change to the new key. If
        *overlap_ms* is 0, the old key is revoked.

        Raises:
            InvalidSetting: *name* is not an id, the old key has ended, or the new id is taken.
            UnknownKey: the feed has no such key.
        """
        now, old = self.clock(), self.find(feed, name)
        if 0 < old.ended_ms <= now:
            self._note(feed, Ended(name, now))  # a rotation may have been killed before its note
            raise InvalidSetting("has ended; create a new key", field="id", value=name)
        last = old  # a rotation has shortened the life of each key that has a successor
        while last.successor and (successor := self.keys.key(feed, last.successor)):
            last = successor
        made = self._store(
            feed,
            replace(
                old,
                expires_ms=last.expires_ms,
                id=given.id,
                digest=digest_of(given.secret),
                made_ms=now,
                made_by=made_by,
                revoked_ms=0,
                successor="",
                version=0,
            ),
        )
        if overlap_ms <= 0:
            self._end(feed, name, made.id)
            self._note(feed, Ended(name, now))
            return made
        until = min(now + overlap_ms, old.expires_ms or now + overlap_ms)
        self._change(feed, name, lambda key: replace(key, expires_ms=until, successor=made.id))
        if until - now < limits.CONNECTION_MS_MAX:  # otherwise open connections end before the key
            self._note(feed, Ended(name, now, until))
        return made

    def _store(self, feed: str, key: Key) -> Key:
        validate_key(key)
        if key.feeds and feed != HOST:
            raise InvalidSetting("is only for a key of the host", field="feeds")
        close(self.profiles, feed)  # before `save`: a crash in between must not leave the feed open
        if not self.keys.save(feed, key):
            raise InvalidSetting("is already used; try again", field="id", value=key.id)
        return key

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
        def attempt() -> Key | None:
            wanted = change(self.find(feed, name))
            try:
                return wanted if self.keys.save(feed, wanted) else None
            finally:  # also after an error, because the write may have been done
                self.on_change(feed, name)

        return until_saved(attempt, f"the key {name}")

    def _note(self, feed: str, ended: Ended) -> None:
        change(
            self.profiles,
            feed,
            lambda profile: replace(profile, ended=with_ending(profile.ended, ended)),
        )

"""Keys: their format and rules, the keys that a key ring admits, and how keys are issued and
ended."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pytest

from tests.fakes import MemoryKeys, MemoryProfiles
from tests.fakes.runtime import EVERY_FEED
from tests.unit.core.scene import FEED, NOW, Scene, shown
from tidings.core import limits
from tidings.core.auth.guard import (
    Allowed,
    Credential,
    FailedAttemptLimiter,
    Guard,
    PasswordCheck,
    Role,
)
from tidings.core.auth.keys import (
    Key,
    KeyIssuer,
    KeyRing,
    PresentedKey,
    bound_of,
    check_id,
    digest_of,
    parse,
    validate_key,
    within,
)
from tidings.core.auth.oidc_claims import grant_of
from tidings.core.auth.passwords import Verifier
from tidings.core.errors import (
    InvalidSetting,
    NoPasswordSet,
    OutsideKey,
    Rejected,
    TooManyRequests,
    Unavailable,
    UnknownKey,
    WrongKey,
)
from tidings.core.model.feeds import HOST
from tidings.core.model.filters import EVERYTHING, Filter
from tidings.core.settings.profiles import Profile
from tidings.core.settings.values import Admission, Ended

SECRET = "abcdefghijklmnopqrstuvwxyz-_0123"[:32]
GIVEN = PresentedKey("3k2m9c0q8xw1", SECRET)
KEY = Key("3k2m9c0q8xw1", digest_of(SECRET), frozenset({Role.READ}))


def test_a_key_is_spelled_for_scanners() -> None:
    """The format is `tdk_`, the id and the secret; parsing an encoded key returns the same key."""
    assert GIVEN.encode() == f"tdk_3k2m9c0q8xw1_{SECRET}"
    assert parse(GIVEN.encode()) == GIVEN
    assert SECRET not in repr(GIVEN) and KEY.digest not in repr(KEY)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tdk_",
        GIVEN.encode()[:-1],
        GIVEN.encode() + "x",
        GIVEN.encode().upper(),
        f"{GIVEN.encode()}\n",
        GIVEN.encode().replace("_3", "_-"),
        f"tdk_3k2m9c0q8xw1_{'ä' * 32}",
    ],
)
def test_anything_else_is_no_key(text: str) -> None:
    """It is taken for a password."""
    assert parse(text) is None


def test_a_key_matches_its_secret_alone() -> None:
    """The digest is not stretched: a secret of 192 bits cannot be guessed."""
    assert KEY.digest == hashlib.sha256(SECRET.encode()).hexdigest()
    assert KEY.matches(SECRET)
    assert not KEY.matches(SECRET[:-1] + "x") and not KEY.matches("")


def test_a_key_ends_when_it_is_revoked_or_runs_out() -> None:
    """The earlier of the two counts; 0 means neither."""
    assert KEY.ended_ms == 0
    assert replace(KEY, expires_ms=5).ended_ms == 5
    assert replace(KEY, expires_ms=5, revoked_ms=3).ended_ms == 3


@pytest.mark.parametrize("text", ["", GIVEN.encode(), "3K2M9C0Q8XW1", "3k2m9c0q8xw"])
def test_an_id_is_no_key(text: str) -> None:
    """The error does not repeat the secret if the whole key was given instead of its id."""
    with pytest.raises(InvalidSetting, match="not the whole key") as refused:
        check_id(text)
    assert SECRET not in str(refused.value.body())


def test_a_bound_is_a_filter() -> None:
    """An empty bound allows everything; values that no filter accepts are refused."""
    assert bound_of([], []) == EVERYTHING
    assert bound_of(["video"], ["user/42"]) == Filter(frozenset({"video"}), frozenset({"user/42"}))
    with pytest.raises(InvalidSetting, match="parents"):
        bound_of([], ["\0"])


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"roles": frozenset()}, "at least one role"),
        (
            {"roles": frozenset({Role.ADMIN}), "bound": Filter(frozenset({"video"}))},
            "cannot be combined with a bound",
        ),
        ({"rate": -1}, "requests a second"),
        ({"rate": limits.KEY_RATE_MAX + 1}, "requests a second"),
        ({"streams": -1}, "streams: "),
        ({"streams": limits.KEY_STREAMS_MAX + 1}, "streams: "),
        ({"label": "x" * (limits.KEY_LABEL_CHARS_MAX + 1)}, "printable"),
        ({"made_by": "a\nb"}, "printable"),
    ],
)
def test_what_no_key_may_have(wrong: dict[str, object], match: str) -> None:
    """Each with its rule."""
    with pytest.raises(InvalidSetting, match=match):
        validate_key(replace(KEY, **wrong))  # type: ignore[arg-type]
    assert validate_key(KEY) == KEY


BOUND = Filter(parents=frozenset({"user/42"}))


class Counting(MemoryKeys):
    """How often a key was read."""

    reads = 0

    def key(self, feed: str, name: str) -> Key | None:
        self.reads += 1
        return super().key(feed, name)


def test_a_key_allows_its_roles_within_its_bound(scene: Scene) -> None:
    """The result names the key's id and its expiry, for connections that stay open."""
    given = scene.key(Role.READ, Role.INGEST, bound=BOUND, expires_ms=scene.now_ms + 1)
    for role in (Role.READ, Role.INGEST):
        allowed = scene.guard.check(FEED, role, shown(given))
        admission = Admission(given.id, scene.now_ms + 1)
        assert allowed == Allowed(BOUND, admission, given.id, limits.KEY_STREAMS)
    rule = "has ingest, read, but this request needs admin"
    with pytest.raises(OutsideKey, match=rule) as refused:
        scene.guard.check(FEED, Role.ADMIN, shown(given))
    assert (refused.value.status, refused.value.code) == (403, "outside_key")


def test_it_opens_where_there_is_no_password(scene: Scene) -> None:
    """A key is accepted as a bearer too; other credentials are refused."""
    given = scene.key()
    closed = replace(scene.guard, open=False)
    for credential in (shown(given), Credential(given.encode(), bearer=True)):
        assert closed.check(FEED, Role.READ, credential).admission.key == given.id
    with pytest.raises(NoPasswordSet):
        closed.check(FEED, Role.READ, Credential("anything"))


def test_an_open_feed_holds_who_shows_a_key_to_it(scene: Scene) -> None:
    """Otherwise a bound would mean nothing on the twin, and a revoked key would still work."""
    given = scene.key(bound=BOUND)
    assert scene.guard.check(FEED, Role.READ, shown(given)).bound == BOUND
    scene.issuer.revoke(FEED, given.id)
    scene.now_ms += limits.KEY_AGE_MS
    with pytest.raises(WrongKey, match="was revoked"):
        scene.guard.check(FEED, Role.READ, shown(given))
    with pytest.raises(NoPasswordSet):
        scene.guard.check(FEED, Role.READ, None)


@pytest.mark.parametrize("wrong", ["id", "secret", "feed"])
def test_what_is_no_key_of_the_feed(scene: Scene, wrong: str) -> None:
    """All of them look alike; the error repeats nothing of it."""
    given = scene.key()
    name = "z" * 12 if wrong == "id" else given.id
    other = PresentedKey(name, "x" * 32 if wrong == "secret" else given.secret)
    with pytest.raises(WrongKey, match="is not a key of the feed") as refused:
        scene.guard.check("other" if wrong == "feed" else FEED, Role.READ, shown(other))
    assert refused.value.status == 401
    assert other.secret not in str(refused.value.body())


def test_a_key_runs_out(scene: Scene) -> None:
    """At its time, whether it is remembered or not."""
    given = scene.key(expires_ms=scene.now_ms + 10)
    scene.guard.check(FEED, Role.READ, shown(given))
    scene.now_ms += 10
    with pytest.raises(WrongKey, match="has expired"):
        scene.guard.check(FEED, Role.READ, shown(given))


def test_a_key_is_read_once_in_four_seconds() -> None:
    """This holds for any number of uses; a revocation applies from the next read."""
    stored = Counting()
    scene = Scene(keys=stored)
    given = scene.key()
    stored.reads = 0
    for _ in range(100):
        scene.guard.check(FEED, Role.READ, shown(given))
    assert stored.reads == 1
    scene.issuer.revoke(FEED, given.id)
    scene.now_ms += limits.KEY_AGE_MS - 1
    scene.guard.check(FEED, Role.READ, shown(given))
    scene.now_ms += 1
    with pytest.raises(WrongKey):
        scene.guard.check(FEED, Role.READ, shown(given))


def test_a_key_that_was_not_there_may_be_there_the_next_moment(scene: Scene) -> None:
    """Only existing keys are cached."""
    given = PresentedKey("0" * 12, "s" * 32)
    with pytest.raises(WrongKey):
        scene.guard.check(FEED, Role.READ, shown(given))
    scene.issuer.create(FEED, given, Key("", "", frozenset({Role.READ})))
    scene.guard.check(FEED, Role.READ, shown(given))


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key that was read least recently is read again."""
    monkeypatch.setattr(limits, "KEYS_KNOWN_MAX", 2)
    stored = Counting()
    scene = Scene(keys=stored)
    given = [PresentedKey(f"{n:012}", "s" * 32) for n in range(3)]
    for each in given:
        scene.issuer.create(FEED, each, Key("", "", frozenset({Role.READ})))
    key_ring = KeyRing(stored, scene.clock, scene.clock, scene.guard.passwords.failures)
    stored.reads = 0
    for each in (given[0], given[1], given[0], given[2], given[0], given[1]):
        key_ring.authorize(FEED, Role.READ, shown(each))
    assert stored.reads == 5


def test_a_rate_is_asked_last(scene: Scene) -> None:
    """A request that the key's roles do not allow does not count against its rate."""
    given = scene.key(rate=1)
    for _ in range(3):
        with pytest.raises(OutsideKey):
            scene.guard.check(FEED, Role.ADMIN, shown(given))
    scene.guard.check(FEED, Role.READ, shown(given))
    with pytest.raises(TooManyRequests) as refused:
        scene.guard.check(FEED, Role.READ, shown(given))
    assert refused.value.status == 429 and isinstance(refused.value, Rejected)


@pytest.mark.parametrize(("size", "requests"), [(0, 10), (32 * 1024, 7), (1024 * 1024, 1)])
@pytest.mark.parametrize("is_late", [False, True])
def test_a_rate_counts_the_bytes_of_bodies(
    scene: Scene, size: int, requests: int, is_late: bool
) -> None:
    """Also if the body arrives after the head, which was counted before."""
    given, accepted = scene.key(rate=1), 0
    scene.now_ms -= scene.now_ms % limits.KEY_WINDOW_MS
    for _ in range(10):
        with suppress(TooManyRequests):
            body = replace(shown(given), size=size)
            if is_late:
                scene.guard.check(FEED, Role.READ, shown(given))
                body = replace(body, is_charged=True)
            scene.guard.check(FEED, Role.READ, body)
            accepted += 1
        scene.now_ms += 1000
    assert accepted == requests


def test_a_reader_moves_no_consumer(scene: Scene) -> None:
    """Working for one is a role of its own, which who may steer has too."""
    reader, worker = scene.key(Role.READ), scene.key(Role.READ, Role.CONSUME)
    operator = scene.key(Role.ADMIN)
    for given in (worker, operator):
        scene.guard.check(FEED, Role.CONSUME, shown(given))
    with pytest.raises(OutsideKey, match="has read, but this request needs consume"):
        scene.guard.check(FEED, Role.CONSUME, shown(reader))
    with pytest.raises(OutsideKey, match="but this request needs admin"):
        scene.guard.check(FEED, Role.ADMIN, shown(worker))


def test_erasing_is_a_role_of_its_own(scene: Scene) -> None:
    """`admin` includes it, and no other role does; it needs the whole feed."""
    eraser, operator = scene.key(Role.ERASE), scene.key(Role.ADMIN)
    others = scene.key(Role.READ, Role.INGEST, Role.CONSUME)
    for given in (eraser, operator):
        scene.guard.check(FEED, Role.ERASE, shown(given))
    with pytest.raises(OutsideKey, match="but this request needs erase"):
        scene.guard.check(FEED, Role.ERASE, shown(others))
    for wanted in (Role.READ, Role.CONSUME, Role.ADMIN):
        with pytest.raises(OutsideKey, match=f"has erase, but this request needs {wanted.value}"):
            scene.guard.check(FEED, wanted, shown(eraser))
    with pytest.raises(InvalidSetting, match="erase needs the whole feed"):
        scene.key(Role.ERASE, bound=bound_of(["video"], []))


NEW = PresentedKey("abcabcabcabc", "t" * 32)
HOUR_MS = 3600 * 1000


def test_a_key_is_stored_without_its_secret(scene: Scene) -> None:
    """The stored key has its creator and its time of creation."""
    given = scene.key(Role.INGEST, rate=3, made_by="ann")
    key = scene.issuer.find(FEED, given.id)
    assert (key.made_ms, key.made_by, key.rate, key.version) == (NOW, "ann", 3, 1)
    assert key.matches(given.secret)
    assert given.secret not in str([getattr(key, name) for name in key.__slots__])


def test_what_breaks_a_rule_is_not_stored(scene: Scene) -> None:
    """A key that expires at once is not stored either."""
    with pytest.raises(InvalidSetting):
        scene.key(rate=-1)
    with pytest.raises(InvalidSetting):
        scene.key(expires_ms=NOW)
    assert list(scene.keys.keys(FEED)) == []


def test_an_id_is_given_once(scene: Scene) -> None:
    """Creating a second key with the same id is refused."""
    scene.issuer.create(FEED, NEW, Key("", "", frozenset({Role.READ})))
    with pytest.raises(InvalidSetting, match="is already used"):
        scene.issuer.create(FEED, NEW, Key("", "", frozenset({Role.READ})))


def test_a_revocation_is_written_down_twice(scene: Scene) -> None:
    """It is stored in the key, and in the profile for connections that use the key. A second
    revocation leaves the key as it is.
    """
    given = scene.key()
    scene.now_ms += 5
    assert scene.issuer.revoke(FEED, given.id).revoked_ms == NOW + 5
    assert scene.profiles.profile(FEED).ended == (Ended(given.id, NOW + 5),)
    scene.now_ms += 5
    assert scene.issuer.revoke(FEED, given.id).revoked_ms == NOW + 5


def test_nobody_can_end_what_is_not_there(scene: Scene) -> None:
    """The feed's other keys and its profile stay as they are."""
    for act in (scene.issuer.find, scene.issuer.revoke):
        with pytest.raises(UnknownKey, match="is not the id of a key"):
            act(FEED, NEW.id)
    assert scene.profiles.profile(FEED) == Profile()


@pytest.mark.parametrize(
    ("overlap_ms", "expires_ms", "revoked_ms", "ended"),
    [
        (24 * HOUR_MS, NOW + 24 * HOUR_MS, 0, None),
        (HOUR_MS, NOW + HOUR_MS, 0, (NOW, NOW + HOUR_MS)),
        (0, 0, NOW, (NOW,)),
    ],
    ids=["when nobody is connected any more", "earlier: they are told", "at once: it is revoked"],
)
def test_rotating_ends_the_old_one(
    scene: Scene, overlap_ms: int, expires_ms: int, revoked_ms: int, ended: tuple[int, ...] | None
) -> None:
    """It names its successor, which has its rights."""
    given = scene.key(bound=Filter(frozenset({"video"})), label="shop", rate=5)
    made = scene.issuer.rotate(FEED, given.id, NEW, overlap_ms, "bob")
    old = scene.issuer.find(FEED, given.id)
    assert (old.expires_ms, old.successor, old.revoked_ms) == (expires_ms, NEW.id, revoked_ms)
    assert made == replace(
        old,
        id=NEW.id,
        digest=digest_of(NEW.secret),
        made_by="bob",
        expires_ms=0,
        revoked_ms=0,
        successor="",
        version=0,
    )
    expected = () if ended is None else (Ended(given.id, *ended),)
    assert scene.profiles.profile(FEED).ended == expected


def test_an_overlap_makes_no_key_live_longer(scene: Scene) -> None:
    """One that runs out earlier does so; one that has ended has no successor."""
    given = scene.key(expires_ms=NOW + HOUR_MS)
    made = scene.issuer.rotate(FEED, given.id, NEW, 24 * HOUR_MS, "bob")
    assert scene.issuer.find(FEED, given.id).expires_ms == made.expires_ms == NOW + HOUR_MS
    scene.now_ms += HOUR_MS
    with pytest.raises(InvalidSetting, match="has ended"):
        scene.issuer.rotate(FEED, given.id, PresentedKey("d" * 12, "u" * 32), 1, "bob")


def test_what_others_change_meanwhile_is_kept() -> None:
    """This holds for the key and for the profile."""

    class Busy(MemoryProfiles):
        busy = 1

        def save(self, feed: str, profile: Profile) -> bool:
            if self.busy:
                self.busy -= 1
                super().save(feed, replace(self.profile(feed), compat="oplog"))
            return super().save(feed, profile)

    scene = Scene(profiles=Busy())
    given = scene.key()
    scene.issuer.revoke(FEED, given.id)
    profile = scene.profiles.profile(FEED)
    assert (profile.compat, [each.key for each in profile.ended]) == ("oplog", [given.id])


def test_what_keeps_changing_is_given_up() -> None:
    """The revocation fails, and the profile does not list it."""

    class Changing(MemoryKeys):
        def save(self, feed: str, key: Key) -> bool:
            return key.version == 0 and super().save(feed, key)

    issuer = KeyIssuer(Changing(), MemoryProfiles(), lambda: NOW)
    issuer.create(FEED, NEW, Key("", "", frozenset({Role.READ})))
    with pytest.raises(Unavailable):
        issuer.revoke(FEED, NEW.id)
    assert limits.ENDED_MAX > 0 and issuer.profiles.profile(FEED).ended == ()


FEEDS = ("a", "a-x", "a-y", "ab", "b-x")
PREFIXES = ("a", "a-", "a-x", "b-")
BOUNDS = (EVERYTHING, EVERYTHING, Filter(frozenset("t")), Filter(parents=frozenset({"p"})))
TOKEN = Credential("token")


def some(chance: random.Random, values: tuple[Any, ...], least: int = 0) -> list[Any]:
    return chance.sample(values, chance.randint(least, len(values)))


@dataclass
class Token:
    """Implements `Bearers` with *claims*."""

    claims: dict[str, Any]

    def knows(self, given: Credential) -> bool:
        return given is TOKEN

    def may_block(self, feed: str, given: Credential) -> bool:
        return False

    def authorize(self, feed: str, role: Role, given: Credential) -> Allowed:
        return grant_of(self.claims, "g", feed, role)


def random_token(chance: random.Random) -> Token:
    def grant() -> dict[str, Any]:
        roles = [role.value for role in some(chance, tuple(Role), 1)]
        bound = chance.choice(BOUNDS).values()
        feed = chance.choice(("*", *FEEDS, *(f"{each}*" for each in PREFIXES)))
        return {"feed": feed, "roles": roles, **bound}

    grants = [grant() for _ in range(chance.randint(1, 5))]
    return Token(
        {"iss": "i", "sub": "s", "exp": NOW // 1000 + chance.choice((9, 10**12)), "g": grants}
    )


def random_key(chance: random.Random, scope: str) -> Key:
    key = Key(
        "",
        "",
        frozenset(some(chance, tuple(Role), 1)),
        expires_ms=chance.choice((0, NOW + 5_000, NOW + 50_000)),
        rate=chance.choice((0, 1, 9)),
        streams=chance.choice((0, 1, 90)),
        feeds=tuple(some(chance, PREFIXES)) if scope == HOST else (),
    )
    unrestricted = key.roles & {Role.CONSUME, Role.ERASE, Role.ADMIN}
    return key if unrestricted else replace(key, bound=chance.choice(BOUNDS))


def limit(value: int) -> float:
    return value or float("inf")


def exceeds(guard: Guard, made: Credential, creator: Credential, feed: str, role: Role) -> bool:
    """Return True if *made* may do on *feed* what *creator* may not."""
    try:
        right = guard.check(feed, role, made)
    except Rejected:
        return False
    try:
        own = guard.check(feed, role, creator)
    except Rejected:
        return True
    a, b = right.admission, own.admission
    pairs = ((a.until_ms, b.until_ms), (a.rate, b.rate), (right.streams, own.streams))
    return own.bound not in (EVERYTHING, right.bound) or any(limit(x) > limit(y) for x, y in pairs)


def process(token: Token | None = None) -> tuple[Guard, KeyIssuer]:
    """Return the guard of a process that knows keys and *token*, and its issuer of keys."""
    keys, profiles = MemoryKeys(), MemoryProfiles()
    misses = FailedAttemptLimiter(lambda: NOW, 10**6)
    ring = KeyRing(keys, lambda: NOW, lambda: NOW, misses)
    guard = Guard(
        profiles=profiles,
        passwords=PasswordCheck(Verifier(b""), misses),
        open=False,
        feed_names=EVERY_FEED,
        bearers=(ring, token) if token else (ring,),
    )
    return guard, KeyIssuer(keys, profiles, lambda: NOW, ring.forget)


def creations(seed: int) -> Iterator[tuple[Guard, Credential, Credential, str]]:
    """Yield each created key with its creator and the guard that knows both."""
    chance = random.Random(seed)
    for _ in range(400):
        guard, issuer = process(random_token(chance))
        scope, creator = chance.choice((HOST, *FEEDS)), TOKEN
        if chance.random() < 0.5:
            own = chance.choice((HOST, scope))
            issuer.create(own, GIVEN, random_key(chance, own))
            creator = Credential(GIVEN.encode())
        try:
            if scope == HOST:
                allowed = guard.check_host(Role.ADMIN, creator, chance.choice(FEEDS))
            else:
                allowed = guard.check(scope, Role.ADMIN, creator, unrestricted=True)
            rights = guard.rights(scope, creator)
            key = within(random_key(chance, scope), allowed, rights, scope=scope)
        except (OutsideKey, InvalidSetting, Rejected):
            continue
        made = PresentedKey("1" * 12, "k" * 32)
        issuer.create(scope, made, key)
        yield guard, creator, Credential(made.encode()), scope


@pytest.mark.parametrize("seed", range(5))
def test_no_created_key_may_do_what_its_creator_may_not(seed: int) -> None:
    """On no feed, in no role, within no bound, and for no longer or more often."""
    made = list(creations(seed))
    assert len(made) > 20
    for guard, creator, key, scope in made:
        for feed, role in product(FEEDS, Role):
            assert not exceeds(guard, key, creator, feed, role), (seed, scope, feed, role)


def test_a_revoked_key_opens_nothing_at_once() -> None:
    """A process that revokes a key does not use the cached one."""
    guard, issuer = process()
    issuer.create("main", GIVEN, Key("", "", frozenset({Role.ADMIN})))
    guard.check("main", Role.ADMIN, shown(GIVEN))
    issuer.revoke("main", GIVEN.id)
    with pytest.raises(Rejected, match="was revoked"):
        guard.check("main", Role.ADMIN, shown(GIVEN))

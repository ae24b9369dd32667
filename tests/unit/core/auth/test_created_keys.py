"""A created key has at most the rights of its creator, over random keys and tokens."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pytest

from tests.fakes import MemoryKeys, MemoryProfiles
from tests.fakes.runtime import EVERY_FEED
from tests.unit.core.scene import NOW, shown
from tidings.core.auth.guard import Allowed, Credential, FailedAttemptLimiter, Guard, Role
from tidings.core.auth.keys import Key, KeyIssuer, KeyRing, PresentedKey, within
from tidings.core.auth.oidc_claims import grant_of
from tidings.core.auth.passwords import Verifier
from tidings.core.errors import InvalidSetting, OutsideKey, Rejected
from tidings.core.model.feeds import HOST
from tidings.core.model.filters import EVERYTHING, Filter

FEEDS = ("a", "a-x", "a-y", "ab", "b-x")
PREFIXES = ("a", "a-", "a-x", "b-")
BOUNDS = (EVERYTHING, EVERYTHING, Filter(frozenset("t")), Filter(parents=frozenset({"p"})))
TOKEN, GIVEN = Credential("token"), PresentedKey("3k2m9c0q8xw1", "s" * 32)


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
        verifier=Verifier(b""),
        open=False,
        failures=misses,
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

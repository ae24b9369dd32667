"""The limit on guessing: how many attempts it allows, and that it does not lock out the owner of
the password.
"""

from __future__ import annotations

import pytest

from tests.fakes import MemoryKeys, MemoryOperatorDocuments
from tests.fakes.runtime import EVERY_FEED
from tests.unit.core.auth.test_keys import Counting
from tests.unit.core.changeagent.gates import gate
from tests.unit.core.scene import FEED, Scene, shown
from tidings.core import limits
from tidings.core.auth.guard import READ, Credential, FailedAttemptLimiter, Guard, Role
from tidings.core.auth.keys import KeyRing, PresentedKey
from tidings.core.auth.passwords import Verifier, hash_password
from tidings.core.changeagent.documents import USERS, OperatorDocument
from tidings.core.changeagent.users import UserAuthenticator, UserVerifier
from tidings.core.errors import Rejected, TooManyRequests, WrongKey, WrongPassword, WrongUser
from tidings.core.settings.profiles import Profile

RIGHT = "the right one"
PROFILE = Profile(read_passwords=(hash_password(RIGHT, salt=b"s" * 16, now_ms=0),))
COSTLY, CHEAP = f"$2b$12${'a' * 53}", f"$2b$04${'b' * 53}"


class Hashing(Verifier):
    """How often a slow hash was made."""

    hashes = 0

    def matches(self, password: str, stored: object) -> bool:
        self.hashes += 1
        return super().matches(password, stored)  # type: ignore[arg-type]


def closed(scene: Scene, verifier: Verifier, stored: MemoryKeys) -> Guard:
    """Return a guard of a feed with a password and a key ring, each of which allows three
    failures."""
    assert scene.profiles.save(FEED, PROFILE)
    key_ring = KeyRing(stored, scene.clock, scene.clock, FailedAttemptLimiter(scene.clock, 3))
    return Guard(
        profiles=scene.profiles,
        verifier=verifier,
        open=False,
        failures=FailedAttemptLimiter(scene.clock, 3),
        feed_names=EVERY_FEED,
        bearers=(key_ring,),
    )


def test_a_guess_is_refused_before_anything_is_hashed(scene: Scene) -> None:
    """This lasts until the window for failures ends; the refusal has the time of that."""
    verifier = Hashing(b"key")
    guard = closed(scene, verifier, MemoryKeys())
    for _ in range(3):
        with pytest.raises(WrongPassword):
            guard.check(FEED, Role.READ, Credential("a guess"))
    for _ in range(5):
        with pytest.raises(TooManyRequests) as refused:
            guard.check(FEED, Role.READ, Credential(RIGHT))
    assert verifier.hashes == 3
    assert (refused.value.status, refused.value.code) == (429, "too_many_requests")
    assert refused.value.field == "credential"

    scene.now_ms += refused.value.retry_after_s * 1000
    guard.check(FEED, Role.READ, Credential(RIGHT))


def test_a_guessed_key_is_refused_before_anything_is_read(scene: Scene) -> None:
    """This includes a guess with the id of an existing key: ids are not secret."""
    stored = Counting()
    guard, guess = closed(scene, Verifier(b"key"), stored), shown(PresentedKey("0" * 12, "x" * 32))
    for _ in range(3):
        with pytest.raises(WrongKey):
            guard.check(FEED, Role.READ, guess)
    for _ in range(5):
        with pytest.raises(TooManyRequests):
            guard.check(FEED, Role.READ, guess)
    assert stored.reads == 6  # at the feed and at the host


def test_who_is_known_is_let_in_while_others_guess(scene: Scene) -> None:
    """With the password, and with a key, also once it has to be read again."""
    scene.profiles.save(FEED, PROFILE)
    given = shown(scene.key(Role.READ))
    for known in (Credential(RIGHT), given):
        scene.guard.check(FEED, Role.READ, known)
    for _ in range(limits.MISSES_MAX):
        scene.guard.failures.add(FEED)
    scene.now_ms += limits.KEY_AGE_MS
    for known in (Credential(RIGHT), given):
        scene.guard.check(FEED, Role.READ, known)


def test_another_feed_is_not_kept_out() -> None:
    """Guesses are those of one feed."""
    failures = FailedAttemptLimiter(lambda: 0, most=1)
    failures.add(FEED)
    failures.check("another")
    with pytest.raises(TooManyRequests):
        failures.check(FEED)


def gate_of_a_user(scene: Scene, tried: list[bytes], failures: int) -> UserAuthenticator:
    """Return an authenticator with a single user, for whom every password is wrong."""

    def bcrypt(password: bytes, stored: bytes) -> bool:
        tried.append(stored)
        return False

    documents = MemoryOperatorDocuments()
    assert documents.write(FEED, USERS, OperatorDocument(f"ann:{COSTLY}\n"))
    return gate(scene, documents, bcrypt, failures)


def test_who_is_no_user_takes_as_long_as_a_wrong_password(scene: Scene) -> None:
    """The same hash is computed, so response times do not reveal which names exist."""
    tried: list[bytes] = []
    users = gate_of_a_user(scene, tried, 9)
    for user in ("ann", "nobody"):
        with pytest.raises(WrongUser):
            users.check(FEED, READ, Credential("a guess", user))
    assert tried == [COSTLY.encode()] * 2


def test_where_hashes_differ_in_cost_a_name_has_always_the_same(scene: Scene) -> None:
    """Otherwise a name that does not exist would be recognized by response times that vary."""
    verifier = UserVerifier(lambda *_: False, b"key")
    hashes = [{verifier.some(name, [COSTLY, CHEAP]) for _ in range(9)} for name in "abcdefgh"]
    assert all(len(each) == 1 for each in hashes)
    assert set.union(*hashes) == {COSTLY, CHEAP}


def test_bcrypt_is_bounded(scene: Scene) -> None:
    """The limit counts attempts under all names together; a refused attempt computes no hash."""
    tried: list[bytes] = []
    users, statuses = gate_of_a_user(scene, tried, 3), []
    for number in range(9):
        with pytest.raises(Rejected) as refused:
            users.check(FEED, READ, Credential("a guess", f"user {number}"))
        statuses.append(refused.value.status)
    assert (statuses, len(tried)) == ([401] * 3 + [429] * 6, 3)

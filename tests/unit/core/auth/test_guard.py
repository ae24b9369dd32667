"""Access: the roles of each password, how HTTP carries it, and the rights of a bounded key."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest

from tests.fakes import MemoryKeys, MemoryOperatorDocuments, MemoryProfiles
from tests.fakes.runtime import EVERY_FEED
from tests.unit.core.auth.test_keys import Counting
from tests.unit.core.changeagent.gates import gate
from tests.unit.core.scene import FEED, Scene, shown
from tidings.core import limits
from tidings.core.auth.guard import (
    READ,
    Credential,
    FailedAttemptLimiter,
    Guard,
    Role,
    credential_from,
)
from tidings.core.auth.keys import KeyRing, PresentedKey
from tidings.core.auth.passwords import Verifier, hash_password
from tidings.core.changeagent.documents import USERS, OperatorDocument
from tidings.core.changeagent.users import UserAuthenticator, UserVerifier
from tidings.core.errors import (
    NoPasswordSet,
    Rejected,
    TooManyRequests,
    WrongKey,
    WrongPassword,
    WrongUser,
)
from tidings.core.settings.profiles import Profile

SALT = b"s" * 16
READ_PASSWORD, INGEST_PASSWORD = "the read one", "the ingest one"
PROFILE = Profile(
    read_passwords=(hash_password(READ_PASSWORD, salt=SALT, now_ms=0),),
    ingest_passwords=(hash_password(INGEST_PASSWORD, salt=SALT, now_ms=0),),
)
CLOSED = Profile(closed=True)


def guard(profile: Profile, *, opened: bool = False) -> Guard:
    profiles = MemoryProfiles()
    profiles.save("main", profile)
    return Guard(
        profiles=profiles,
        verifier=Verifier(b"key"),
        open=opened,
        failures=FailedAttemptLimiter(lambda: 0, 50),
        feed_names=EVERY_FEED,
    )


def basic(text: str) -> str:
    return f"Basic {base64.b64encode(text.encode()).decode()}"


@pytest.mark.parametrize("opened", [True, False])
def test_O06_each_role_has_its_own_password(opened: bool) -> None:
    """One is not valid for the other, open stage or not; the error does not repeat it."""
    guarded = guard(PROFILE, opened=opened)
    guarded.check("main", Role.READ, Credential(READ_PASSWORD))
    guarded.check("main", Role.INGEST, Credential(INGEST_PASSWORD))
    for role, password in ((Role.READ, INGEST_PASSWORD), (Role.INGEST, READ_PASSWORD)):
        with pytest.raises(WrongPassword, match=f"not a {role.value} password") as refused:
            guarded.check("main", role, Credential(password))
        assert password not in str(refused.value.body())


def test_no_password_given_is_a_wrong_one() -> None:
    """The error says what to send."""
    with pytest.raises(WrongPassword, match="must be the read password of the feed") as refused:
        guard(PROFILE).check("main", Role.READ, None)
    assert (refused.value.status, refused.value.code) == (401, "wrong_password")


def test_O06_without_a_credential_an_open_stage_is_open() -> None:
    """It is open to every caller, with any credential."""
    guarded = guard(Profile(), opened=True)
    for role in Role:
        guarded.check("main", role, None)
        guarded.check("main", role, Credential("anything"))


@pytest.mark.parametrize(
    "profile", [replace(PROFILE, ingest_passwords=()), replace(PROFILE, read_passwords=()), CLOSED]
)
def test_10_3_one_credential_closes_every_role(profile: Profile) -> None:
    """This includes roles without a password, and open stages."""
    guarded = guard(profile, opened=True)
    for role in Role:
        with pytest.raises((NoPasswordSet, WrongPassword)):
            guarded.check("main", role, None)


def test_10_3_the_error_of_a_role_without_a_password_names_what_it_opens_to() -> None:
    """The feed has a key, which the caller may have."""
    with pytest.raises(NoPasswordSet, match="opens to a key or token only until"):
        guard(CLOSED, opened=True).check("main", Role.INGEST, None)


def test_without_a_password_any_other_stage_is_closed() -> None:
    """The error has the command that opens the role."""
    guarded = guard(replace(PROFILE, ingest_passwords=()))
    guarded.check("main", Role.READ, Credential(READ_PASSWORD))
    with pytest.raises(NoPasswordSet, match="tidings feed password ingest --feed main") as refused:
        guarded.check("main", Role.INGEST, Credential("anything"))
    assert (refused.value.status, refused.value.code) == (401, "no_password_set")


@pytest.mark.parametrize(
    ("header", "user", "password"),
    [
        (basic(":secret"), "", "secret"),
        (basic("anybody:secret"), "anybody", "secret"),
        (basic("a:b:c"), "a", "b:c"),
        (basic("a:"), "a", ""),
        (basic("a:pässword"), "a", "pässword"),
        (basic(":secret").replace("Basic", "bAsIc"), "", "secret"),
        (basic(":secret").replace(" ", "   ") + " ", "", "secret"),
    ],
)
def test_O05_the_user_stands_before_the_first_colon(header: str, user: str, password: str) -> None:
    """The text after it is the password; O07: the scheme is accepted in any case."""
    assert credential_from(header) == Credential(password, user)


@pytest.mark.parametrize("header", ["Bearer a.b.c", "bearer  a.b.c "])
def test_a_bearer_is_told_from_a_password(header: str) -> None:
    """RFC 6750. The token is not parsed here, and it is never shown."""
    assert credential_from(header) == Credential("a.b.c", bearer=True)
    assert "a.b.c" not in repr(credential_from(header))


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Basic",
        "Basic ",
        basic("no colon"),
        "Bearer",
        "Bearer ",
        basic(":secret").replace("Basic", "Digest"),
        basic(":secret").rstrip("="),
        "Basic ____",
        "Basic " + base64.b64encode(b":\xff\xfe").decode(),
        f"{basic(':a')},{basic(':b')}",
    ],
)
def test_O05_anything_else_is_no_password(header: str | None) -> None:
    """Missing padding, the URL-safe alphabet, a missing colon, two headers joined."""
    assert credential_from(header) is None


@pytest.mark.parametrize(
    ("password", "roles"),
    [
        (READ_PASSWORD, {Role.READ}),
        (INGEST_PASSWORD, {*Role} - {Role.READ}),
        ("another one", set()),
    ],
)
def test_10_10_the_roles_of_a_password(password: str, roles: set[Role]) -> None:
    """A password has the roles that `check` permits; only a wrong one is a failed attempt."""
    guarded = guard(PROFILE)
    assert set(guarded.rights("main", Credential(password))) == roles
    for role in Role:
        if role in roles:
            guarded.check("main", role, Credential(password))
            continue
        with pytest.raises(WrongPassword):
            guarded.check("main", role, Credential(password))


def test_10_10_wrong_passwords_are_limited() -> None:
    """Then an unknown password is refused; a valid one that was checked before is not."""
    guarded = guard(PROFILE)
    guarded.rights("main", Credential(READ_PASSWORD))
    for _ in range(50):
        assert guarded.rights("main", Credential("wrong")) == {}
    with pytest.raises(TooManyRequests):
        guarded.rights("main", Credential("wrong"))
    assert [*guarded.rights("main", Credential(READ_PASSWORD))] == [Role.READ]


def test_10_10_without_a_credential() -> None:
    """An open feed grants every role, a closed one none."""
    assert [*guard(Profile(), opened=True).rights("main", None)] == [*Role]
    assert guard(Profile()).rights("main", None) == guard(CLOSED, opened=True).rights("main", None)
    assert guard(PROFILE).rights("main", None) == {}


RIGHT = "the right one"
GUESSED_PROFILE = Profile(read_passwords=(hash_password(RIGHT, salt=b"s" * 16, now_ms=0),))
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
    assert scene.profiles.save(FEED, GUESSED_PROFILE)
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
    scene.profiles.save(FEED, GUESSED_PROFILE)
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

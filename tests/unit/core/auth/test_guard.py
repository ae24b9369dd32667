"""Access: the roles of each password, how HTTP carries it, and the rights of a bounded key.

Credentials of the host: they open its feeds, and permit to create and delete feeds.
"""

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
    PasswordCheck,
    Role,
    credential_from,
)
from tidings.core.auth.keys import Key, KeyRing, PresentedKey, bound_of
from tidings.core.auth.oidc_claims import grant_of
from tidings.core.auth.passwords import Verifier, hash_password
from tidings.core.changeagent.documents import USERS, OperatorDocument
from tidings.core.changeagent.users import UserAuthenticator, UserVerifier
from tidings.core.errors import (
    InvalidSetting,
    KeyEnded,
    NoPasswordSet,
    OutsideKey,
    Rejected,
    TooManyRequests,
    WrongKey,
    WrongPassword,
    WrongUser,
)
from tidings.core.feeds.access import admit
from tidings.core.feeds.directory import Directory
from tidings.core.feeds.records import FeedRecord
from tidings.core.model.feeds import HOST, key_of
from tidings.core.model.filters import EVERYTHING
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
        passwords=PasswordCheck(Verifier(b"key"), FailedAttemptLimiter(lambda: 0, 50)),
        open=opened,
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
        with pytest.raises(WrongPassword, match=f"not the {role.value} password") as refused:
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
        passwords=PasswordCheck(verifier, FailedAttemptLimiter(scene.clock, 3)),
        open=False,
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
        scene.guard.passwords.failures.add(FEED)
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


GIVEN = PresentedKey("hosthosthost", "s" * 32)
HOST_SECRET = "correct horse battery"


def host_key(scene: Scene, *feeds: str, role: Role = Role.ADMIN) -> Credential:
    scene.issuer.create(HOST, GIVEN, Key("", "", frozenset({role}), feeds=feeds))
    return shown(GIVEN)


def test_a_key_of_the_host_opens_every_feed(scene: Scene) -> None:
    """Also a feed that was created after a deletion, whose key is not its name."""
    given = host_key(scene, role=Role.READ)
    for feed in (FEED, key_of("orders", 2), HOST):
        assert scene.guard.check(feed, Role.READ, given).principal == GIVEN.id
        with pytest.raises(OutsideKey, match="has read"):
            scene.guard.check(feed, Role.INGEST, given)


def test_prefixes_restrict_a_key_to_feeds(scene: Scene) -> None:
    given = host_key(scene, "team-a-", "shared")
    for name in ("team-a-orders", "shared", "shared-2"):
        assert scene.guard.check(key_of(name, 3), Role.ADMIN, given).bound == EVERYTHING
        assert scene.guard.check_host(Role.ADMIN, given, name).permits(name)
    for name in ("team-b-orders", "team-a", FEED):
        with pytest.raises(OutsideKey, match="does not permit this feed"):
            scene.guard.check(name, Role.READ, given)
        with pytest.raises(OutsideKey, match="does not permit the feed"):
            scene.guard.check_host(Role.ADMIN, given, name)
    assert not scene.guard.check_host(Role.ADMIN, given).permits("team-b-orders")


def test_a_credential_of_the_host_closes_every_feed(scene: Scene) -> None:
    """An open host without credentials is open; the first key of the host closes it."""
    scene.guard.check(FEED, Role.READ, None)
    scene.guard.check_host(Role.ADMIN, None)
    host_key(scene)
    with pytest.raises(NoPasswordSet, match="opens to a key or token only"):
        scene.guard.check(FEED, Role.READ, None)
    with pytest.raises(NoPasswordSet, match=r"tidings keys create --host --role admin"):
        scene.guard.check_host(Role.ADMIN, None)


def test_passwords_of_the_host_open_feeds_without_passwords(scene: Scene) -> None:
    """A password that was replaced for a feed must not open it as a password of the host."""
    own, every = (hash_password(each, salt=b"s" * 16, now_ms=0) for each in ("own", HOST_SECRET))
    scene.profiles.save(HOST, Profile(read_passwords=(every,), ingest_passwords=(every,)))
    scene.profiles.save(FEED, Profile(ingest_passwords=(own,)))
    scene.guard.check(FEED, Role.INGEST, Credential("own"))
    scene.guard.check("other", Role.ADMIN, Credential(HOST_SECRET))
    scene.guard.check_host(Role.ADMIN, Credential(HOST_SECRET), "new")
    refused = [(FEED, HOST_SECRET), ("other", "own"), (HOST, "own")]
    for feed, secret in refused:
        with pytest.raises(WrongPassword):
            scene.guard.check(feed, Role.INGEST, Credential(secret))
    with pytest.raises(NoPasswordSet):
        scene.guard.check(FEED, Role.READ, Credential(HOST_SECRET))


def test_keys_of_feeds_do_not_open_the_host(scene: Scene) -> None:
    given = scene.key(Role.ADMIN)
    with pytest.raises(WrongKey, match="is not a key of this host"):
        scene.guard.check_host(Role.ADMIN, shown(given))


def test_only_keys_of_the_host_have_prefixes(scene: Scene) -> None:
    roles = frozenset({Role.READ})
    with pytest.raises(InvalidSetting, match="only for a key of the host"):
        scene.issuer.create(FEED, GIVEN, Key("", "", roles, feeds=("a",)))
    for wrong in (("A",), ("a*",), ("",), ("a",) * (limits.KEY_PREFIXES_MAX + 1)):
        with pytest.raises(InvalidSetting, match="prefix"):
            scene.issuer.create(HOST, GIVEN, Key("", "", roles, feeds=wrong))


def test_a_restricted_key_cannot_use_the_host(scene: Scene) -> None:
    """It may read its part of every feed, but the list of feeds has no parts."""
    wanted = Key("", "", frozenset({Role.READ}), bound_of(["video"], []))
    scene.issuer.create(HOST, GIVEN, wanted)
    assert scene.guard.check(FEED, Role.READ, shown(GIVEN)).is_bounded
    with pytest.raises(OutsideKey, match="needs all of it"):
        scene.guard.check_host(Role.READ, shown(GIVEN))


def test_a_revoked_key_of_the_host_ends_its_connections(scene: Scene) -> None:
    given = host_key(scene, role=Role.READ)
    allowed = scene.guard.check(FEED, Role.READ, given)
    scene.guard.check_held(FEED, allowed.admission, scene.now_ms, scene.now_ms)
    scene.issuer.revoke(HOST, GIVEN.id)
    with pytest.raises(KeyEnded):
        scene.guard.check_held(FEED, allowed.admission, scene.now_ms, scene.now_ms)


def test_a_key_of_the_host_is_read_once_for_all_feeds() -> None:
    """The read at the feed finds nothing, and is not repeated while the key is cached."""
    stored = Counting()
    scene = Scene(keys=stored)
    given = host_key(scene, role=Role.READ)
    key_ring = KeyRing(stored, scene.clock, scene.clock, scene.guard.passwords.failures)
    stored.reads = 0
    assert key_ring.may_block(FEED, given)
    for feed in (FEED, "other", FEED, HOST):
        key_ring.authorize(feed, Role.READ, given)
    assert stored.reads == 2
    assert not key_ring.may_block(FEED, given)
    scene.now_ms += limits.KEY_AGE_MS
    key_ring.authorize(FEED, Role.READ, given)
    assert stored.reads == 3


def claims(*grants: tuple[str, str]) -> dict[str, object]:
    return {"exp": 1, "feeds": [{"feed": feed, "roles": [role]} for feed, role in grants]}


@pytest.mark.parametrize(
    ("granted", "feed", "opens"),
    [
        ("team-a-*", "team-a-orders", True),
        ("team-a-*", "team-a-", True),
        ("team-a-*", "team-b", False),
        ("*", "anything", True),
        ("team-a-orders", "team-a-orders-2", False),
        ("orders", "orders", True),
    ],
)
def test_a_grant_may_name_a_prefix(granted: str, feed: str, *, opens: bool) -> None:
    token = claims((granted, "read"))
    for key in (feed, key_of(feed, 2)):
        if opens:
            assert grant_of(token, "feeds", key, Role.READ).bound == EVERYTHING
        else:
            with pytest.raises(OutsideKey):
                grant_of(token, "feeds", key, Role.READ)


def test_grants_with_prefixes_are_grants_at_the_host() -> None:
    """All of them count together; a grant of one feed, or of another role, does not."""
    token = claims(("a-*", "admin"), ("main", "admin"), ("b-*", "admin"), ("c-*", "read"))
    assert grant_of(token, "feeds", HOST, Role.ADMIN).feed_prefixes == ("a-", "b-")
    whole = claims(("a-*", "admin"), ("*", "admin"))
    assert grant_of(whole, "feeds", HOST, Role.ADMIN).feed_prefixes == ()
    for other in (claims(("main", "admin")), claims(("*", "read"))):
        with pytest.raises(OutsideKey, match="at the host"):
            grant_of(other, "feeds", HOST, Role.ADMIN)


class TestAccess:
    """Which callers may create and delete feeds."""

    def directory(self, scene: Scene) -> Directory:
        return Directory(scene.feeds, frozenset({FEED}), scene.clock)

    def test_any_caller_on_an_open_host(self, scene: Scene) -> None:
        for name in (FEED, "new"):
            admit(scene.guard, self.directory(scene), name, Role.ADMIN, None)

    def test_only_its_owner_deletes_a_protected_feed(self, scene: Scene) -> None:
        """On an open host; a feed that was deleted has no owner any more."""
        given = shown(scene.key(Role.ADMIN))
        directory = self.directory(scene)
        with pytest.raises(NoPasswordSet):
            admit(scene.guard, directory, FEED, Role.ADMIN, None)
        admit(scene.guard, directory, FEED, Role.ADMIN, given)
        scene.feeds.save(FeedRecord(FEED, is_live=False))
        directory.forget()
        admit(scene.guard, directory, FEED, Role.ADMIN, None)

    def test_credentials_of_the_host_decide_if_there_are_any(self, scene: Scene) -> None:
        """The feed's own admin cannot delete it then."""
        own, given = shown(scene.key(Role.ADMIN)), host_key(scene, "ma", "new")
        directory = self.directory(scene)
        for name in (FEED, "new"):
            admit(scene.guard, directory, name, Role.ADMIN, given)
            with pytest.raises(NoPasswordSet):
                admit(scene.guard, directory, name, Role.ADMIN, None)
            with pytest.raises(WrongKey):
                admit(scene.guard, directory, name, Role.ADMIN, own)
        with pytest.raises(OutsideKey):
            admit(scene.guard, directory, "other", Role.ADMIN, given)

"""Access: the roles of each password, how HTTP carries it, and the rights of a bounded key."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest

from tests.fakes import MemoryProfiles
from tests.fakes.runtime import EVERY_FEED
from tidings.core.auth.guard import Credential, FailedAttemptLimiter, Guard, Role, credential_from
from tidings.core.auth.passwords import Verifier, hash_password
from tidings.core.errors import NoPasswordSet, TooManyRequests, WrongPassword
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

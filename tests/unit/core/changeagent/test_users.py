"""Users: the rules of htpasswd files, which users are admitted, and how soon a change applies."""

from __future__ import annotations

import bcrypt
import pytest

from tests.fakes import MemoryOperatorDocuments
from tests.unit.core.changeagent.gates import gate
from tests.unit.core.scene import FEED, Scene
from tidings.core import limits
from tidings.core.auth.guard import ADMIN, INGEST, READ, Credential
from tidings.core.auth.passwords import hash_password
from tidings.core.changeagent.documents import USERS, OperatorDocument, RecentDocuments
from tidings.core.changeagent.users import UserVerifier, encode_users, users_from
from tidings.core.errors import InvalidSetting, WrongPassword, WrongUser
from tidings.core.settings.profiles import Profile
from tidings.http.outbound.credentials import matches_bcrypt

SALT = b"$2b$04$" + b"a" * 21 + b"u"  # names of tests hold the hash
HASH = bcrypt.hashpw(b"secret", SALT).decode()
AS_2Y = HASH.replace("$2b$", "$2y$")
AS_2A = HASH.replace("$2b$", "$2a$")


def test_A37_blank_lines_and_comments_mean_nothing() -> None:
    """Line ends of another system are accepted, and so are the three prefixes of bcrypt."""
    text = f"\n# users\r\nann:{HASH}\r\n\n  bob:{AS_2Y}  \n#x:{HASH}\ncid:{AS_2A}"

    assert users_from(text) == {"ann": HASH, "bob": AS_2Y, "cid": AS_2A}
    assert users_from(encode_users(users_from(text))) == users_from(text)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("", "file"),
        ("# nobody\n\n", "file"),
        ("ann", "line 1"),
        (f":{HASH}", "line 1"),
        (f"ann:{HASH}\nbob:plain", "line 2"),
        ("ann:$apr1$xxxxxxxx$yyyyyyyyyyyyyyyyyyyyyy", "line 1"),
        (f"ann:{HASH}x", "line 1"),
        (f"ann:{HASH.replace('$04$', '$31$')}", "line 1"),
        (f"ann:{HASH.replace('$04$', '$03$')}", "line 1"),
        (f"ann:{HASH}\n\nann:{HASH}", "line 3"),
        ("x" * 300_000, "file"),
    ],
)
def test_A36_a_file_with_a_mistake_is_refused_whole(text: str, where: str) -> None:
    """The error names the line and repeats no hash."""
    with pytest.raises(InvalidSetting) as refused:
        users_from(text)
    assert refused.value.field == where
    assert HASH[10:] not in str(refused.value.body())


class Checked:
    def __init__(self) -> None:
        self.times = 0

    def __call__(self, password: bytes, stored: bytes) -> bool:
        self.times += 1
        return matches_bcrypt(password, stored)


def test_success_is_remembered_and_failure_is_not() -> None:
    """bcrypt is slow, so success is cached; a changed hash is checked again."""
    bcrypts = Checked()
    verifier = UserVerifier(bcrypts, b"key")

    assert all(verifier.matches("secret", [AS_2Y]) for _ in range(3))
    assert bcrypts.times == 1
    assert not verifier.matches("other", [AS_2Y]) and not verifier.matches("other", [AS_2Y])
    assert bcrypts.times == 3
    assert verifier.matches("secret", [HASH]) and bcrypts.times == 4


@pytest.mark.parametrize("password", ["", "\0", "sec\0ret", "secret\0", "x" * 300, "\ud800"])
def test_what_can_be_nobodys_password_is_wrong(password: str) -> None:
    """It does not raise an internal error."""
    assert not UserVerifier(matches_bcrypt, b"key").matches(password, [HASH])


def test_a_long_password_is_cut_as_htpasswd_cuts_it() -> None:
    """bcrypt has never looked at more than 72 bytes."""
    stored = bcrypt.hashpw(b"x" * 72, bcrypt.gensalt(4)).decode()
    assert UserVerifier(matches_bcrypt, b"key").matches("x" * 80, [stored])


def test_users_stand_before_passwords(scene: Scene) -> None:
    """A feed that has users asks for one of them; without any, for its passwords."""
    documents = MemoryOperatorDocuments()
    users = gate(scene, documents)
    users.check(FEED, READ, None)
    stored = hash_password("reader's own", salt=b"s" * 16, now_ms=0)
    scene.profiles.save(FEED, Profile(read_passwords=(stored,)))
    users.check(FEED, READ, Credential("reader's own", "anybody"))
    with pytest.raises(WrongPassword):
        users.check(FEED, READ, Credential("secret", "ann"))

    documents.write(FEED, USERS, OperatorDocument(encode_users({"ann": AS_2Y})))
    for need in (READ, INGEST, ADMIN):
        users.check(FEED, need, Credential("secret", "ann"))
        for given in (None, Credential("secret", "bob"), Credential("reader's own", "ann")):
            with pytest.raises(WrongUser):
                users.check(FEED, need, given)


def test_A36_a_change_counts_within_five_seconds(scene: Scene) -> None:
    """This is for changes by other processes; a process sees its own at once."""
    stored = MemoryOperatorDocuments()
    recent = RecentDocuments(stored, scene.clock)
    assert recent.operator_document(FEED, USERS) == OperatorDocument()
    stored.write(FEED, USERS, OperatorDocument("a"))
    assert recent.operator_document(FEED, USERS) == OperatorDocument()
    scene.now_ms += limits.DOCUMENT_AGE_MS
    assert recent.operator_document(FEED, USERS) == OperatorDocument("a", 1)
    assert limits.DOCUMENT_AGE_MS < 5_000

    assert recent.write(FEED, USERS, OperatorDocument("b", 1))
    assert recent.operator_document(FEED, USERS) == OperatorDocument("b", 2)
    assert not recent.write(FEED, USERS, OperatorDocument("c", 1))


def test_each_user_has_idempotency_keys_of_their_own(scene: Scene) -> None:
    """A user must not be answered with the change that another one posted under the same key."""
    documents = MemoryOperatorDocuments()
    documents.write(FEED, USERS, OperatorDocument(encode_users({"ann": HASH, "bob": HASH})))
    users = gate(scene, documents)
    keys = {
        users.check(FEED, INGEST, Credential("secret", name)).namespaced_key("k")
        for name in ("ann", "bob")
    }

    assert len(keys) == 2 and "k" not in keys

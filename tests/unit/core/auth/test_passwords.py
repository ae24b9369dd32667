"""Passwords: which are accepted, how they are stored, and how often scrypt runs."""

from __future__ import annotations

import hashlib
import itertools
from typing import Any

import pytest

from tidings.core import limits
from tidings.core.auth import passwords
from tidings.core.auth.passwords import (
    Verifier,
    check_password,
    from_line,
    hash_password,
    set_at_ms,
)
from tidings.core.errors import InvalidSetting

NOW = 1_763_000_000_123
PASSWORD = "correct: horse"
STORED = hash_password(PASSWORD, salt=b"s" * 16, now_ms=NOW)
SALTS = itertools.count()


def stored(password: str) -> str:
    return hash_password(password, salt=next(SALTS).to_bytes(16), now_ms=NOW)


@pytest.fixture
def hashings(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return the list of passwords that scrypt ran on; it still runs."""
    ran: list[bytes] = []
    original = hashlib.scrypt

    def scrypt(password: bytes, **parameters: Any) -> bytes:
        ran.append(password)
        return original(password, **parameters)

    monkeypatch.setattr(hashlib, "scrypt", scrypt)
    return ran


def test_the_right_password_matches_and_no_other() -> None:
    """Every character counts; lone surrogates, too, are just not the password."""
    verifier = Verifier(b"key")
    assert verifier.matches(PASSWORD, [STORED])
    for wrong in ("", PASSWORD[:-1], PASSWORD + " ", PASSWORD.upper(), STORED, "\ud800"):
        assert not verifier.matches(wrong, [STORED])


def test_either_of_two_matches() -> None:
    """Both are valid while clients move from the old one to the new one."""
    both = [stored("new password"), stored("old password")]
    verifier = Verifier(b"key")
    assert verifier.matches("old password", both) and verifier.matches("new password", both)
    assert not verifier.matches("another one", both)
    assert not verifier.matches("old password", both[:1])
    assert not verifier.matches("old password", [])


def test_nothing_stored_tells_the_password() -> None:
    """It does not show whether two passwords are equal either; it does show when each was set."""
    first, second = stored(PASSWORD), stored(PASSWORD)
    assert first != second
    assert PASSWORD not in first
    assert set_at_ms(first) == NOW


def test_the_work_is_written_beside_the_hash() -> None:
    """A later version may then use more work and still read it."""
    easy = hashlib.scrypt(b"password", salt=b"salt", n=2, r=1, p=1, dklen=32)
    text = passwords._text
    assert Verifier(b"k").matches("password", [f"scrypt$1$1$1$0${text(b'salt')}${text(easy)}"])


def test_a_password_is_hashed_once_in_a_process(hashings: list[bytes]) -> None:
    """This holds for any number of requests, and for the older of two passwords."""
    both, verifier = [stored("new password"), stored("old password")], Verifier(b"key")
    hashings.clear()
    for _ in range(5):
        assert verifier.matches("old password", both)
    assert len(hashings) == 2


def test_a_wrong_password_is_not_remembered(hashings: list[bytes]) -> None:
    """Wrong ones without end would push the right one out."""
    verifier = Verifier(b"key")
    verifier.matches(PASSWORD, [STORED])
    for number in range(3):
        verifier.matches(f"wrong {number}", [STORED])
    hashings.clear()
    assert verifier.matches(PASSWORD, [STORED])
    assert hashings == []


def test_a_replaced_password_is_forgotten() -> None:
    """The cached result is bound to the password and the hash together."""
    verifier = Verifier(b"key")
    assert verifier.matches(PASSWORD, [STORED])
    assert not verifier.matches(PASSWORD, [stored("the next one")])
    assert verifier.matches(PASSWORD, [STORED])


def test_what_is_remembered_is_bounded(
    monkeypatch: pytest.MonkeyPatch, hashings: list[bytes]
) -> None:
    """The least recently used one is dropped."""
    monkeypatch.setattr(limits, "VERIFIED_MAX", 2)
    verifier = Verifier(b"key")
    hashes = {name: stored(name) for name in ("first one", "second one", "third one")}
    for name in ("first one", "second one", "first one", "third one"):
        assert verifier.matches(name, [hashes[name]])
    hashings.clear()
    assert verifier.matches("first one", [hashes["first one"]]) and hashings == []
    assert verifier.matches("second one", [hashes["second one"]]) and len(hashings) == 1


def test_a_huge_password_costs_nothing(hashings: list[bytes]) -> None:
    """No password of that length can have been set."""
    assert not Verifier(b"key").matches("x" * (limits.PASSWORD_BYTES_MAX + 1), [STORED])
    assert hashings == []


@pytest.mark.parametrize("password", ["eight by", "x" * 256, "ä" * 128, "with: colon", " blanks "])
def test_passwords_that_may_be_set(password: str) -> None:
    """Any text of some length."""
    assert check_password(password) == password


@pytest.mark.parametrize(
    ("password", "rule"),
    [
        ("", "8 to 256 bytes, has 0"),
        ("seven b", "8 to 256 bytes, has 7"),
        ("x" * 257, "8 to 256 bytes, has 257"),
        ("ends with\n", "control characters"),
        ("with a \0 in it", "control characters"),
    ],
)
def test_passwords_that_may_not(password: str, rule: str) -> None:
    """The error says why and never repeats it."""
    with pytest.raises(InvalidSetting, match=rule) as refused:
        check_password(password)
    assert not password or password not in str(refused.value.body())


def test_the_end_of_a_line_does_not_count() -> None:
    """Editors end a file's only line with a newline; a second line is a mistake."""
    for end in ("", "\n", "\r\n"):
        assert from_line(f" a password {end}") == " a password "
    with pytest.raises(InvalidSetting, match="control characters"):
        from_line("one password\nanother one\n")


@pytest.mark.parametrize("more", ["\0", "\0" * 8, "\0x"])
def test_nothing_is_overlooked_behind_a_password(more: str) -> None:
    """scrypt fills a short password up with NULs, so that they would open what it opens."""
    stored = [hash_password("the password", salt=b"1" * 16, now_ms=0)]
    verifier = Verifier(b"key")
    assert verifier.matches("the password", stored)
    assert not verifier.matches(f"the password{more}", stored)

"""Keys: how they are encoded, checked and bounded."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from tidings.core import limits
from tidings.core.auth.guard import Role
from tidings.core.auth.keys import (
    Given,
    Key,
    bound_of,
    check_id,
    checked_key,
    digest_of,
    heir,
    parse,
)
from tidings.core.errors import InvalidSetting
from tidings.core.model.filters import EVERYTHING, Filter

SECRET = "abcdefghijklmnopqrstuvwxyz-_0123"[:32]
GIVEN = Given("3k2m9c0q8xw1", SECRET)
KEY = Key("3k2m9c0q8xw1", digest_of(SECRET), frozenset({Role.READ}))


def test_a_key_is_spelled_for_scanners() -> None:
    """`tdk_`, the id, the secret: what is encoded is read again."""
    assert GIVEN.encoded() == f"tdk_3k2m9c0q8xw1_{SECRET}"
    assert parse(GIVEN.encoded()) == GIVEN
    assert SECRET not in repr(GIVEN) and KEY.digest not in repr(KEY)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tdk_",
        GIVEN.encoded()[:-1],
        GIVEN.encoded() + "x",
        GIVEN.encoded().upper(),
        f"{GIVEN.encoded()}\n",
        GIVEN.encoded().replace("_3", "_-"),
        f"tdk_3k2m9c0q8xw1_{'ä' * 32}",
    ],
)
def test_anything_else_is_no_key(text: str) -> None:
    """It is taken for a password."""
    assert parse(text) is None


def test_a_key_matches_its_secret_alone() -> None:
    """By a digest without stretching: nobody guesses 192 bits."""
    assert KEY.digest == hashlib.sha256(SECRET.encode()).hexdigest()
    assert KEY.matches(SECRET)
    assert not KEY.matches(SECRET[:-1] + "x") and not KEY.matches("")


def test_a_key_ends_when_it_is_revoked_or_runs_out() -> None:
    """Whatever comes first; 0 where neither is so."""
    assert KEY.ended_ms == 0
    assert replace(KEY, expires_ms=5).ended_ms == 5
    assert replace(KEY, expires_ms=5, revoked_ms=3).ended_ms == 3


@pytest.mark.parametrize("text", ["", GIVEN.encoded(), "3K2M9C0Q8XW1", "3k2m9c0q8xw"])
def test_an_id_is_no_key(text: str) -> None:
    """Who gives the whole key is not shown it again."""
    with pytest.raises(InvalidSetting, match="not the whole key") as refused:
        check_id(text)
    assert SECRET not in str(refused.value.body())


def test_a_bound_is_a_filter() -> None:
    """Of nothing it is none; what no filter takes is refused."""
    assert bound_of([], []) == EVERYTHING
    assert bound_of(["video"], ["user/42"]) == Filter(frozenset({"video"}), frozenset({"user/42"}))
    with pytest.raises(InvalidSetting, match="parents"):
        bound_of([], ["\0"])


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"roles": frozenset()}, "one at least"),
        ({"roles": frozenset({Role.ADMIN}), "bound": Filter(frozenset({"video"}))}, "no bound"),
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
        checked_key(replace(KEY, **wrong))  # type: ignore[arg-type]
    assert checked_key(KEY) == KEY


def test_an_heir_has_the_same_rights() -> None:
    """And another secret, and a life of its own."""
    old = replace(KEY, rate=5, label="ann", expires_ms=9, successor="x", revoked_ms=1, version=3)
    new = heir(old, Given("abcabcabcabc", "t" * 32), now_ms=7, made_by="bob")
    assert new == Key(
        "abcabcabcabc",
        digest_of("t" * 32),
        frozenset({Role.READ}),
        expires_ms=9,
        rate=5,
        label="ann",
        made_ms=7,
        made_by="bob",
    )

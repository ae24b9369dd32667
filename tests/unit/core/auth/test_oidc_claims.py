"""tidings.core.auth.oidc_claims: what verified claims allow."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidings.core import limits
from tidings.core.auth.guard import Role
from tidings.core.auth.oidc_claims import Issuer, grant_of, issuer_from, may_ask
from tidings.core.errors import InvalidSetting, OutsideKey
from tidings.core.model.filters import EVERYTHING, Filter

NAMED = {"issuer": "https://id.example", "audience": "tidings", "claim": "feeds"}
EXP = 1_800_000_000


def claims(*grants: object) -> dict[str, Any]:
    return {"exp": EXP, "feeds": list(grants)}


def grant(*roles: str, feed: str = "main", **bound: object) -> dict[str, Any]:
    return {"feed": feed, "roles": list(roles), **bound}


def test_a_grant_allows_its_roles_on_its_feed_until_the_token_expires() -> None:
    """The minute of clock tolerance applies to open connections, too."""
    granted = grant_of(claims(grant("read", "ingest")), "feeds", "main", Role.INGEST)

    assert granted.bound == EVERYTHING
    assert granted.admission.until_ms == (EXP + limits.TOKEN_LEEWAY_S) * 1000
    assert granted.admission.has_ended({}, granted.admission.until_ms)


def test_a_grant_may_be_bounded() -> None:
    """The bound has the format of a key's bound; the first grant that has the role applies."""
    bounded = grant("read", types=["video"], parents=["user/42"])
    granted = grant_of(claims(grant("ingest"), bounded, grant("read")), "feeds", "main", Role.READ)

    assert granted.bound == Filter(frozenset({"video"}), frozenset({"user/42"}))


@pytest.mark.parametrize(
    "token",
    [
        {"exp": EXP},
        {"exp": EXP, "feeds": "main"},
        {"exp": EXP, "feeds": {"main": ["read"]}},
        claims(),
        claims("main", None, 1),
        claims(grant("read", feed="other")),
        claims(grant("ingest")),
        claims({"feed": "main", "roles": "read"}),
        claims({"feed": "main"}),
        claims(*[grant("read")] * (limits.TOKEN_GRANTS_MAX + 1)),
        claims(grant("read", types=[])),
        claims(grant("read", types="video")),
        claims(grant("read", parents=[1])),
        claims(grant("read", parents=["a\0"])),
        claims(grant("read", types=None)),
        claims(grant("read", type=["video"])),
        claims(grant("read", Types=["video"])),
        claims(grant("read", parent="user/42")),
        claims(grant("read"), grant("ingest", feed="other", type=["video"])),
        claims(grant("read"), None),
    ],
)
def test_what_is_not_granted_or_cannot_be_read_is_refused(token: dict[str, Any]) -> None:
    """A bound that is written wrong never opens more."""
    with pytest.raises(OutsideKey):
        grant_of(token, "feeds", "main", Role.READ)


def test_who_steers_is_not_bounded() -> None:
    """A grant of admin on a part of a feed is ignored."""
    with pytest.raises(OutsideKey, match="no grant of admin"):
        grant_of(claims(grant("admin", types=["a"])), "feeds", "main", Role.ADMIN)
    assert grant_of(claims(grant("admin")), "feeds", "main", Role.ADMIN).bound == EVERYTHING


def test_the_setting_names_an_issuer() -> None:
    """All three of its fields are required."""
    assert issuer_from(json.dumps(NAMED)) == Issuer("https://id.example", "tidings", "feeds")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "[" * 100_000,
        json.dumps({**NAMED, "more": "x"}),
        json.dumps(NAMED)[:-1] + ', "audience": "other"}',
        json.dumps({"issuer": "https://id.example"}),
        json.dumps({**NAMED, "claim": ""}),
        json.dumps({**NAMED, "audience": ["a"]}),
        json.dumps({**NAMED, "issuer": "http://id.example"}),
    ],
)
def test_a_setting_with_a_mistake_is_refused(text: str) -> None:
    """The mistake is found on start, before the first request."""
    with pytest.raises(InvalidSetting):
        issuer_from(text)


@pytest.mark.parametrize(
    ("url", "answer"),
    [
        ("https://a", True),
        ("http://a", False),
        ("http://127.0.0.1:8080/x", True),
        ("http://localhost", True),
        ("http://localhost.example", False),
        ("http://127.0.0.1@a", False),
        ("http://127.0.0.1:80@evil", False),
        ("http://localhost:80@evil/", False),
        ("http://[::1]:8080/x", True),
        ("https://ann@a", False),
        ("https://", False),
        ("https://a:x", False),
        ("https:a", False),
        ("file:///etc/passwd", False),
    ],
)
def test_keys_come_over_tls(url: str, answer: bool) -> None:
    """Keys from the same machine are accepted too, for development."""
    assert may_ask(url) is answer

"""
Keys: credentials of one user each, with roles, a bound, an end and a rate.

A key is `tdk_<id>_<secret>`. The id is public and finds the key; the secret has 192 random bits,
which nobody guesses, so that a plain SHA-256 of it is stored and checked in a microsecond. The
prefix is there for scanners, which find keys that were published by mistake.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.auth.guard import KEY_PREFIX as PREFIX
from tidings.core.auth.guard import WHOLE, Role
from tidings.core.errors import InvalidFilter, InvalidSetting
from tidings.core.model.filters import EVERYTHING, Filter, checked

if TYPE_CHECKING:
    from collections.abc import Iterable

ID_CHARS = "0123456789abcdefghijklmnopqrstuvwxyz"
ID_LENGTH = 12  # 62 random bits: a thousand million keys of a feed hardly ever share one
SECRET_BYTES = 24  # 192 bits; base64url of them has no padding
_KEY = re.compile(rf"{PREFIX}(?P<id>[0-9a-z]{{{ID_LENGTH}}})_(?P<secret>[A-Za-z0-9_-]{{32}})")
_ID = re.compile(rf"[0-9a-z]{{{ID_LENGTH}}}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Given:
    """A key as somebody shows it."""

    id: str
    secret: str = field(repr=False)

    def encoded(self) -> str:
        return f"{PREFIX}{self.id}_{self.secret}"


@dataclass(frozen=True, slots=True)
class Key:
    """
    What is stored of a key: *digest* is that of its secret, in hex.

    *expires_ms* and *rate*, requests a second, are 0 where there is no such bound; *streams*, at
    once, is 0 for `limits.KEY_STREAMS`; *revoked_ms* is 0 while it holds. *successor* is the key
    that replaces it. *version* guards every update.
    """

    id: str
    digest: str = field(repr=False)
    roles: frozenset[Role]
    bound: Filter = EVERYTHING
    expires_ms: int = 0
    rate: int = 0
    streams: int = 0
    label: str = ""
    made_ms: int = 0
    made_by: str = ""
    revoked_ms: int = 0
    successor: str = ""
    version: int = 0

    def matches(self, secret: str) -> bool:
        return hmac.compare_digest(digest_of(secret), self.digest)

    @property
    def ended_ms(self) -> int:
        """Since when it opens nothing, or from when on; 0: it has no end."""
        return min(filter(None, (self.revoked_ms, self.expires_ms)), default=0)


def parse(text: str) -> Given | None:
    """The key that *text* spells; None where it is none."""
    match = _KEY.fullmatch(text)
    return Given(match["id"], match["secret"]) if match else None


def digest_of(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def check_id(text: str) -> str:
    """
    *text* if it can be the id of a key.

    Raises:
        InvalidSetting: it cannot; the text is not repeated, as it may be the key itself.
    """
    if not _ID.fullmatch(text):
        rule = f"must be the {ID_LENGTH} letters and digits behind {PREFIX}, not the whole key"
        raise InvalidSetting(rule, field="id")
    return text


def bound_of(types: Iterable[str], parents: Iterable[str]) -> Filter:
    """
    The part of a feed that has one of *types* and one of *parents*; none of them: all of it.

    Raises:
        InvalidSetting: too many of them, or one that no filter takes.
    """
    try:
        return Filter(_values(types, "types"), _values(parents, "parents"))
    except InvalidFilter as error:
        raise InvalidSetting(error.rule, field=error.field, value=error.value) from None


def _values(given: Iterable[str], field: str) -> frozenset[str] | None:
    return checked(list(given), field) or None


def checked_key(key: Key) -> Key:
    """
    *key* if it may be stored.

    Raises:
        InvalidSetting: a field breaks its rule.
    """
    if not key.roles:
        raise InvalidSetting("must have one at least", field="roles")
    whole = sorted(role.value for role in key.roles & WHOLE)
    if whole and not key.bound.is_everything:
        rule = f"{' and '.join(whole)} moves all of a feed: it goes with no bound"
        raise InvalidSetting(rule, field="roles")
    if key.rate < 0 or key.rate > limits.KEY_RATE_MAX:
        rule = f"must be 1 to {limits.KEY_RATE_MAX} requests a second, 0 for no bound"
        raise InvalidSetting(rule, field="rate", value=key.rate)
    if key.streams < 0 or key.streams > limits.KEY_STREAMS_MAX:
        rule = f"must be 1 to {limits.KEY_STREAMS_MAX} at once, 0 for {limits.KEY_STREAMS}"
        raise InvalidSetting(rule, field="streams", value=key.streams)
    for name, text in (("label", key.label), ("by", key.made_by)):
        if len(text) > limits.KEY_LABEL_CHARS_MAX or _CONTROL.search(text):
            rule = f"must be at most {limits.KEY_LABEL_CHARS_MAX} printable characters"
            raise InvalidSetting(rule, field=name, value=text)
    return key


def heir(key: Key, successor: Given, *, now_ms: int, made_by: str) -> Key:
    """The key that replaces *key*, with the same rights."""
    return replace(
        key,
        id=successor.id,
        digest=digest_of(successor.secret),
        made_ms=now_ms,
        made_by=made_by,
        revoked_ms=0,
        successor="",
        version=0,
    )

"""
Tokens of an issuer (OpenID Connect): what the claims of one, once verified, allow.

One claim, which the deployment names, holds a list of grants: `{"feed", "roles", "types",
"parents"}`, the last two optional. A role on a feed is that of the first grant that has it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tidings.core import limits
from tidings.core.auth.guard import WHOLE, Allowed, Role, opens
from tidings.core.errors import InvalidFilter, InvalidSetting, OutsideKey
from tidings.core.model.filters import EVERYTHING, Filter, checked
from tidings.core.model.json_body import unique
from tidings.core.settings.revocations import Admission

if TYPE_CHECKING:
    from collections.abc import Mapping

_FIELDS = ("issuer", "audience", "claim")
_GRANT = ("feed", "roles", "types", "parents")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class Issuer:
    """
    Whose tokens are taken: those that *url* issued for *audience*; *claim* holds their grants.

    Its keys are told at `<url>/.well-known/openid-configuration`.
    """

    url: str
    audience: str
    claim: str


def issuer_from(text: str) -> Issuer:
    """
    The issuer that *text*, JSON, names.

    Raises:
        InvalidSetting: a field is missing, not known, or breaks its rule.
    """
    try:
        fields = json.loads(text, object_pairs_hook=unique)
    except (ValueError, RecursionError):
        raise InvalidSetting("must be JSON, each field once") from None
    if not isinstance(fields, dict) or {*fields} != {*_FIELDS}:
        raise InvalidSetting(f"must be an object of {', '.join(_FIELDS)}")
    for name in _FIELDS:
        if not isinstance(fields[name], str) or not fields[name]:
            raise InvalidSetting("must be a text", field=name)
    if not may_ask(fields["issuer"]):
        raise InvalidSetting("must begin with https://", field="issuer")
    return Issuer(fields["issuer"], fields["audience"], fields["claim"])


def may_ask(url: str) -> bool:
    """Keys come over TLS, or from this machine; an address names no user."""
    try:
        parts = urlsplit(url)
        named = bool(parts.hostname) and parts.port != 0 and "@" not in parts.netloc
    except ValueError:
        return False
    return named and (
        parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)
    )


def allowed(claims: Mapping[str, Any], claim: str, feed: str, role: Role) -> Allowed:
    """
    What a token with *claims* allows who asks for *role* on *feed*, until it expires.

    Raises:
        OutsideKey: nothing, or its grants cannot be read.
    """
    grants = claims.get(claim)
    if not isinstance(grants, list) or len(grants) > limits.TOKEN_GRANTS_MAX:
        raise OutsideKey(f"has no list of at most {limits.TOKEN_GRANTS_MAX} grants", field="token")
    for grant in grants:
        _check_fields(grant)
    until_ms = (int(claims["exp"]) + limits.TOKEN_LEEWAY_S) * 1000
    for grant in grants:
        if _gives(grant, feed, role):
            bound = _bound(grant)
            if role in WHOLE and not bound.is_everything:
                continue  # who steers steers all of a feed
            admission = Admission(until_ms=until_ms)
            return Allowed(bound, admission, _who(claims), limits.KEY_STREAMS)
    raise OutsideKey(f"has no grant of {role.value} on the feed {feed}", field="token")


def _who(claims: Mapping[str, Any]) -> str:
    """A digest, because a subject may have any length and any character."""
    named = f"{claims.get('iss', '')}\0{claims.get('sub', '')}"
    return hashlib.sha256(named.encode("utf-8", "surrogatepass")).hexdigest()


def _check_fields(grant: object) -> None:
    """
    Raises:
        OutsideKey: *grant* has a field that is not known, which may be a bound spelled wrongly.
    """
    if not isinstance(grant, dict):
        raise OutsideKey("has a grant that is not an object", field="token")
    for name in grant:
        if name not in _GRANT:
            rule = f"has a grant with the unknown field {name!r:.64}; there are {', '.join(_GRANT)}"
            raise OutsideKey(rule, field="token")


def _gives(grant: Mapping[str, Any], feed: str, role: Role) -> bool:
    if grant.get("feed") != feed:
        return False
    roles = grant.get("roles")
    if not isinstance(roles, list):
        return False
    return opens([each for each in Role if each.value in roles], role)


def _bound(grant: Mapping[str, Any]) -> Filter:
    """A bound that cannot be read allows nothing, rather than everything."""
    types, parents = _values(grant, "types"), _values(grant, "parents")
    return EVERYTHING if types is None and parents is None else Filter(types, parents)


def _values(grant: Mapping[str, Any], name: str) -> frozenset[str] | None:
    if name not in grant:
        return None
    given = grant[name]
    if not isinstance(given, list) or not given or not all(isinstance(v, str) for v in given):
        raise OutsideKey(f"has a grant whose {name} cannot be read", field="token")
    try:
        return checked(given, name)
    except InvalidFilter as error:
        raise OutsideKey(f"has a grant whose {name} cannot be read: {error.rule}") from None

"""Derive permissions from the claims of a verified OpenID Connect token.

The deployment names the claim that holds a list of grants. A grant has the fields `feed`, `roles`
and, optionally, `types` and `parents`. A request needs a role on a feed, and the first grant with
this feed and role applies. If the role needs the whole feed, grants with `types` or `parents` are
skipped. A `feed` that ends with `*` is a prefix of names: `team-a-*` grants the role on these feeds
and at the host, where it permits to create and delete them. `*` alone grants it on the whole host.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tidings.core import limits
from tidings.core.auth.guard import UNRESTRICTED_ROLES, Allowed, Role, opens
from tidings.core.errors import InvalidFilter, InvalidSetting, OutsideKey
from tidings.core.model.feeds import HOST, public_name
from tidings.core.model.filters import EVERYTHING, Filter, validate_values
from tidings.core.model.json_body import unique
from tidings.core.model.timestamps import MS_MAX
from tidings.core.settings.values import Admission

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_FIELDS = ("issuer", "audience", "claim")
_GRANT = ("feed", "roles", "types", "parents")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class Issuer:
    """A trusted issuer of tokens for *audience*, at *url*. The claim *claim* has the grants.

    The issuer publishes its keys at `<url>/.well-known/openid-configuration`.
    """

    url: str
    audience: str
    claim: str


def issuer_from(text: str) -> Issuer:
    """Parse the JSON *text* as an issuer.

    Raises:
        InvalidSetting: a field is missing, unknown, or breaks its rule.
    """
    try:
        fields = json.loads(text, object_pairs_hook=unique)
    except (ValueError, RecursionError):
        raise InvalidSetting("must be JSON without repeated fields") from None
    if not isinstance(fields, dict) or {*fields} != {*_FIELDS}:
        raise InvalidSetting(f"must be an object with the fields {', '.join(_FIELDS)} and no other")
    for name in _FIELDS:
        if not isinstance(fields[name], str) or not fields[name]:
            raise InvalidSetting("must be a non-empty string", field=name)
    if not may_ask(fields["issuer"]):
        raise InvalidSetting("must begin with https://", field="issuer")
    return Issuer(fields["issuer"], fields["audience"], fields["claim"])


def may_ask(url: str) -> bool:
    """Return True if *url* uses TLS, or HTTP to this machine, and contains no user name."""
    try:
        parts = urlsplit(url)
        named = bool(parts.hostname) and parts.port != 0 and "@" not in parts.netloc
    except ValueError:
        return False
    return named and (
        parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)
    )


def grant_of(claims: Mapping[str, Any], claim: str, feed: str, role: Role) -> Allowed:
    """Return the rights of a token with *claims* for *role* on *feed*, until the token expires.

    Raises:
        OutsideKey: the token does not grant the role, or its grants cannot be parsed.
    """
    grants = claims.get(claim)
    if not isinstance(grants, list) or len(grants) > limits.TOKEN_GRANTS_MAX:
        rule = f"must have a list of at most {limits.TOKEN_GRANTS_MAX} grants"
        raise OutsideKey(rule, field="token")
    for grant in grants:
        _check_fields(grant)
    until_ms = min((int(claims["exp"]) + limits.TOKEN_LEEWAY_S) * 1000, MS_MAX)
    if feed == HOST:
        return _at_host(grants, role, Admission(until_ms=until_ms), _who(claims))
    for grant in grants:
        if _gives(grant, public_name(feed), role):
            bound = _parse_bound(grant)
            if role in UNRESTRICTED_ROLES and not bound.is_everything:
                continue  # these roles need the whole feed
            admission = Admission(until_ms=until_ms)
            return Allowed(bound, admission, _who(claims), limits.KEY_STREAMS)
    rule = f"has no grant of {role.value} on the feed {public_name(feed)}"
    raise OutsideKey(rule, field="token")


def _at_host(
    grants: Sequence[Mapping[str, Any]], role: Role, admission: Admission, principal: str
) -> Allowed:
    """Return the rights at the host: those of all grants with a prefix and without a bound.

    A grant does not count if the first grant of the role on one of its feeds has a bound.
    """
    prefixes: list[str] = []
    bounded: list[str] = []  # the field `feed` of the grants with a bound so far
    for grant in grants:
        prefix = _prefix_of(grant)
        if not _has_role(grant, role):
            continue
        if not _parse_bound(grant).is_everything:
            bounded += [] if role in UNRESTRICTED_ROLES else [str(grant.get("feed", ""))]
        elif prefix is not None and not any(_overlap(prefix, each) for each in bounded):
            prefixes.append(prefix)
    if not prefixes:
        raise OutsideKey(f"has no grant of {role.value} at the host", field="token")
    feeds = () if "" in prefixes else tuple(prefixes)
    return Allowed(EVERYTHING, admission, principal, limits.KEY_STREAMS, feeds)


def _overlap(prefix: str, feed: str) -> bool:
    return feed.startswith(prefix) or (feed.endswith(HOST) and prefix.startswith(feed[:-1]))


def _prefix_of(grant: Mapping[str, Any]) -> str | None:
    """Return the prefix of names in *grant*, "" for all names; None if it names a feed."""
    feed = grant.get("feed")
    return feed[:-1] if isinstance(feed, str) and feed.endswith(HOST) else None


def _who(claims: Mapping[str, Any]) -> str:
    """Return a digest of issuer and subject, because these may have any length and characters."""
    named = f"{claims.get('iss', '')}\0{claims.get('sub', '')}"
    return hashlib.sha256(named.encode("utf-8", "surrogatepass")).hexdigest()


def _check_fields(grant: object) -> None:
    """Check that *grant* has only known fields, as an unknown one may be a misspelled `types`."""
    if not isinstance(grant, dict):
        raise OutsideKey("has a grant that is not an object", field="token")
    for name in grant:
        if name not in _GRANT:
            known = ", ".join(_GRANT)
            rule = f"has a grant with the unknown field {name!r:.64}; the known fields are {known}"
            raise OutsideKey(rule, field="token")


def _gives(grant: Mapping[str, Any], feed: str, role: Role) -> bool:
    prefix = _prefix_of(grant)
    if grant.get("feed") != feed if prefix is None else not feed.startswith(prefix):
        return False
    return _has_role(grant, role)


def _has_role(grant: Mapping[str, Any], role: Role) -> bool:
    roles = grant.get("roles")
    if not isinstance(roles, list):
        return False
    return opens([each for each in Role if each.value in roles], role)


def _parse_bound(grant: Mapping[str, Any]) -> Filter:
    """Return the bound of *grant*, which is the part of the feed that it allows."""
    types, parents = _values(grant, "types"), _values(grant, "parents")
    return EVERYTHING if types is None and parents is None else Filter(types, parents)


def _values(grant: Mapping[str, Any], name: str) -> frozenset[str] | None:
    if name not in grant:
        return None
    given = grant[name]
    if not isinstance(given, list) or not given or not all(isinstance(v, str) for v in given):
        raise OutsideKey(f"has a grant with an invalid list of {name}", field="token")
    try:
        return validate_values(given, name)
    except InvalidFilter as error:
        rule = f"has a grant with an invalid list of {name}: {error.rule}"
        raise OutsideKey(rule) from None

"""The routes that create, list and revoke keys (PROTOCOL 17.11 and 17.12)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tidings.core import limits
from tidings.core.auth.guard import Role
from tidings.core.auth.keys import Key, bound_of, covers, fresh, within
from tidings.core.errors import InvalidSetting, UnknownKey
from tidings.core.model.feeds import HOST, public_name
from tidings.core.model.json_body import object_from
from tidings.core.model.timestamps import from_ms
from tidings.http.answers import json_answer
from tidings.http.endpoints.erasures import caller
from tidings.http.routes import NEEDS

if TYPE_CHECKING:
    from tidings.core.auth.guard import Allowed, Guard
    from tidings.core.auth.keys import KeyIssuer
    from tidings.core.model.feeds import FeedNames
    from tidings.http.request import Answer, Request

_FIELDS = ("roles", "types", "parents", "expires", "rate", "streams", "label", "feeds")
_NS_IN_MS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRouter:
    """The endpoint of the routes of keys.

    *new_key* returns the given number of random bytes. A caller creates only keys with at most its
    own rights, so a credential that is restricted or expires gives no client more or longer access.
    """

    issuer: KeyIssuer
    guard: Guard
    feeds: FeedNames
    new_key: Callable[[int], bytes]

    def __call__(self, request: Request) -> Answer:
        """Answer a request.

        Raises:
            Rejected: access is denied, a field or a parameter breaks its rule, the key does not
                exist, or it would have more rights than the caller.
            Unavailable: the request may have been done.
        """
        feed, now_ms = self.feeds.key(request.feed), self.issuer.clock()
        scope, allowed = self._admit(request, feed)
        if "id" in request.parameters:
            revoked = self._revoke(scope, allowed, request.parameters["id"])
            return json_answer(200, key_document(scope, revoked, now_ms))
        if request.route.startswith("POST"):
            return self._create(request, scope, allowed)
        keys = self.issuer.keys.keys(scope)
        shown = [key_document(scope, key, now_ms) for key in keys if covers(allowed, scope, key)]
        return json_answer(200, {"keys": shown})

    def _admit(self, request: Request, feed: str) -> tuple[str, Allowed]:
        """Return the feed of the keys, or the host with `host=true`, and the caller's rights."""
        need, given = NEEDS[request.route], request.credential
        assert need.role is not None
        if request.query.get("host") == "true":
            scope, allowed = HOST, self.guard.check_host(need.role, given, public_name(feed))
        else:
            scope, allowed = feed, need.admit(self.guard, feed, given)
        _check_query(request.query)
        return scope, allowed

    def _create(self, request: Request, scope: str, allowed: Allowed) -> Answer:
        given = request.credential
        wanted = self._wanted(request, caller(allowed, given))
        self.guard.require_protected(scope)
        charged = replace(given, is_charged=True) if given else None
        rights = self.guard.rights(scope, charged)
        if scope == HOST and allowed.feeds:  # too many revoked keys would end streams of others
            keys = {f"key {key.id}": key for key in self.issuer.keys.keys(scope) if key.feeds}
            first = _first(keys, wanted.made_by)
            if sum(_first(keys, each) == first for each in keys) > limits.PREFIX_KEYS_MAX:
                rule = f"has {limits.PREFIX_KEYS_MAX} keys already; ask the host's operator"
                raise InvalidSetting(rule, field="feeds")
        presented = fresh(self.new_key)
        made = self.issuer.create(scope, presented, within(wanted, allowed, rights, scope=scope))
        shown = key_document(scope, made, self.issuer.clock())
        return json_answer(201, {"key": presented.encode(), **shown})

    def _wanted(self, request: Request, by: str) -> Key:
        body = object_from(request.content(), InvalidSetting)
        for name in body:
            if name not in _FIELDS:
                rule = f"is not known here; the known fields are {', '.join(_FIELDS)}"
                raise InvalidSetting(rule, field=name)  # omit the value, which may be a secret
        lifetime_ms = parse_lifetime(body["expires"]) if "expires" in body else 0
        return Key(
            "",
            "",
            frozenset(map(_role, _texts(body, "roles"))),
            bound_of(*(_texts(body, field) for field in ("types", "parents"))),
            expires_ms=self.issuer.clock() + lifetime_ms if lifetime_ms else 0,
            rate=_number(body, "rate"),
            streams=_number(body, "streams"),
            label=_text(body, "label"),
            made_by=by,
            feeds=tuple(_texts(body, "feeds")),
        )

    def _revoke(self, scope: str, allowed: Allowed, name: str) -> Key:
        if not covers(allowed, scope, self.issuer.find(scope, name)):
            raise UnknownKey("is not the id of a key of your feeds", field="id", value=name)
        return self.issuer.revoke(scope, name)


def _first(keys: Mapping[str, Key], name: str) -> str:
    """Return the first of the credentials with prefixes that created each other up to *name*."""
    while name in keys and ((by := keys[name].made_by) in keys or by.startswith("token ")):
        name = by
    return name


def parse_lifetime(text: object, least_ms: int = 1) -> int:
    """Return the milliseconds of a duration such as `24h`.

    Raises:
        InvalidSetting: *text* is not a duration, or is shorter than *least_ms*.
    """
    from tidings.core.changeagent.config import parse_duration  # only few requests need this module

    try:
        ms = parse_duration(text) // _NS_IN_MS if isinstance(text, str) else -1
    except ValueError:
        ms = -1
    if ms < least_ms:
        rule = "must be a duration such as 30m, 24h or 2160h"
        raise InvalidSetting(rule, field="expires", value=text)
    return ms


def _check_query(query: Mapping[str, str]) -> None:
    for name in query:
        if name != "host":
            raise InvalidSetting("is not known here; the known parameter is host", field=name)
    if query.get("host", "false") not in ("true", "false"):
        raise InvalidSetting("must be true or false", field="host", value=query["host"])


def _role(text: str) -> Role:
    try:
        return Role(text)
    except ValueError:
        rule = f"must be some of {', '.join(role.value for role in Role)}"
        raise InvalidSetting(rule, field="roles", value=text) from None


def _texts(body: Mapping[str, Any], field: str) -> list[str]:
    """Return a list; refuse an empty one, because types and parents would not restrict the key."""
    if field not in body:
        return []
    value = body[field]
    if not isinstance(value, list) or not value or not all(map(_is_text, value)):
        rule = "must be a list of at least one non-empty string, or be left out"
        raise InvalidSetting(rule, field=field, value=value)
    return value


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _number(body: Mapping[str, Any], field: str) -> int:
    value = body.get(field, 0)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidSetting("must be an integer", field=field, value=value)
    return value


def _text(body: Mapping[str, Any], field: str) -> str:
    value = body.get(field, "")
    if not isinstance(value, str):
        raise InvalidSetting("must be a string", field=field, value=value)
    return value


def key_document(feed: str, key: Key, now_ms: int) -> dict[str, Any]:
    """Return all data of *key* except data that would help to guess it."""
    return {
        "feed": public_name(feed),
        "id": key.id,
        "state": key_state(key, now_ms),
        "roles": sorted(role.value for role in key.roles),
        "types": _sorted(key.bound.types),
        "parents": _sorted(key.bound.parents),
        "expires_at": from_ms(key.expires_ms) if key.expires_ms else None,
        "rate": key.rate or None,
        "streams": key.streams or limits.KEY_STREAMS,
        "label": key.label,
        "made_at": from_ms(key.made_ms),
        "made_by": key.made_by,
        "revoked_at": from_ms(key.revoked_ms) if key.revoked_ms else None,
        "successor": key.successor or None,
        **({"feeds": [*key.feeds] or None} if feed == HOST else {}),
    }


def key_state(key: Key, now_ms: int) -> str:
    if key.revoked_ms:
        return "revoked"
    return "expired" if 0 < key.expires_ms <= now_ms else "holds"


def _sorted(values: frozenset[str] | None) -> list[str] | None:
    return None if values is None else sorted(values)

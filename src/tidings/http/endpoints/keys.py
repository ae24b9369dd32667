"""The routes that create, list and revoke keys (PROTOCOL 17.11 and 17.12)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Self

from tidings.core import limits
from tidings.core.auth.guard import ADMIN, Role
from tidings.core.auth.keys import Key, bound_of, covers, fresh, within
from tidings.core.errors import InvalidOperation, InvalidSetting, UnknownKey
from tidings.core.model.feeds import HOST, NAME, public_name
from tidings.core.model.timestamps import from_ms, from_ms_if_set
from tidings.http import wire
from tidings.http.endpoints.reports import RoleName
from tidings.http.wire import UNSET, Call, Example, Fields, Given, Kind, Time, Unset

if TYPE_CHECKING:
    from tidings.core.auth.guard import Allowed, Guard
    from tidings.core.auth.keys import KeyIssuer
    from tidings.http.wire import Declared

_KEYS = "/feeds/{feed}/keys"
_NS_IN_MS = 1_000_000


def parse_lifetime(text: object, field: str = "expires", *, least_ms: int = 1) -> int:
    """Return the milliseconds of a duration such as `24h`.

    Raises:
        ValueError: *text* is not a duration, or is shorter than *least_ms*.
    """
    from tidings.core.changeagent.config import parse_duration  # only few requests need this module

    try:
        ms = parse_duration(text) // _NS_IN_MS if isinstance(text, str) else -1
    except ValueError:
        ms = -1
    if ms < least_ms:
        raise ValueError("must be a duration such as 30m, 24h or 2160h")
    return ms


def _parse_texts(value: Any, field: str) -> Sequence[str]:
    """Return a list; refuse an empty one, because types and parents would not restrict the key."""
    is_list = isinstance(value, list) and all(isinstance(each, str) and each for each in value)
    if not is_list or not value:
        raise ValueError("must be a list of at least one non-empty string, or be left out")
    return [*value]


def _parse_roles(value: Any, field: str) -> frozenset[Role]:
    """Return the roles; `validate_key` refuses a key that has none."""
    known = [role.value for role in Role]
    names = [] if value is None else _parse_texts(value, field)
    for name in names:
        if name not in known:
            raise InvalidSetting(f"must be some of {', '.join(known)}", field=field, value=name)
    return frozenset(map(Role, names))


def _parse_number(value: Any, field: str) -> int:
    if type(value) is not int:
        raise ValueError("must be an integer")
    return value


def _parse_label(value: Any, field: str) -> str:
    if not isinstance(value, str):
        raise ValueError("must be a string")
    return value


def _texts(item: wire.Schema, most: int) -> Kind:
    schema = {"type": "array", "items": item, "minItems": 1, "maxItems": most}
    return Kind(schema, _parse_texts)


def _at_most(most: int) -> Kind:
    return Kind({**wire.INTEGER, "maximum": most}, _parse_number)


Bound = Annotated[
    Sequence[str],
    _texts({**wire.TEXT, "maxLength": limits.PARENT_BYTES_MAX}, limits.FILTER_VALUES_MAX),
]
Prefixes = Annotated[
    Sequence[str], _texts({**wire.PLAIN, "pattern": f"^{NAME.pattern}$"}, limits.KEY_PREFIXES_MAX)
]


class Scope(Given):
    host: Annotated[wire.Switch, "the keys of the host instead of the feed"] = False

    def of(self, call: Call) -> str:
        """Return the feed of the keys, or the host."""
        return HOST if self.host else call.feed


class KeyRequest(Given, first=("expires",)):
    roles: Annotated[
        frozenset[Role],
        Kind(
            {"type": "array", "items": RoleName.__metadata__[0].schema, "minItems": 1}, _parse_roles
        ),
        Example(["read"]),
    ]
    types: Bound = ()
    parents: Annotated[Bound, Example(["customer/ann"])] = ()
    expires: Annotated[
        int,
        Kind(wire.PLAIN, parse_lifetime),
        "lifetime, such as 24h (a duration in the format of Go); no end by default",
        Example("24h"),
    ] = 0
    rate: Annotated[int, _at_most(limits.KEY_RATE_MAX), "maximum number of requests per second"] = 0
    streams: Annotated[
        int,
        _at_most(limits.KEY_STREAMS_MAX),
        f"maximum number of open streams, {limits.KEY_STREAMS} by default",
    ] = 0
    label: Annotated[
        str,
        Kind({**wire.PLAIN, "minLength": 0, "maxLength": limits.KEY_LABEL_CHARS_MAX}, _parse_label),
        "purpose of the key, shown in the list",
    ] = ""
    feeds: Annotated[Prefixes, "prefixes of names of feeds, for a key of the host"] = ()


def _parse_overlap(value: Any, field: str) -> int:
    return parse_lifetime(value, field, least_ms=0)


class Rotation(Given):
    overlap: Annotated[
        int,
        Kind(wire.PLAIN, _parse_overlap),
        "how long the old key stays valid; 0 revokes it at once",
    ]


class KeyReport(Fields, name="Key"):
    """All data of a key except data that would help to guess it."""

    feed: Annotated[str, Example(wire.EXAMPLE_FEED)]
    id: Annotated[str, Example("3k2m9c0q8xw1")]
    state: Annotated[str, wire.one_of("holds", "expired", "revoked")]
    roles: Annotated[list[RoleName], Example(["read"])]
    types: list[str] | None
    parents: Annotated[list[str] | None, Example(["customer/ann"])]
    expires_at: Time | None
    rate: int | None
    streams: Annotated[int, Example(limits.KEY_STREAMS)]
    label: Annotated[str, Example("the page of Ann")]
    made_at: Time
    made_by: Annotated[str, Example("ann")]
    revoked_at: Time | None
    successor: str | None
    feeds: list[str] | Unset | None = UNSET

    @classmethod
    def of(cls, scope: str, stored: Key, now_ms: int, **others: str) -> Self:
        values = {"types": None, "parents": None, **stored.bound.values()}
        return cls.copy_of(
            stored,
            feed=public_name(scope),
            state=key_state(stored, now_ms),
            roles=sorted(role.value for role in stored.roles),
            expires_at=from_ms_if_set(stored.expires_ms),
            rate=stored.rate or None,
            streams=stored.streams or limits.KEY_STREAMS,
            made_at=from_ms(stored.made_ms),
            revoked_at=from_ms_if_set(stored.revoked_ms),
            successor=stored.successor or None,
            feeds=[*stored.feeds] or None if scope == HOST else UNSET,
            **values,
            **others,
        )


class CreatedKey(KeyReport):
    key: Annotated[
        str,
        Kind({"type": "string", "pattern": "^tdk_[0-9a-z]{12}_[A-Za-z0-9_-]{32}$"}),
        Example(f"tdk_3k2m9c0q8xw1_{'x' * 32}"),
    ]


class KeyList(Fields, name="Keys"):
    keys: list[KeyReport]


def key_state(key: Key, now_ms: int) -> str:
    if key.revoked_ms:
        return "revoked"
    return "expired" if 0 < key.expires_ms <= now_ms else "holds"


@dataclass(frozen=True, kw_only=True)
class KeyRouter(wire.Routes, function="consume", error=InvalidSetting):
    """The endpoint of the routes of keys.

    *new_key* returns the given number of random bytes. A caller creates only keys with at most its
    own rights, so a credential that is restricted or expires gives no client more or longer access.
    """

    issuer: KeyIssuer
    guard: Guard
    new_key: Callable[[int], bytes]

    @wire.get(_KEYS, ADMIN, "17.11", errors=(InvalidSetting,))
    def list_keys(self, call: Call, query: Scope) -> KeyList:
        """Return all keys, without their secrets."""
        scope = query.of(call)
        keys = (each for each in self.issuer.keys.keys(scope) if covers(call.allowed, scope, each))
        return KeyList(keys=[KeyReport.of(scope, each, self.issuer.clock()) for each in keys])

    @wire.post(_KEYS, ADMIN, "17.12", status=201, errors=(InvalidSetting, InvalidOperation))
    def create_key(self, call: Call, query: Scope, body: KeyRequest) -> CreatedKey:
        """Create a key."""
        scope = query.of(call)
        wanted = Key(
            "",
            "",
            body.roles,
            bound_of(body.types, body.parents),
            expires_ms=self.issuer.clock() + body.expires if body.expires else 0,
            rate=body.rate,
            streams=body.streams,
            label=body.label,
            made_by=call.caller,
            feeds=tuple(body.feeds),
        )
        if not call.operator:
            wanted = self._within_rights(call, scope, wanted)
        presented = fresh(self.new_key)
        made = self.issuer.create(scope, presented, wanted)
        return CreatedKey.of(scope, made, self.issuer.clock(), key=presented.encode())

    def _within_rights(self, call: Call, scope: str, wanted: Key) -> Key:
        """Return *wanted* with at most the rights of the caller."""
        allowed, given = call.allowed, call.credential
        self.guard.require_protected(scope)
        rights = self.guard.rights(scope, replace(given, is_charged=True) if given else None)
        if scope == HOST and allowed.feed_prefixes:  # too many revoked keys end others' streams
            keys = {f"key {key.id}": key for key in self.issuer.keys.keys(scope) if key.feeds}
            first = _first(keys, wanted.made_by)
            if sum(_first(keys, each) == first for each in keys) > limits.PREFIX_KEYS_MAX:
                rule = f"has {limits.PREFIX_KEYS_MAX} keys already; ask the host's operator"
                raise InvalidSetting(rule, field="feeds")
        return within(wanted, allowed, rights, scope=scope)

    @wire.post(_KEYS + "/{id}/revoke", ADMIN, "17.11", errors=(InvalidSetting, UnknownKey))
    def revoke_key(self, call: Call, query: Scope) -> KeyReport:
        """Revoke a key."""
        scope = query.of(call)
        if not covers(call.allowed, scope, self.issuer.find(scope, call.id)):
            raise UnknownKey("is not the id of a key of your feeds", field="id", value=call.id)
        revoked = self.issuer.revoke(scope, call.id)
        return KeyReport.of(scope, revoked, self.issuer.clock())

    @wire.local(_KEYS + "/{id}")
    def show_key(self, call: Call) -> KeyReport:
        """Return the rights of a key."""
        found = self.issuer.find(call.feed, call.id)
        return KeyReport.of(call.feed, found, self.issuer.clock())

    @wire.local(_KEYS + "/{id}/rotate")
    def rotate_key(self, call: Call, body: Rotation) -> CreatedKey:
        """Create a key with the rights of a key, and let the old key expire."""
        presented, scope = fresh(self.new_key), call.feed
        made = self.issuer.rotate(scope, call.id, presented, body.overlap, call.caller)
        return CreatedKey.of(scope, made, self.issuer.clock(), key=presented.encode())

    def admit(self, found: Declared, call: Call) -> Allowed:
        if call.request.query.get("host") != "true" or found.need.role is None:
            return wire.Routes.admit(self, found, call)
        return self.guard.check_host(found.need.role, call.credential, public_name(call.feed))


def _first(keys: Mapping[str, Key], name: str) -> str:
    """Return the first of the credentials with prefixes that created each other up to *name*."""
    while name in keys and ((by := keys[name].made_by) in keys or by.startswith("token ")):
        name = by
    return name

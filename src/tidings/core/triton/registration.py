"""Parse registrations, the first messages of listeners, in both versions of Triton's protocol.

The texts of errors are exactly those of Triton. An error names the first broken rule. If one entry
is invalid, the entire registration is refused.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from tidings.core import limits
from tidings.core.errors import InvalidOperation, InvalidRegistration, TooLarge, parse_field
from tidings.core.model.feeds import DEFAULT_FEED
from tidings.core.model.filters import Filter
from tidings.core.model.json_body import decode_json
from tidings.core.model.operations import check_text, to_canonical_json
from tidings.core.settings.values import Resource

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


V1, V2 = 1, 2
_FEED = "changefeed"
_NUMBER = re.compile(r"[0-9]+", re.ASCII)
_SAYS_SO = frozenset({"instance", "changeKind", "resources"})


@dataclass(frozen=True, slots=True)
class Kind:
    """A resource, and those of its sub-resources that a listener selects."""

    resource: str
    subs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Listener:
    """A client of Triton's protocol.

    *version* and *feed* are from its handshake, and the other fields from its registration. If
    *kinds* is empty, the client has not registered yet. *service* is JSON.
    """

    version: int
    feed: str
    instance: str = ""
    service: str = ""
    kinds: tuple[Kind, ...] = ()

    @property
    def filter(self) -> Filter:
        pairs = ((kind.resource, sub) for kind in self.kinds for sub in kind.subs)
        return Filter(kinds=frozenset(pairs))


@dataclass(frozen=True, slots=True)
class Registered:
    """The registration of a connection for one resource, as listed in `/changefeeds/stats`."""

    connection_id: str
    instance: str
    service: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class RegistrationRequest:
    """A valid registration. It is accepted only if *password* is right."""

    listener: Listener
    password: str | None = field(default=None, repr=False)


def version_of(header: str | None) -> int:
    """Return the version of registrations for *header*, the value of Accept-Version.

    Raises:
        InvalidRegistration: the number has too many digits.
    """
    match = _NUMBER.search(header or "")
    most = limits.VERSION_MAX
    number = parse_field(match[0], "version", 0, most, InvalidRegistration) if match else V1
    return V2 if number >= V2 else V1


def listener_of(query: Mapping[str, str], headers: Mapping[str, str]) -> Listener | None:
    """Return the listener of a handshake, or None if the client does not use Triton's protocol.

    A listener names its feed in the query parameter `changefeed`, or sends Accept-Version. A
    browser cannot send that header and passes the version in the parameter `version`. Names of
    *headers* are in lower case.

    Raises:
        InvalidRegistration: the version is invalid.
    """
    version = query.get("version", headers.get("accept-version"))
    if _FEED not in query and version is None:
        return None
    return Listener(version_of(version), query.get(_FEED) or DEFAULT_FEED)


def looks_like(text: str) -> bool:
    """Return True if *text*, from a client of unknown kind, looks like a registration."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return (
        isinstance(document, dict)
        and "action" not in document
        and not _SAYS_SO.isdisjoint(document)
    )


def parse(text: str, listener: Listener, resources: Mapping[str, Resource]) -> RegistrationRequest:
    """Parse the registration of *listener*.

    Raises:
        InvalidRegistration: the registration is invalid. The text of the error is the reply.
    """
    says = f"v{listener.version} registration"
    raw = _object(text, listener.version, says)
    instance = _instance(raw, says)
    kinds = (_one if listener.version == V1 else _several)(raw, resources)
    registered = replace(listener, instance=instance, service=_service(raw), kinds=kinds)
    if len(registered.filter.keys()) > limits.FILTER_VALUES_MAX:
        _refuse(f"{says} holds at most {limits.FILTER_VALUES_MAX} sub-resources")
    password = raw.get("password")
    return RegistrationRequest(registered, password if isinstance(password, str) else None)


def _object(text: str, version: int, says: str) -> dict[str, Any]:
    try:
        if len(text.encode("utf-8", "replace")) > limits.MESSAGE_BYTES_MAX:
            raise ValueError
        raw = decode_json(text.encode("utf-8", "replace"), "registration")
    except (ValueError, InvalidOperation):
        _refuse(f"failed to parse v{version} registration payload")
    if not isinstance(raw, dict):
        _refuse(f"{says} should be an object")
    return raw


def _instance(raw: Mapping[str, Any], says: str) -> str:
    instance = raw.get("instance")
    if instance == "" or _storable(instance, limits.INSTANCE_BYTES_MAX):
        return str(instance)
    _refuse(f'{says} should contain an "instance" identifier')


def _one(raw: Mapping[str, Any], resources: Mapping[str, Resource]) -> tuple[Kind, ...]:
    kind = raw.get("changeKind")
    if not isinstance(kind, dict):
        _refuse('v1 registration should contain a "changeKind"')
    if not isinstance(kind.get("resource"), str):
        _refuse('v1 registration should contain a valid "resource"')
    if not _are_subs(kind.get("subResources")):
        _refuse('v1 registration should contain a valid "subResources" array')
    return (_find_kind(kind, resources),)


def _several(raw: Mapping[str, Any], resources: Mapping[str, Resource]) -> tuple[Kind, ...]:
    entries = raw.get("resources")
    if not isinstance(entries, list):
        _refuse('v2 registration should contain a "resources" array')
    if not entries:
        _refuse("no resources specified")
    return tuple(_entry(entry, resources) for entry in entries)


def _entry(entry: object, resources: Mapping[str, Resource]) -> Kind:
    if not isinstance(entry, dict):
        _refuse('v2 registration "resources" array should contain objects')
    if not isinstance(entry.get("resource"), str) or not entry["resource"]:
        _refuse('v2 registration resources should contain a "resource"')
    if not _are_subs(entry.get("subResources")):
        _refuse('v2 registration resources should contain "subResources"')
    return _find_kind(entry, resources)


def _find_kind(entry: Mapping[str, Any], resources: Mapping[str, Resource]) -> Kind:
    """Return *entry*, the part of a registration for one resource, as a `Kind`.

    Undeclared sub-resources are allowed. They match operations that name them in `changed`.
    """
    if entry["resource"] not in resources:
        _refuse(f"unknown resource: {entry['resource']}")
    return Kind(entry["resource"], tuple(dict.fromkeys(entry["subResources"])))


def _are_subs(given: object) -> bool:
    return isinstance(given, list) and all(_storable(sub, limits.PARENT_BYTES_MAX) for sub in given)


def _storable(value: object, bytes_max: int) -> bool:
    try:
        check_text(value, "", bytes_max)
    except (InvalidOperation, TooLarge):
        return False
    return True


def _service(raw: Mapping[str, Any]) -> str:
    """Return the field `service` as JSON. Any value is allowed, because only people read it."""
    if "service" not in raw:
        return ""
    try:
        text = json.dumps(raw["service"], separators=(",", ":"))
    except ValueError:
        text = ""
    if len(text) > limits.SERVICE_BYTES_MAX:
        _refuse(f'registration "service" holds at most {limits.SERVICE_BYTES_MAX} bytes')
    return text


def _refuse(sentence: str) -> NoReturn:
    raise InvalidRegistration(sentence)


def answer(listener: Listener, resources: Mapping[str, Resource]) -> str:
    """Return the reply to a registered *listener*: the route of each resource, in order."""
    routes = [resources[kind.resource].document() for kind in listener.kinds]
    return to_canonical_json(routes[0] if listener.version == V1 else {"bootstrapRoutes": routes})


class Registry(Protocol):
    """A store of the connection that registered last for each resource, by feed and instance."""

    def enter(self, feed: str, connection_id: str, listener: Listener) -> Sequence[str]:
        """Register the connection for each resource of *listener*.

        Return the connections that the same instance had registered for one of these resources.
        """

    def leave(self, feed: str, connection_id: str, listener: Listener) -> None:
        """Remove the registrations of *listener* that this connection still has."""

    def registered(self, feed: str) -> Sequence[Registered]:
        """Return all registrations of *feed*, by instance and resource, strongly consistent."""

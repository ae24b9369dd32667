"""What a listener hears, and how it reads what the server sends."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidings.client.errors import Lost

INVALID_STATE = "Invalid socket state"
OVERFLOW = "the buffer is full"


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """Registered for *resource*: everything is to be read from *route* before items are handled."""

    resource: str
    sub_resources: tuple[str, ...]
    route: str


@dataclass(frozen=True, slots=True)
class Object:
    """One object of a bootstrap."""

    resource: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Live:
    """The bootstrap is complete; what was buffered follows, and then what happens."""


@dataclass(frozen=True, slots=True)
class Item:
    """Something about the resource *id* changed. *published_ms* is since 1970; *fields* is all."""

    resource: str
    sub_resources: tuple[str, ...]
    id: str
    published_ms: int
    fields: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Ended:
    """
    The connection ended, or the buffer overflowed; the next registration comes after *delay_s*.

    *refused*: the server said *reason* in answer to the registration.
    """

    reason: str
    delay_s: float
    refused: bool = False


Signal = Bootstrap | Object | Live | Item | Ended
Fetch = Callable[[Bootstrap], Iterable[Mapping[str, Any]]]


class RefusedRegistration(Lost):
    """The server's words; another server may know the resource, so it is tried again."""


def bootstraps(text: str) -> list[Bootstrap]:
    """
    The answer to a registration in either version.

    Raises:
        RefusedRegistration: it is words.
        Lost: it is something else.
    """
    try:
        answer = json.loads(text)
    except ValueError:
        raise RefusedRegistration(text) from None
    routes = answer.get("bootstrapRoutes", [answer]) if isinstance(answer, dict) else []
    try:
        return [
            Bootstrap(route["resource"], tuple(route["subResources"]), route["bootstrapRoute"])
            for route in routes
        ]
    except (KeyError, TypeError):
        raise Lost(INVALID_STATE) from None


def item(text: str) -> Item:
    """
    Raises:
        Lost: *text* is no item; the connection cannot be trusted any further.
    """
    try:
        fields = json.loads(text)
        kind = fields["changeKind"]
        return Item(
            str(kind["resource"]),
            tuple(kind["subResources"]),
            str(fields["changedResourceId"]),
            int(fields["published"]),
            fields,
        )
    except (ValueError, KeyError, TypeError):
        raise Lost(INVALID_STATE) from None

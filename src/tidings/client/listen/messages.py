"""The signals that a listener yields, and the parsing of the server's messages."""

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
    """A registration for *resource*. Read all objects from *route* before handling items."""

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
    """The end of the bootstrap. Buffered items follow, then new ones."""


@dataclass(frozen=True, slots=True)
class Item:
    """A change of the resource *id*. *published_ms* is since 1970; *fields* has the whole item."""

    resource: str
    sub_resources: tuple[str, ...]
    id: str
    published_ms: int
    fields: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Ended:
    """
    The end of the connection, or an overflow of the buffer. Registration follows after *delay_s*.

    *refused* is True if *reason* is the server's answer to the registration.
    """

    reason: str
    delay_s: float
    refused: bool = False


Signal = Bootstrap | Object | Live | Item | Ended
Fetch = Callable[[Bootstrap], Iterable[Mapping[str, Any]]]


class RefusedRegistration(Lost):
    """The server refused in plain text. It is retried: another server may know the resource."""


def bootstraps(text: str) -> list[Bootstrap]:
    """
    Return the bootstraps in the answer to a registration of either version.

    Raises:
        RefusedRegistration: the answer is plain text.
        Lost: the answer is invalid.
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
    Return the item in *text*.

    Raises:
        Lost: *text* is not an item; the connection cannot be trusted any further.
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

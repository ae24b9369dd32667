"""Read the path and the body of a request from an ASGI server."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from tidings.core import limits
from tidings.core.errors import Rejected, TooLarge

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidings.http.asgi import Message, Receive

BODY_BYTES_MAX = 10 * 1024 * 1024  # as API Gateway HTTP APIs, so that a producer can move to one
ARRIVAL = "tidings.arrival"  # key in the ASGI scope


class Overloaded(Rejected, code="overloaded", status=503):
    """Too many bodies are being received at once."""


class Arrival:
    """The arrival of a request body; not complete if the server does not report it."""

    __slots__ = ("is_complete",)

    def __init__(self) -> None:
        self.is_complete = False


_UNKNOWN = Arrival()


def arrival_of(scope: Message) -> Arrival:
    """Return the server's note about the arrival of the body."""
    arrival: Arrival = scope.get(ARRIVAL, _UNKNOWN)
    return arrival


class Gone(Exception):
    """The client closed the connection before the end of the body."""


def raw_path(scope: Message) -> str:
    """Return the path as the client sent it, not decoded."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw.decode("latin-1").partition("?")[0]


def below(scope: Message, prefix: str) -> Message:
    """
    Return *scope* with the *prefix* removed from its path, as the mapping of a custom domain does.
    """
    path = raw_path(scope)
    if not prefix or not (path == prefix or path.startswith(f"{prefix}/")):
        return scope
    raw = path.removeprefix(prefix) or "/"
    return {**scope, "raw_path": raw.encode("latin-1"), "path": unquote(raw)}


def joined(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the headers by name; join repeated ones with commas, as API Gateway does."""
    values: dict[str, str] = {}
    for name, value in pairs:
        values[name] = f"{values[name]},{value}" if name in values else value
    return values


@dataclass(slots=True)
class BodyBudget:
    """A limit on the bytes of all bodies that a process receives at the same time."""

    left: int = limits.BODIES_BYTES_MAX

    def take(self, size: int) -> None:
        """
        Reserve *size* bytes for a body.

        Raises:
            Overloaded: the bodies of all requests together exceed the limit.
        """
        if size > self.left:
            raise Overloaded("receives too many bodies at once; try again", field="body")
        self.left -= size


async def body_of(receive: Receive, budget: BodyBudget, *, is_complete: bool = False) -> bytes:
    """
    Return the body. *is_complete*: it has arrived, so no timeout is needed.

    Raises:
        TimeoutError: it took longer than BODY_S, or nothing arrived for BODY_IDLE_S.
        TooLarge: it is longer than BODY_BYTES_MAX.
        Overloaded, Gone: see there.
    """
    if is_complete:  # the usual case; a timer would cost 5 % of the request
        body: bytes = (await _next(receive)).get("body", b"")
        return body
    parts: list[bytes] = []
    size, more = 0, True
    try:
        async with asyncio.timeout(limits.BODY_S):
            while more:
                async with asyncio.timeout(limits.BODY_IDLE_S):
                    message = await _next(receive)
                part: bytes = message.get("body", b"")
                check_length(size + len(part))
                budget.take(len(part))
                size += len(part)
                parts.append(part)
                more = message.get("more_body", False)
        return b"".join(parts)
    finally:
        budget.left += size


def check_length(size: int) -> None:
    """
    Check the size in bytes of a body.

    Raises:
        TooLarge: it exceeds BODY_BYTES_MAX.
    """
    if size > BODY_BYTES_MAX:
        rule = f"a request holds at most {BODY_BYTES_MAX} bytes"
        raise TooLarge(rule, field="body", value=size)


def check_announced(headers: Mapping[str, str]) -> None:
    """
    Check the size of the body that *headers* announce.

    Raises:
        TooLarge: it exceeds BODY_BYTES_MAX.
    """
    length = headers.get("content-length", "")
    check_length(int(length) if length.isascii() and length.isdigit() else 0)


async def _next(receive: Receive) -> Message:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise Gone
    return message

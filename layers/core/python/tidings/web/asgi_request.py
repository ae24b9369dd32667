"""What a host reads of a request that an ASGI server hands over: its path, its route, its body."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from tidings.core.errors import TooLarge

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidings.web.asgi import Message, Receive

BODY_BYTES_MAX = 10 * 1024 * 1024  # what an HTTP API takes, so that a producer may move to one
BODY_S = 60.0  # to send it: the largest one at 170 KB a second; who trickles is refused


class Gone(Exception):
    """The client cut the connection within its body."""


def pattern(path: str) -> re.Pattern[str]:
    """`/feeds/{feed}/ops` as a pattern whose groups are the path's parameters."""
    parts = re.split(r"\{(\w+)\}", path)
    texts = [
        re.escape(part) if index % 2 == 0 else f"(?P<{part}>[^/]+)"
        for index, part in enumerate(parts)
    ]
    return re.compile("".join(texts))


def raw_path(scope: Message) -> str:
    """The path as the client sent it, not decoded."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw.decode("latin-1").partition("?")[0]


def below(scope: Message, prefix: str) -> Message:
    """*scope* without the *prefix* of its path, as a custom domain's mapping takes it off."""
    path = raw_path(scope)
    if not prefix or not (path == prefix or path.startswith(f"{prefix}/")):
        return scope
    raw = path.removeprefix(prefix) or "/"
    return {**scope, "raw_path": raw.encode("latin-1"), "path": unquote(raw)}


def joined(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Of a name that comes again all values, as API Gateway joins them."""
    values: dict[str, str] = {}
    for name, value in pairs:
        values[name] = f"{values[name]},{value}" if name in values else value
    return values


async def body_of(receive: Receive) -> bytes:
    """
    Read the whole body even if it is too large: a client still sending hears no answer.

    Raises:
        TimeoutError: it took longer than BODY_S.
        TooLarge: it is longer than BODY_BYTES_MAX.
        Gone: see there.
    """
    message = await _next(receive)
    if not message.get("more_body", False):  # most; a timer would cost a twentieth of the request
        return _bounded(len(message["body"]), message["body"])
    parts, size = [message["body"]], len(message["body"])
    async with asyncio.timeout(BODY_S):
        while message.get("more_body", False):
            message = await _next(receive)
            part: bytes = message.get("body", b"")
            size += len(part)
            if size <= BODY_BYTES_MAX:
                parts.append(part)
    return _bounded(size, b"".join(parts))


async def _next(receive: Receive) -> Message:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise Gone
    return message


def _bounded(size: int, body: bytes) -> bytes:
    if size > BODY_BYTES_MAX:
        rule = f"a request holds at most {BODY_BYTES_MAX} bytes"
        raise TooLarge(rule, field="body", value=size)
    return body

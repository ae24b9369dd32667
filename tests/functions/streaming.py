"""Requests to the deployed app that streams, as its clients send them."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Mapping, MutableMapping
from typing import Any

PATIENCE_S = 60.0  # half of the duration of a stream that nothing ends
SSE = {"accept": "text/event-stream"}
FROM_THE_FIRST = {**SSE, "last-event-id": "0000000000000000007fffff"}
Message = MutableMapping[str, Any]


async def get_bytes(
    path: str,
    *,
    headers: Mapping[str, str],
    query: str = "",
    until: str = "",
    method: str = "GET",
    stuck_at: str = "nowhere",
) -> tuple[int, dict[str, str], bytes]:
    """The answer to a GET of the deployed app; the client leaves when it has read *until*, and
    takes nothing more, without leaving, from *stuck_at* on.
    """
    app = importlib.reload(importlib.import_module("functions.stream.handler")).app
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    sent: list[Message] = []
    left = asyncio.Event()

    def body() -> bytes:
        return b"".join(message.get("body", b"") for message in sent)

    async def receive() -> Message:
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)
        if stuck_at.encode() in body():
            await asyncio.Event().wait()
        if until and until.encode() in body():
            left.set()

    async with asyncio.timeout(PATIENCE_S):
        await app(scope, receive, send)
    received = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], received, body()


async def get(path: str, **more: Any) -> tuple[int, dict[str, str], str]:
    """Return an answer like `get_bytes`, as text."""
    status, headers, body = await get_bytes(path, **more)
    return status, headers, body.decode()


def read(path: str, **more: Any) -> tuple[int, dict[str, str], str]:
    """Return an answer like `get`, in an event loop of its own."""
    return asyncio.run(get(path, **more))

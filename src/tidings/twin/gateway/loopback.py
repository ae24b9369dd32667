"""
A small HTTP/1.1 server for the internal APIs: the Runtime API, Lambda and `@connections`.

Its clients (awslambdaric, boto3) are started by the twin and use the loopback interface. It
supports only keep-alive and `Content-Length`. Each invocation passes through it twice, so it must
be fast.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import unquote

BODY_BYTES_MAX = 32 * 1024 * 1024  # far above Lambda's 6 MB, so that its own limit answers
BACKLOG = 1024  # a follower opens 256 connections at once to `@connections`
BODY_S = 60.0  # to send a body; clients are on this machine


@dataclass(frozen=True, slots=True)
class Request:
    """A request; *path* is percent-decoded and without the query; header names are lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


Handler = Callable[[Request], Awaitable[Response]]


def json_response(status: int, value: object, headers: Mapping[str, str] | None = None) -> Response:
    return Response(
        status,
        json.dumps(value, separators=(",", ":")).encode(),
        {"Content-Type": "application/json", **(headers or {})},
    )


def aws_error(status: int, kind: str, message: str) -> Response:
    """Return an error in the format of AWS's REST-JSON services; boto3 raises it as *kind*."""
    return json_response(status, {"message": message}, {"x-amzn-ErrorType": kind})


class LoopbackServer:
    """A server of *handler* on a free port of 127.0.0.1."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._conversations: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, backlog=BACKLOG)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening, close every connection, and cancel the waiting handlers."""
        if self._server is not None:
            self._server.close()
        for conversation in self._conversations:
            conversation.cancel()
        await asyncio.gather(*self._conversations, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        conversation = asyncio.ensure_future(self._converse(reader, writer))
        self._conversations.add(conversation)
        conversation.add_done_callback(self._conversations.discard)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (request := await _read(reader)) is not None:
                response = await self._handler(request)
                writer.write(_encode(response))
                await writer.drain()
        except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client is gone, too slow, or does not send HTTP; do not answer
        finally:
            with contextlib.suppress(RuntimeError):  # the loop may already be closed
                writer.close()


async def _read(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return None
    start, *lines = head[:-4].decode("latin-1").split("\r\n")
    method, target, _ = start.split(" ", 2)
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    size = int(headers.get("content-length") or 0)
    if size > BODY_BYTES_MAX:
        raise ConnectionAbortedError
    async with asyncio.timeout(BODY_S):
        body = await reader.readexactly(size) if size else b""
    return Request(method, unquote(target.partition("?")[0]), headers, body)


def _encode(response: Response) -> bytes:
    lines = [f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in response.headers.items()]
    lines += [f"Content-Length: {len(response.body)}", "", ""]
    return "\r\n".join(lines).encode("latin-1") + response.body

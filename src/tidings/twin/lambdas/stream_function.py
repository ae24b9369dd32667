"""
The function that answers by response streaming: an ASGI app in a separate process.

On AWS the Lambda Web Adapter passes requests to it. Here the gateway does, and aborts a response at
the function's time limit. One process serves every stream, on a Unix socket in a folder that only
this user can access: every program and page on the machine could connect to a port, and bypass the
gateway's checks.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import IO

import httpx

from tidings.http.asgi import Message, Receive, Send, disconnected
from tidings.server import listening, processes
from tidings.twin import clock
from tidings.twin.gateway import asgi
from tidings.twin.gateway.http_events import HttpResponse
from tidings.twin.lambdas.workers import Program

START_S = 20.0  # imports take half a second; a loaded machine may need much more

# Headers of one connection, not of the request.
_HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"transfer-encoding",
        b"te",
        b"trailer",
        b"upgrade",
        b"host",
        b"content-length",  # of a request, because its body is not passed on
    )
)
_ITS_OWN = _HOP_BY_HOP - {b"content-length"} | {b"date"}  # the public server sets its own date
_URL = "http://localhost"  # the path of a socket is not a host name
_UNREACHABLE = HttpResponse(
    502, [("content-type", "application/json")], b'{"message":"Internal Server Error"}'
)


class StreamFunction:
    """
    A server process, started when it is warmed or first requested, and again after a crash.
    """

    def __init__(self, program: Program, log: IO[bytes]) -> None:
        self._program = program
        self._log = log
        self._child: processes.Child | None = None
        self._folder: Path | None = None
        self._open = False
        self._launching = asyncio.Lock()
        self._warming: asyncio.Future[None] | None = None

    def warm(self) -> None:
        """Start the server in the background, so that it is ready for the first client."""
        self._warming = asyncio.ensure_future(self._warm())

    async def proxy(self, scope: Message, receive: Receive, send: Send) -> None:
        """Pass on one request and stream its response until either side ends it."""
        try:
            await self._start()
        except (TimeoutError, OSError):
            await asgi.respond(send, _UNREACHABLE)
            return
        pump = asyncio.ensure_future(self._pump(scope, send))
        gone = asyncio.ensure_future(disconnected(receive))
        try:
            await asyncio.wait((pump, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            if not pump.done():
                pump.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await pump

    async def stop(self) -> None:
        async with self._launching:  # do not stop between the start of a child and its registration
            if self._warming is not None:
                self._warming.cancel()
            if self._child is not None:
                self._child.kill()
                await self._child.wait()
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)

    async def _warm(self) -> None:
        with contextlib.suppress(TimeoutError, OSError):  # the first request will report the error
            await self._start()

    async def _start(self) -> None:
        async with self._launching:
            if self._child is None or self._child.exit_code is not None:
                await self._launch()
        if not self._open:
            await listening.wait_until_open(self._place(), START_S)
            self._open = True

    async def _launch(self) -> None:
        self._open = False
        self._place().unlink(missing_ok=True)
        self._child = await processes.start(
            self._command(),
            output=self._log,
            environment=self._program.environment,
            folder=self._program.folder,
        )

    def _command(self) -> list[str]:
        server = [sys.executable, "-m", "uvicorn", "handler:app", "--uds", str(self._place())]
        return [*server, "--log-level", "warning", "--no-server-header"]

    def _place(self) -> Path:
        """
        Return the path of the socket, in a temporary folder, because such paths must be short.
        """
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="tidings-"))
        return self._folder / "stream"

    async def _pump(self, scope: Message, send: Send) -> None:
        headers = [(k, v) for k, v in scope["headers"] if k not in _HOP_BY_HOP]
        headers.append((b"x-amzn-lambda-context", self._context().encode()))
        headers += [(b"x-forwarded-host", v) for k, v in scope["headers"] if k == b"host"]
        target = {"target": _target(scope)}  # unchanged; a URL would encode it again
        request = httpx.Request(scope["method"], _URL, headers=headers, extensions=target)
        started = False
        try:
            async with (
                asyncio.timeout(self._program.timeout_s),
                httpx.AsyncHTTPTransport(verify=False, uds=str(self._place())) as transport,
            ):
                answer = await transport.handle_async_request(request)
                started = True
                await _forward(answer, send)
        except (OSError, httpx.TransportError, TimeoutError):
            if not started:
                await asgi.respond(send, _UNREACHABLE)
            # The response was cut: return without its end, so that the server aborts it too.

    def _context(self) -> str:
        """Return the header in which the Lambda Web Adapter passes the time limit to an app."""
        return json.dumps(
            {
                "request_id": clock.new_uuid(),
                "deadline": clock.now_ms() + int(self._program.timeout_s * 1000),
                "invoked_function_arn": self._program.arn,
                "env_config": {"function_name": self._program.name},
            }
        )


def _target(scope: Message) -> bytes:
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope["query_string"]
    return path + b"?" + query if query else path


async def _forward(answer: httpx.Response, send: Send) -> None:
    headers = [(k.lower(), v) for k, v in answer.headers.raw if k.lower() not in _ITS_OWN]
    await send({"type": "http.response.start", "status": answer.status_code, "headers": headers})
    async for piece in answer.aiter_raw():
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})

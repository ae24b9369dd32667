"""
The function that answers by response streaming: an ASGI app in a process of its own.

On AWS the Lambda Web Adapter passes requests to it; here the gateway does, and cuts a
response at the function's time limit. One process serves every stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from typing import IO

import httpx
from tidings.local import asgi, clock, listening, processes
from tidings.local.http_events import HttpResponse
from tidings.local.workers import Program

START_S = 20.0  # imports take half a second; a loaded machine may need much more

# They belong to one connection, not to the request.
_HOP_BY_HOP = frozenset(
    ("connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "host")
)
_UNREACHABLE = HttpResponse(
    502, [("content-type", "application/json")], b'{"message":"Internal Server Error"}'
)


class StreamFunction:
    """Starts the function's server on the first request, and again after it has crashed."""

    def __init__(self, program: Program, log: IO[bytes]) -> None:
        self._program = program
        self._log = log
        self._child: processes.Child | None = None
        self._port = 0
        self._starting = asyncio.Lock()
        # No limit on connections: a consumer holds one for as long as the function may run.
        self._client = httpx.AsyncClient(
            timeout=None, trust_env=False, limits=httpx.Limits(max_connections=None)
        )

    async def proxy(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        """Pass one request on and stream its response until either side ends it."""
        try:
            await self._start()
            url = self._url(scope)
        except (TimeoutError, OSError):
            await asgi.respond(send, _UNREACHABLE)
            return
        pump = asyncio.ensure_future(self._pump(scope, url, send))
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait((pump, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            if not pump.done():
                pump.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await pump

    async def stop(self) -> None:
        await self._client.aclose()
        if self._child is not None:
            self._child.kill()
            await self._child.wait()

    async def _start(self) -> None:
        async with self._starting:
            if self._child is not None and self._child.exit_code is None:
                return
            self._port = listening.free_port()
            self._child = await processes.start(
                self._command(),
                output=self._log,
                environment=self._program.environment,
                folder=self._program.folder,
            )
            await listening.wait_until_open(self._port, START_S)

    def _command(self) -> list[str]:
        server = [sys.executable, "-m", "uvicorn", "handler:app", "--host", "127.0.0.1"]
        return [*server, "--port", str(self._port), "--log-level", "warning", "--no-server-header"]

    def _url(self, scope: asgi.Scope) -> str:
        path = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1")
        query = scope["query_string"].decode("latin-1")
        return f"http://127.0.0.1:{self._port}{path}" + (f"?{query}" if query else "")

    async def _pump(self, scope: asgi.Scope, url: str, send: asgi.Send) -> None:
        headers = [(k, v) for k, v in asgi.headers_of(scope) if k not in _HOP_BY_HOP]
        headers.append(("x-amzn-lambda-context", self._context()))
        started = False
        try:
            async with (
                asyncio.timeout(self._program.timeout_s),
                self._client.stream(scope["method"], url, headers=headers) as upstream,
            ):
                started = True
                await _forward(upstream, send)
        except (httpx.HTTPError, TimeoutError):
            if not started:
                await asgi.respond(send, _UNREACHABLE)
            # A response cut in its middle: returning without its end makes the server cut it too.

    def _context(self) -> str:
        """The header in which the Lambda Web Adapter tells an app its time limit."""
        return json.dumps(
            {
                "request_id": clock.new_uuid(),
                "deadline": clock.now_ms() + int(self._program.timeout_s * 1000),
                "invoked_function_arn": self._program.arn,
                "env_config": {"function_name": self._program.name},
            }
        )


async def _forward(upstream: httpx.Response, send: asgi.Send) -> None:
    dropped = _HOP_BY_HOP | {"date"}  # the public server sets its own
    headers = [(k, v) for k, v in upstream.headers.raw if k.lower().decode() not in dropped]
    start = {"type": "http.response.start", "status": upstream.status_code, "headers": headers}
    await send(start)
    chunks: AsyncIterator[bytes] = upstream.aiter_raw()
    async for chunk in chunks:
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _disconnected(receive: asgi.Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

"""
The Lambda Invoke API for boto3's client.

`RequestResponse` waits for the answer. `Event` is queued and retried after an error, like Lambda's
asynchronous invocations.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence

from tidings.twin.gateway.loopback import Request, Response, aws_error
from tidings.twin.lambdas.runtime_api import Answer
from tidings.twin.options import PREFIX

SYNC_BYTES_MAX = 6 * 1024 * 1024  # Lambda's limit for the payload of a synchronous invocation
ASYNC_BYTES_MAX = 1024 * 1024  # and of an asynchronous one
RETRY_AFTER_S = (60.0, 120.0)  # Lambda's pauses before the second and third attempt

_PATH = re.compile(r"/2015-03-31/functions/(?:.*:function:)?([A-Za-z0-9_-]+)(?::.*)?/invocations")

Invoke = Callable[[str, bytes], Awaitable[Answer]]


class LambdaApi:
    """The Invoke API of the functions *names*, which runs them through *invoke*."""

    def __init__(
        self,
        names: Sequence[str],
        invoke: Invoke,
        *,
        retry_after_s: Sequence[float] = RETRY_AFTER_S,
    ) -> None:
        self._names = frozenset(names)
        self._invoke = invoke
        self._retry_after_s = retry_after_s
        self._queued: set[asyncio.Task[None]] = set()

    async def handle(self, request: Request) -> Response | None:
        """Answer a request to this API; return None for other requests."""
        match = _PATH.fullmatch(request.path)
        if match is None:
            return None
        if request.method != "POST":
            return aws_error(405, "InvalidRequestContentException", "only POST invokes")
        name = match[1].removeprefix(PREFIX)
        if name not in self._names:
            return aws_error(404, "ResourceNotFoundException", f"Function not found: {match[1]}")
        return await self._answer(name, request)

    async def idle(self) -> None:
        """Return when nothing is queued or running."""
        while self._queued:
            await asyncio.wait(self._queued)

    async def stop(self) -> None:
        """Discard the queued invocations."""
        for task in self._queued:
            task.cancel()
        await asyncio.gather(*self._queued, return_exceptions=True)

    async def _answer(self, name: str, request: Request) -> Response:
        kind = request.headers.get("x-amz-invocation-type", "RequestResponse")
        bytes_max = ASYNC_BYTES_MAX if kind == "Event" else SYNC_BYTES_MAX
        if len(request.body) > bytes_max:
            message = f"Request must be smaller than {bytes_max} bytes for the Invoke operation"
            return aws_error(413, "RequestTooLargeException", message)
        payload = request.body or b"{}"
        if kind == "Event":
            self._queue(name, payload)
            return Response(202)
        if kind == "DryRun":
            return Response(204)
        answer = await self._invoke(name, payload)
        headers = {"X-Amz-Executed-Version": "$LATEST", "Content-Type": "application/json"}
        if answer.error is not None:
            headers["X-Amz-Function-Error"] = answer.error
        return Response(200, answer.payload, headers)

    def _queue(self, name: str, payload: bytes) -> None:
        task = asyncio.ensure_future(self._deliver(name, payload))
        self._queued.add(task)
        task.add_done_callback(self._queued.discard)

    async def _deliver(self, name: str, payload: bytes) -> None:
        for pause_s in (*self._retry_after_s, None):
            answer = await self._invoke(name, payload)
            if answer.error is None or pause_s is None:
                return
            await asyncio.sleep(pause_s)

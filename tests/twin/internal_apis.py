"""The APIs that functions call, Lambda's Invoke API and `@connections`, on one loopback port.

A caller has to send a random session token, which each function has in its environment. Without
this token, every program on the machine and every page in a local browser could use the APIs.
"""

from __future__ import annotations

import asyncio
import hmac
import re
from collections.abc import Awaitable, Callable, Sequence

from tests.twin import clock
from tests.twin.options import PREFIX, STAGE
from tests.twin.runtime_api import (
    Invoke,
    LoopbackServer,
    Response,
    RuntimeRequest,
    aws_error,
    json_response,
)
from tests.twin.socket_gateway import MESSAGE_BYTES_MAX, NORMAL, OpenSocket, SocketGateway

TOKEN_BYTES = 24  # random; 192 bits cannot be guessed

_TOKEN = "x-amz-security-token"  # the header in which AWS's clients send the session token
Api = Callable[[RuntimeRequest], Awaitable[Response | None]]
_CONNECTION = re.compile(rf"(?:/{STAGE})?/@connections/([^/]+)")
SYNC_BYTES_MAX = 6 * 1024 * 1024  # Lambda's limit for the payload of a synchronous invocation
ASYNC_BYTES_MAX = 1024 * 1024  # Lambda's limit for the payload of an asynchronous invocation
RETRY_AFTER_S = (60.0, 120.0)  # Lambda's pauses before the second and third attempt
_INVOCATIONS = re.compile(
    r"/2015-03-31/functions/(?:.*:function:)?([A-Za-z0-9_-]+)(?::.*)?/invocations"
)


class InternalApis:
    """The server of the internal APIs.

    The server listens before the APIs exist: the environment of the functions needs the address of
    the server, and the APIs need the functions. *token* is the AWS_SESSION_TOKEN of the functions.
    """

    def __init__(self) -> None:
        self._apis: tuple[Api, ...] = ()
        self.token = clock.new_token(TOKEN_BYTES).hex()
        self._server = LoopbackServer(self._handle)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.port}"

    async def start(self) -> None:
        await self._server.start()

    def serve(self, *apis: Api) -> None:
        self._apis = apis

    async def stop(self) -> None:
        await self._server.stop()

    async def _handle(self, request: RuntimeRequest) -> Response:
        shown = request.headers.get(_TOKEN, "")
        if not hmac.compare_digest(shown.encode(), self.token.encode()):
            message = "The security token included in the request is invalid."
            return aws_error(403, "UnrecognizedClientException", message)
        for api in self._apis:
            if (response := await api(request)) is not None:
                return response
        return aws_error(404, "UnknownOperationException", request.path)


class ConnectionsApi:
    """`@connections`, the API of boto3's `apigatewaymanagementapi` client."""

    def __init__(self, gateway: SocketGateway) -> None:
        self._gateway = gateway

    async def handle(self, request: RuntimeRequest) -> Response | None:
        """Answer a request to this API; return None for other requests."""
        match = _CONNECTION.fullmatch(request.path)
        if match is None:
            return None
        connection = self._gateway.find(match[1])
        if connection is None or connection.ended.done():
            return aws_error(410, "GoneException", "")
        if request.method == "POST":
            return _post(connection, request.body)
        if request.method == "GET":
            return _describe(connection)
        if request.method == "DELETE":
            connection.end(NORMAL, "Connection Closed Normally")
            return Response(204)
        return aws_error(403, "ForbiddenException", "Forbidden")


def _post(connection: OpenSocket, body: bytes) -> Response:
    if len(body) > MESSAGE_BYTES_MAX:
        message = f"Message exceeds the limit of {MESSAGE_BYTES_MAX} bytes"
        return aws_error(413, "PayloadTooLargeException", message)
    if not connection.post(body.decode(errors="replace")):
        return aws_error(429, "LimitExceededException", "Too Many Requests")
    return Response(200)


def _describe(connection: OpenSocket) -> Response:
    caller = connection.caller
    return json_response(
        200,
        {
            "connectedAt": clock.iso(caller.connected_ms),
            "lastActiveAt": clock.iso(connection.active_ms),
            "identity": {"sourceIp": caller.source_ip, "userAgent": caller.user_agent},
        },
    )


class LambdaApi:
    """The Invoke API of the functions *names*. The API runs the functions by *invoke*."""

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

    async def handle(self, request: RuntimeRequest) -> Response | None:
        """Answer a request to this API; return None for other requests."""
        match = _INVOCATIONS.fullmatch(request.path)
        if match is None:
            return None
        if request.method != "POST":
            return aws_error(405, "InvalidRequestContentException", "only POST invokes")
        name = match[1].removeprefix(PREFIX)
        if name not in self._names:
            return aws_error(404, "ResourceNotFoundException", f"Function not found: {match[1]}")
        return await self._answer(name, request)

    async def idle(self) -> None:
        """Return when no asynchronous invocation is queued or running."""
        while self._queued:
            await asyncio.wait(self._queued)

    async def stop(self) -> None:
        """Cancel the asynchronous invocations that are queued or running."""
        for task in self._queued:
            task.cancel()
        await asyncio.gather(*self._queued, return_exceptions=True)

    async def _answer(self, name: str, request: RuntimeRequest) -> Response:
        kind = request.headers.get("x-amz-invocation-type", "RequestResponse")
        bytes_max = ASYNC_BYTES_MAX if kind == "Event" else SYNC_BYTES_MAX
        if len(request.body) > bytes_max:
            message = f"Request must be smaller than {bytes_max} bytes for the Invoke operation"
            return aws_error(413, "RequestTooLargeException", message)
        payload = request.body or b"{}"
        if kind == "Event":
            task = asyncio.ensure_future(self._deliver(name, payload))
            self._queued.add(task)
            task.add_done_callback(self._queued.discard)
            return Response(202)
        if kind == "DryRun":
            return Response(204)
        answer = await self._invoke(name, payload)
        headers = {"X-Amz-Executed-Version": "$LATEST", "Content-Type": "application/json"}
        if answer.error is not None:
            headers["X-Amz-Function-Error"] = answer.error
        return Response(200, answer.payload, headers)

    async def _deliver(self, name: str, payload: bytes) -> None:
        for pause_s in (*self._retry_after_s, None):
            answer = await self._invoke(name, payload)
            if answer.error is None or pause_s is None:
                return
            await asyncio.sleep(pause_s)

"""
The APIs that functions call, Lambda and `@connections`, on one loopback port.

A caller sends a random session token, which each function has in its environment: every program on
the machine, and every page in a local browser, can connect to the port.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Awaitable, Callable

from tidings.twin import clock
from tidings.twin.gateway.loopback import (
    LoopbackServer,
    Request,
    Response,
    aws_error,
    json_response,
)
from tidings.twin.gateway.socket_gateway import (
    MESSAGE_BYTES_MAX,
    NORMAL,
    Connection,
    SocketGateway,
)
from tidings.twin.options import STAGE

TOKEN_BYTES = 24  # random; 192 bits cannot be guessed

_TOKEN = "x-amz-security-token"  # AWS's clients send the session token in it
Api = Callable[[Request], Awaitable[Response | None]]


class InternalApis:
    """
    The server of the internal APIs.

    It listens before the APIs exist: the functions' environment needs the address, and the APIs
    need the functions. *token* is the AWS_SESSION_TOKEN of the functions.
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

    async def _handle(self, request: Request) -> Response:
        shown = request.headers.get(_TOKEN, "")
        if not hmac.compare_digest(shown.encode(), self.token.encode()):
            message = "The security token included in the request is invalid."
            return aws_error(403, "UnrecognizedClientException", message)
        for api in self._apis:
            if (response := await api(request)) is not None:
                return response
        return aws_error(404, "UnknownOperationException", request.path)


_PATH = re.compile(rf"(?:/{STAGE})?/@connections/([^/]+)")


class ConnectionsApi:
    """`@connections`, the API of boto3's `apigatewaymanagementapi` client."""

    def __init__(self, gateway: SocketGateway) -> None:
        self._gateway = gateway

    async def handle(self, request: Request) -> Response | None:
        """Answer a request to this API; return None for other requests."""
        match = _PATH.fullmatch(request.path)
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


def _post(connection: Connection, body: bytes) -> Response:
    if len(body) > MESSAGE_BYTES_MAX:
        message = f"Message exceeds the limit of {MESSAGE_BYTES_MAX} bytes"
        return aws_error(413, "PayloadTooLargeException", message)
    if not connection.post(body.decode(errors="replace")):
        return aws_error(429, "LimitExceededException", "Too Many Requests")
    return Response(200)


def _describe(connection: Connection) -> Response:
    caller = connection.caller
    return json_response(
        200,
        {
            "connectedAt": clock.iso(caller.connected_ms),
            "lastActiveAt": clock.iso(connection.active_ms),
            "identity": {"sourceIp": caller.source_ip, "userAgent": caller.user_agent},
        },
    )

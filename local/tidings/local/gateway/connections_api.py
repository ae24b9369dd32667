"""`@connections`: what boto3's `apigatewaymanagementapi` client calls to reach a client."""

from __future__ import annotations

import re

from tidings.local import clock
from tidings.local.gateway.loopback import Request, Response, aws_error, json_response
from tidings.local.gateway.socket_gateway import (
    MESSAGE_BYTES_MAX,
    NORMAL,
    Connection,
    SocketGateway,
)
from tidings.local.options import STAGE

_PATH = re.compile(rf"(?:/{STAGE})?/@connections/([^/]+)")


class ConnectionsApi:
    """Reaches the connections of *gateway*."""

    def __init__(self, gateway: SocketGateway) -> None:
        self._gateway = gateway

    async def handle(self, request: Request) -> Response | None:
        """Answer a request to this API; None if it is not for it."""
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
            "connectedAt": _iso(caller.connected_ms),
            "lastActiveAt": _iso(connection.active_ms),
            "identity": {"sourceIp": caller.source_ip, "userAgent": caller.user_agent},
        },
    )


def _iso(ms: int) -> str:
    return clock.moment(ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")

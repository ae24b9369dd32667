"""
The APIs that functions call, together on one loopback port: Lambda and `@connections`.

Whoever calls shows a random session token, which each function finds in its environment: the port
is open to every program on the machine, and to every page that somebody visits there.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable

from tidings.local import clock
from tidings.local.gateway.loopback import LoopbackServer, Request, Response, aws_error

TOKEN_BYTES = 24  # random ones: nobody guesses 192 bits

_TOKEN = "x-amz-security-token"  # where AWS's clients put the session token
Api = Callable[[Request], Awaitable[Response | None]]


class InternalApis:
    """
    Listens before the APIs exist: the functions' environment needs the address, and the APIs
    need the functions. *token* is what AWS_SESSION_TOKEN is for them.
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

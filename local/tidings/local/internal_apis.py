"""The APIs that functions call, together on one loopback port: Lambda and `@connections`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tidings.local.loopback import LoopbackServer, Request, Response, aws_error

Api = Callable[[Request], Awaitable[Response | None]]


class InternalApis:
    """
    Listens before the APIs exist: the functions' environment needs the address, and the APIs
    need the functions.
    """

    def __init__(self) -> None:
        self._apis: tuple[Api, ...] = ()
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
        for api in self._apis:
            if (response := await api(request)) is not None:
                return response
        return aws_error(404, "UnknownOperationException", request.path)

"""Who may come to the public port at all: no page of a stranger's, and no name that is not ours."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass

from tidings.core.auth.origins import check_host, check_page
from tidings.core.errors import Rejected
from tidings.local.gateway import asgi
from tidings.local.gateway.http_events import HttpResponse


@dataclass(frozen=True, slots=True)
class Visitors:
    """
    The names *hosts* under which we answer, and the *origins* whose pages may ask.

    A stage's pages are told by CORS headers what they may read. Here a page is refused at the
    door: on the machine of whoever visits it, a feed may be open that is nobody else's.
    """

    hosts: Collection[str] = ()
    origins: Collection[str] = ()

    def check(self, scope: asgi.Scope) -> None:
        """
        Raises:
            UnknownHost, ForeignOrigin: see `auth.origins`.
        """
        headers = dict(asgi.headers_of(scope))
        check_host(headers, self.hosts)
        if scope.get("method") != "OPTIONS":  # a browser's question is answered, not refused
            check_page(headers, self.origins)


async def refuse(
    scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send, error: Rejected
) -> None:
    """Answer a request or a handshake with *error*."""
    body = json.dumps({"error": error.body()}, separators=(",", ":")).encode()
    kind = ("content-type", "application/json")
    if scope["type"] == "http":
        await asgi.respond(send, HttpResponse(error.status, [kind], body))
        return
    await receive()
    headers = [(kind[0].encode(), kind[1].encode())]
    start = {"type": "websocket.http.response.start", "status": error.status, "headers": headers}
    await send(start)
    await send({"type": "websocket.http.response.body", "body": body})

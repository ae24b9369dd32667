"""The handler of the streaming function: writes a request's metrics when it ends."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidings.http.asgi import App, Message, Receive, Send

_TELEMETRY = "tidings.aws.runtime.telemetry"


def asgi_edge(app: App) -> App:
    """
    Return *app*, extended to write its metrics before the last part of an answer is sent.

    After the last part, Lambda may freeze the process until the next request, or for good.
    """

    async def counted(scope: Message, receive: Receive, send: Send) -> None:
        async def flushed(message: Message) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body"):
                _flush()
            await send(message)

        try:
            await app(scope, receive, flushed)
        finally:
            _flush()  # a client that disconnected did not receive a last part

    return counted


def _flush() -> None:
    """
    Write the metrics; nothing was counted if Powertools, which is slow to import, is not loaded.
    """
    telemetry = sys.modules.get(_TELEMETRY)
    if telemetry is not None:
        telemetry.flush()

"""The edge of the function that streams: what a request counted is written when it ends."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidings.http.asgi import App, Message, Receive, Send

_TELEMETRY = "tidings.aws.runtime.telemetry"


def asgi_edge(app: App) -> App:
    """
    *app*, with its counts written before the last of an answer is sent: behind it, Lambda may stop
    the process until somebody else asks, or for good.
    """

    async def counted(scope: Message, receive: Receive, send: Send) -> None:
        async def flushed(message: Message) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body"):
                _flush()
            await send(message)

        try:
            await app(scope, receive, flushed)
        finally:
            _flush()  # who left was sent no last piece

    return counted


def _flush() -> None:
    """Nothing where nothing was counted: then Powertools, which is slow to load, is not there."""
    telemetry = sys.modules.get(_TELEMETRY)
    if telemetry is not None:
        telemetry.flush()

"""Answer every request with 204, on the HTTP server of `tidings serve`: the unit of `serve`."""

from __future__ import annotations

import asyncio
import sys

import uvloop

from tidings.http.asgi import Message, Receive, Send
from tidings.server import processes
from tidings.server.http_server import serving


async def _answer(scope: Message, receive: Receive, send: Send) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def _run(port: int) -> None:
    (listener,) = processes.listen("127.0.0.1", port)
    async with serving(_answer, listener, grace_s=0, ws_per_message_deflate=False):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_run(int(sys.argv[sys.argv.index("--port") + 1])))

"""
The process that `bench.push` sends to: a stand-in for `@connections`.

It answers each message after as long as API Gateway takes, by a timer, and does nothing else with
it: it shares the machine with what it is sent by.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from typing import cast

import uvloop

ANSWER_S = 0.02
_LENGTH = b"content-length: "
_ANSWER = (
    b"HTTP/1.1 200 OK\r\nDate: Wed, 25 Nov 2026 01:43:19 GMT\r\nContent-Type: application/json\r\n"
    b"Content-Length: 0\r\nConnection: keep-alive\r\n"
    b"x-amzn-RequestId: 5f8a2c1e-0f3b-4b6e-9a51-2f6f6e0d8c11\r\n\r\n"
)


class _Connection(asyncio.Protocol):
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._data = loop, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        self._data += data
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            told = self._data[:end].partition(_LENGTH)[2].partition(b"\r\n")[0]
            size = end + 4 + int(told)
            if len(self._data) < size:
                return
            self._data = self._data[size:]
            self._loop.call_later(ANSWER_S, self._transport.write, _ANSWER)


async def _serve(certificate: str) -> None:
    loop, trust = asyncio.get_running_loop(), None
    if certificate:
        trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        trust.load_cert_chain(certificate)
    server = await loop.create_server(
        lambda: _Connection(loop), "127.0.0.1", 0, ssl=trust, backlog=4096
    )
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(sys.argv[1]))

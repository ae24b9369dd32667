"""WebSockets that are read slowly: a catch-up waits for its client without a thread."""

from __future__ import annotations

import asyncio
from typing import Any

from tidings.core.websocket.connections import Outcome
from tidings.server.sockets import OUTGOING_BYTES_MAX, ROOM_BYTES, SocketApp, Sockets
from tidings.server.sockets import _Client as Client

FRAME = "x" * (ROOM_BYTES // 2 + 1)


class Reader:
    """A client that takes a frame when it is told to."""

    def __init__(self) -> None:
        self.takes = asyncio.Semaphore(0)
        self.taken: list[str] = []

    async def send(self, message: Any) -> None:
        await self.takes.acquire()
        self.taken.append(message["text"])


async def serve(sockets: Sockets, reader: Reader, client: Client) -> None:
    app = SocketApp(sockets=sockets, connections=None, receive=None, clock=None)  # type: ignore[arg-type]
    await app._write("c", client, reader.send)


def test_a_catch_up_continues_when_its_client_has_room() -> None:
    """A step is queued whole; what comes live finds a bound; no send waits."""

    async def play() -> None:
        replayed: list[str] = []
        sockets, reader = Sockets(asyncio.get_running_loop(), replayed.append), Reader()
        client = sockets.add("c")
        writing = asyncio.ensure_future(serve(sockets, reader, client))
        replays = sockets.for_replays
        for _ in range(9):
            assert await asyncio.to_thread(replays.send, "c", FRAME) is Outcome.SENT
        assert client.bytes > OUTGOING_BYTES_MAX
        assert await asyncio.to_thread(sockets.send, "c", FRAME) is Outcome.BUSY
        assert not sockets.has_room("c")
        await asyncio.to_thread(sockets.replay_with_room, "c")
        assert replayed == []
        for number in range(1, 10):
            reader.takes.release()
            while len(reader.taken) < number or client.bytes > (9 - number) * len(FRAME):
                await asyncio.sleep(0.001)
            assert replayed == (["c"] if number >= 8 else [])  # once, as soon as there is room
        assert sockets.has_room("c")
        await asyncio.to_thread(sockets.replay_with_room, "c")
        assert replayed == ["c", "c"]
        sockets.remove("c")
        assert sockets.has_room("c")  # its next send is told that it has gone
        assert replays.send("c", FRAME) is Outcome.GONE
        writing.cancel()

    asyncio.run(play())

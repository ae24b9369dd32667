"""WebSockets that are read slowly: a catch-up waits for its client without a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from operator import itemgetter
from types import SimpleNamespace
from typing import Any

import pytest
from uvicorn import Config
from uvicorn.server import ServerState
from websockets.protocol import State

from tidings.core.websocket.connections import Outcome
from tidings.http.streams.tail_poller import SLICE
from tidings.server.meters import Meters
from tidings.server.socket_protocol import (
    BURST_S,
    FRAME_S,
    MESSAGE_S,
    SLICE_BYTES,
    SocketProtocol,
)
from tidings.server.sockets import OUTGOING_BYTES_MAX, ROOM_BYTES, SocketApp, Sockets
from tidings.server.sockets import _Client as Client

FRAME = "x" * (ROOM_BYTES // 2 + 1)
FRAME_BYTES = len(FRAME) + 10  # with the head of the frame


class Reader:
    """A client that reads a frame when the test allows it."""

    def __init__(self) -> None:
        self.takes = asyncio.Semaphore(0)
        self.taken: list[str] = []

    async def send(self, message: Any) -> None:
        await self.takes.acquire()
        self.taken.append(message["text"])


async def serve(sockets: Sockets, reader: Reader, client: Client) -> None:
    app = SocketApp(sockets=sockets, connections=None, receive=None, clock=None)  # type: ignore[arg-type]
    await app._write(client, reader.send)


def test_a_catch_up_continues_when_its_client_has_room() -> None:
    """A step is queued as a whole; live frames are limited; no send waits."""

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
            while len(reader.taken) < number or client.bytes > (9 - number) * FRAME_BYTES:
                await asyncio.sleep(0.001)
            assert replayed == (["c"] if number >= 8 else [])  # once, as soon as there is room
        assert sockets.has_room("c")
        await asyncio.to_thread(sockets.replay_with_room, "c")
        assert replayed == ["c", "c"]
        sockets.remove("c")
        assert sockets.has_room("c")  # its next send returns GONE
        assert replays.send("c", FRAME) is Outcome.GONE
        writing.cancel()

    asyncio.run(play())


class Connection:
    """The end of a WebSocket in the server: takes frames unless it is *full*."""

    def __init__(self) -> None:
        self.full = False
        self.frames: list[bytes] = []

    def write(self, frame: bytes) -> bool:
        if not self.full:
            self.frames.append(frame)
        return not self.full


def test_messages_are_written_at_once_and_encoded_once() -> None:
    """They are written without a task; a client that accepts no more gets the rest from its task,
    in order.
    """

    async def play() -> None:
        sockets, reader = Sockets(asyncio.get_running_loop()), Reader()
        connections, texts = {name: Connection() for name in "ab"}, ["ä"]
        clients = {name: sockets.add(name, each.write) for name, each in connections.items()}
        assert sockets.broadcast({name: texts for name in "abc"}) == {"c": texts}  # c: unknown
        await asyncio.sleep(0.01)
        assert connections["a"].frames == connections["b"].frames == [b"\x81\x02\xc3\xa4"]
        assert connections["a"].frames[0] is connections["b"].frames[0]
        assert clients["a"].bytes == 0

        connections["a"].full = True
        writing = asyncio.ensure_future(serve(sockets, reader, clients["a"]))
        sockets.send("a", "1")
        await asyncio.sleep(0.01)
        connections["a"].full = False  # while its task still sends the first message
        for text in ("2", "3"):
            sockets.send("a", text)
        await asyncio.sleep(0.01)
        assert len(connections["a"].frames) == 1
        for _ in range(3):
            reader.takes.release()
        while clients["a"].bytes:
            await asyncio.sleep(0.001)
        assert reader.taken == ["1", "2", "3"]
        sockets.send("a", "4")
        await asyncio.sleep(0.01)
        assert connections["a"].frames[1:] == [b"\x81\x014"]
        writing.cancel()

    asyncio.run(play())


def test_a_broadcast_returns_what_clients_do_not_accept_now() -> None:
    """This is too much at once, or more than a slow client may have in its queue."""

    async def play() -> None:
        sockets, connection = Sockets(asyncio.get_running_loop()), Connection()
        sockets.add("quick", connection.write)
        slow, texts = sockets.add("slow"), ["1", "2"]
        slow.queued_bytes = OUTGOING_BYTES_MAX
        assert sockets.broadcast({"slow": texts, "quick": texts}) == {"slow": texts}
        long = ["x" * (OUTGOING_BYTES_MAX // 2)] * 2
        assert sockets.broadcast({"quick": long}) == {"quick": long}
        await asyncio.sleep(0.01)
        assert connection.frames == [b"\x81\x011\x81\x012"]

    asyncio.run(play())


def test_nothing_is_written_to_a_lost_connection() -> None:
    """The transport would raise until the task of the connection has ended."""
    written = list[bytes]()
    protocol: Any = SocketProtocol.__new__(SocketProtocol)
    protocol.transport = SimpleNamespace(write=written.append)
    protocol.conn, protocol.writable = SimpleNamespace(state=State.OPEN), asyncio.Event()
    protocol.handshake_complete, protocol.close_sent = True, False
    protocol.writable.set()
    for protocol.disconnected in (False, True):
        assert protocol.write_frame(b"x") is not protocol.disconnected
    assert written == [b"x"]


def test_a_broadcast_to_many_clients_leaves_time_for_others() -> None:
    """It is written in slices, and other work of the event loop runs between them."""

    async def play() -> None:
        sockets, connection = Sockets(asyncio.get_running_loop()), Connection()
        names = [str(number) for number in range(2 * SLICE + 1)]
        for name in names:
            sockets.add(name, connection.write)
        texts, written = ["1"], [0]
        assert sockets.broadcast({name: texts for name in names}) == {}
        while written[-1] < len(names):
            await asyncio.sleep(0)
            written.append(len(connection.frames))
        assert max(later - before for before, later in pairwise(written)) <= SLICE

    asyncio.run(play())


def test_a_connection_that_fails_delays_no_other() -> None:
    """Its own task serves it from then on; a catch-up that cannot start is tried again."""

    async def play() -> None:
        started, fails = list[str](), [True]

        def replay(connection_id: str) -> None:
            if fails:
                raise RuntimeError("can't start new thread")
            started.append(connection_id)

        sockets, reader, good = Sockets(asyncio.get_running_loop(), replay), Reader(), Connection()
        bad, other = sockets.add("bad", Connection().write), sockets.add("good", good.write)
        bad.waits = True
        for name in ("bad", "good"):
            sockets.send(name, "1")
        await asyncio.sleep(0.01)
        assert good.frames == [b"\x81\x011"]
        assert (other.bytes, started) == (0, [])
        fails.clear()
        writing = asyncio.ensure_future(serve(sockets, reader, bad))
        sockets.send("bad", "2")
        reader.takes.release()
        while bad.bytes:
            await asyncio.sleep(0.001)
        assert (reader.taken, started) == (["2"], ["bad"])
        writing.cancel()

    asyncio.run(play())


class Loop:
    """An event loop with the time that the test sets, which also calls its timers."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.timers: list[tuple[float, Any]] = []
        self.create_task = asyncio.get_running_loop().create_task

    def time(self) -> float:
        return self.now_s

    def call_at(self, when_s: float, call: Any) -> object:
        self.timers.append((when_s, call))
        return call

    def advance(self, seconds: float) -> None:
        end_s = self.now_s + seconds
        while due := sorted((each for each in self.timers if each[0] <= end_s), key=itemgetter(0)):
            self.timers.remove(due[0])
            self.now_s = max(self.now_s, due[0][0])
            due[0][1]()
        self.now_s = end_s


class Wire(asyncio.Transport):
    """The transport of a WebSocket, which counts frames and knows if it is read."""

    meters = Meters.__new__(Meters)
    on_full = on_drained = on_closed = lambda self: None
    cut_after = lambda self, seconds: None  # noqa: E731

    def __init__(self) -> None:
        super().__init__()
        self.meters.received_bytes = 0
        self.written, self.is_read, self.is_closed = b"", True, False

    def write(self, data: Any) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True


def masked(opcode: int, text: bytes) -> bytes:
    return bytes([0x80 | opcode, 0x80 | len(text)]) + bytes(4) + text


HANDSHAKE = (
    b"GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


def converse(play: Callable[[SocketProtocol, Wire, Loop, list[str]], Awaitable[None]]) -> None:
    """Call *play* with a connected WebSocket, and the texts that its app receives."""

    async def run() -> None:
        texts: list[str] = []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await receive()
            await send({"type": "websocket.accept"})
            while (message := await receive())["type"] == "websocket.receive":
                texts.append(message["text"])

        loop, wire = Loop(), Wire()
        config = Config(app, ws_ping_interval=None, ws_max_size=32 * 1024)
        protocol = SocketProtocol(
            config=config, server_state=ServerState(), app_state={}, _loop=loop
        )
        protocol.connection_made(wire)
        protocol.data_received(HANDSHAKE)
        await asyncio.sleep(0.01)
        await play(protocol, wire, loop, texts)
        protocol.connection_lost(None)
        await asyncio.sleep(0)

    asyncio.run(run())


@pytest.mark.parametrize("opcode", [0x89, 0x8A, 0x0], ids=["ping", "pong", "continuation"])
def test_frames_have_a_budget(opcode: int) -> None:
    """No burst of the smallest frames occupies the loop; requests are handled in time."""

    async def play(protocol: SocketProtocol, wire: Wire, loop: Loop, texts: list[str]) -> None:
        sent = (b"\x01\x80" + bytes(4)) * (opcode == 0) + bytes([opcode, 0x80, 0, 0, 0, 0]) * 2000
        protocol.data_received(sent)
        parsed = len(sent) - len(protocol._received)
        assert 0 < parsed <= 6 * (BURST_S / FRAME_S) + SLICE_BYTES
        assert not wire.is_read
        loop.advance(1)
        again = len(sent) - len(protocol._received) - parsed
        assert 0 < again <= 6 * (1 / FRAME_S) + SLICE_BYTES
        loop.advance(2000 * FRAME_S)
        assert not protocol._received
        assert wire.is_read

    converse(play)


def test_a_client_that_does_not_read_is_not_read_either() -> None:
    """Its pongs would fill the memory."""

    async def play(protocol: SocketProtocol, wire: Wire, loop: Loop, texts: list[str]) -> None:
        protocol.pause_writing()
        before = len(wire.written)
        protocol.data_received(masked(0x9, b"a" * 125) * 100)
        loop.advance(60)
        assert (len(wire.written), wire.is_read) == (before, False)
        protocol.resume_writing()
        loop.advance(60)
        assert len(wire.written) - before == 100 * 127
        assert wire.is_read

    converse(play)


def test_messages_have_a_budget_and_none_is_lost() -> None:
    """One is parsed when the app has taken the one before, in the time of the budget."""

    async def play(protocol: SocketProtocol, wire: Wire, loop: Loop, texts: list[str]) -> None:
        sent = [f"{number:03}" for number in range(100)] + ["x" * 100]
        protocol.data_received(b"".join(masked(0x1, text.encode()) for text in sent))
        for _ in range(100):
            await asyncio.sleep(0)
        first = len(texts)
        assert 0 < first <= BURST_S / MESSAGE_S + SLICE_BYTES / 9 + 1
        for _ in range(400):
            loop.advance(0.5)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert texts == sent
        assert wire.is_read

    converse(play)

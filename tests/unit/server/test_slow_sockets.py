"""Clients that read slowly, and SIGHUP."""

from __future__ import annotations

import asyncio
import os
import pty
import shutil
import signal
import ssl
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from uvicorn import Config
from uvicorn.server import ServerState
from websockets.protocol import State

from tests.certificates import write_authority
from tests.compat.oplog.wire import until
from tidings.core.websocket.connections import Outcome
from tidings.http.streams.tail_poller import SLICE
from tidings.server import processes
from tidings.server.meters import Meters
from tidings.server.running import Server
from tidings.server.socket_protocol import BURST_S, FRAME_S, MESSAGE_S, SLICE_BYTES, SocketProtocol
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


OPERATION = {"event": "insert", "type": "video", "id": "x32"}
WITHIN_S = 180.0


@pytest.fixture(autouse=True)
def _no_nohup() -> Iterator[None]:
    """Let servers that a test starts have the default SIGHUP, also if the tests have nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def hang_up(server: Server) -> None:
    os.kill(server.pid, signal.SIGHUP)


def trust(file: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=file)


def _has_logged(server: Server, text: str) -> bool:
    return text in server.errors()


def certificate(server: Server) -> str:
    """Return the certificate of a new connection."""
    return ssl.get_server_certificate(("127.0.0.1", server.port))


def test_a_renewed_certificate_is_used_without_a_restart(tmp_path: Path) -> None:
    """Open connections stay; a certificate that cannot be used changes nothing and is logged."""
    file = write_authority(tmp_path)
    options = ("--tls-cert", str(file), "--tls-key", str(file), "--verbose")
    (tmp_path / "next").mkdir()
    with Server(*options) as server, httpx.Client(verify=trust(file)) as client:
        url = f"https://127.0.0.1:{server.port}/"
        assert client.post(url, json=OPERATION).status_code == 204
        old = certificate(server)
        for wrong, cause in (("no certificate", "--tls-cert"), (old, "--tls-key")):
            file.write_text(wrong)
            hang_up(server)
            said = f"SIGHUP: the certificate did not change: {cause} {file} must have"
            until(partial(_has_logged, server, said))
            assert certificate(server) == old
        shutil.copy(write_authority(tmp_path / "next"), file)
        hang_up(server)
        until(lambda: certificate(server) != old)
        assert client.post(url, json=OPERATION).status_code == 204
        assert httpx.post(url, json=OPERATION, verify=trust(file)).status_code == 204
        assert server.stop() == 0


def test_a_changed_password_is_used_without_a_restart(tmp_path: Path) -> None:
    """Also for new feeds. A file without a password changes nothing, and one password stays."""
    reader, producer = tmp_path / "r", tmp_path / "i"
    reader.write_text("first reader\n")
    producer.write_text("the producer\n")
    options = ("--read-password-file", str(reader), "--ingest-password-file", str(producer))
    with Server(*options, "--feeds", "main,other", "--verbose") as server:

        def status(password: str, feed: str = "main") -> int:
            url = f"{server.url}feeds/{feed}/log"
            return httpx.get(url, auth=("", password)).status_code

        def accepts(password: str, feed: str) -> bool:
            return status(password, feed) == 200

        reader.write_text("")
        hang_up(server)
        until(lambda: f"--read-password-file {reader}: the password must" in server.errors())
        assert status("first reader") == 200
        reader.write_text("second reader\n")
        hang_up(server)
        for feed in ("main", "other"):
            until(partial(accepts, "second reader", feed))
            assert status("first reader", feed) == 401
        assert httpx.post(server.url, json=OPERATION, auth=("", "the producer")).status_code == 204
        hosts = httpx.get(f"{server.url}feeds", auth=("", "second reader"))
        assert hosts.status_code != 401
        assert httpx.get(f"{server.url}feeds", auth=("", "first reader")).status_code == 401
        assert "second reader" not in server.errors()


COMMANDS = {
    "serve": ["--port", "{port}", "--data", "{folder}"],
    "agent": ["--url", "http://127.0.0.1:1", "--listen", ":{port}", "--queue-dir", "{folder}"],
    "tail": ["--url", "http://127.0.0.1:{port}"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_nohup_keeps_a_command_running(tmp_path: Path, command: str) -> None:
    """SIGHUP stays ignored, in each process of the command."""
    port = processes.free_port()
    options = [each.format(port=port, folder=tmp_path) for each in COMMANDS[command]]
    out = tmp_path / "out"
    with out.open("wb") as file:
        process = subprocess.Popen(
            ["nohup", sys.executable, "-m", "tidings", command, *options],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )
        try:
            until(lambda: out.stat().st_size)
            for each in [process.pid, *_children(process.pid)]:
                os.kill(each, signal.SIGHUP)
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(1)
            process.send_signal(signal.SIGTERM)
            assert process.wait(WITHIN_S) == 0
        finally:
            process.kill()


def test_the_end_of_its_terminal_ends_a_server(tmp_path: Path) -> None:
    """Without nohup. A SIGHUP of another process does not, as the terminal is still there."""
    port = processes.free_port()
    pid, terminal = pty.fork()
    if pid == 0:
        command = ["tidings", "serve", "--port", str(port), "--data", str(tmp_path)]
        os.execv(sys.executable, [sys.executable, "-m", *command])
    try:
        until(lambda: b"Ctrl-C ends it" in os.read(terminal, 65_536))
        os.kill(pid, signal.SIGHUP)
        assert httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
        assert os.waitpid(pid, os.WNOHANG) == (0, 0)
    finally:
        os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def _children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

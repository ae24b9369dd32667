"""The sockets of a server: addresses, sockets that systemd passes, and clients that vanish."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import http.client
import itertools
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest

from tests.certificates import write_authority
from tests.compat.oplog.wire import until
from tidings.http.asgi import Message, Receive, Send, wait_for_disconnect
from tidings.server import processes
from tidings.server.http_protocol import RequestLimits
from tidings.server.http_server import serving
from tidings.server.meters import Meters

PATIENCE_S = 180.0
NET = f"10.213.{os.getpid() % 250}"
V4, V6 = (socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")
# A client that begins a stream, prints that it has, and waits.
CLIENT = """
import socket, sys, time
one = socket.create_connection((sys.argv[1], int(sys.argv[2])))
one.sendall(b"GET /" + sys.argv[3].encode() + b" HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
one.recv(1)
print(flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize(
    ("found", "listens"),
    [
        ([V4, V6], [V4, V6]),
        ([V6, V4, V4], [V6, V4]),
        ([(socket.AF_INET, "192.0.2.1"), V4], [V4]),
        ([(socket.AF_INET, "192.0.2.1")], None),
    ],
)
def test_a_name_is_listened_on_at_all_its_addresses(
    monkeypatch: pytest.MonkeyPatch, found: list[tuple[int, str]], listens: list[Any] | None
) -> None:
    """At the same port. An address that this machine does not have is skipped."""

    def several(host: str, port: int, **_: object) -> object:
        return [(family, 1, 6, "", (address, port)) for family, address in found]

    monkeypatch.setattr(socket, "getaddrinfo", several)
    if listens is None:
        with pytest.raises(processes.PortBusy, match="cannot assign"):
            processes.listen("feed.lan", 0)
        return
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(each) for each in processes.listen("feed.lan", 0)]
        assert [(each.family, each.getsockname()[0]) for each in listeners] == listens
        assert len({each.getsockname()[1] for each in listeners}) == 1
        with pytest.raises(processes.PortBusy, match="already in use"):
            processes.listen("feed.lan", listeners[0].getsockname()[1])


async def _app(scope: Message, receive: Receive, send: Send) -> None:
    gone = asyncio.ensure_future(wait_for_disconnect(receive))
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"begun", "more_body": True})
    while not gone.done():
        if scope["path"] == "/busy":
            await send({"type": "http.response.body", "body": b"more", "more_body": True})
        await asyncio.wait([gone], timeout=0.05)


@pytest.mark.parametrize("kind", ["plain", "tls", "unix"])
def test_the_kernel_looks_after_each_accepted_socket(tmp_path: Path, kind: str) -> None:
    """The listeners of all hosts get the options; clients of a Unix socket cannot vanish."""
    tls = write_authority(tmp_path) if kind == "tls" else None

    async def run() -> tuple[int, ...]:
        place, meters = tmp_path / "s", Meters()
        unix = [processes.listen_at(place)] if kind == "unix" else []
        (listener,) = unix or processes.listen("127.0.0.1", 0)
        options: dict[str, Any] = {"tls_cert": tls, "tls_key": tls, "meters": meters}
        async with serving(_app, listener, grace_s=0, **options):
            if unix:
                reader, writer = await asyncio.open_unix_connection(place)
            else:
                trust = ssl.create_default_context(cafile=tls) if tls else None
                port = listener.getsockname()[1]
                reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
            writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            await reader.readuntil(b"begun")
            connection: Any
            (connection,) = meters.connections
            accepted = connection.transport.get_extra_info("socket")
            writer.close()
            kept = accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            if unix:
                return (kept,)
            names = socket.TCP_USER_TIMEOUT, socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL
            return kept, *(accepted.getsockopt(socket.IPPROTO_TCP, each) for each in names)

    assert asyncio.run(run()) == ((0,) if kind == "unix" else (1, 20_000, 10, 2))


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture
def network() -> Iterator[str]:
    """Yield the name of a network namespace, in the network `NET`."""
    if os.geteuid() or not shutil.which("ip"):
        pytest.skip("network namespaces need root and ip")
    name = f"t{os.getpid()}"
    try:
        _ip("netns", "add", name)
    except subprocess.CalledProcessError:
        pytest.skip("this machine does not allow network namespaces")
    try:
        _ip("link", "add", name, "type", "veth", "peer", "name", "far", "netns", name)
        _ip("addr", "add", f"{NET}.1/24", "dev", name)
        _ip("-n", name, "addr", "add", f"{NET}.2/24", "dev", "far")
        _ip("link", "set", name, "up")
        _ip("-n", name, "link", "set", "far", "up")
        yield name
    finally:
        _ip("link", "del", name)
        _ip("netns", "del", name)


@pytest.mark.parametrize("path", ["idle", "busy"])
def test_a_client_whose_network_vanished_is_disconnected(network: str, path: str) -> None:
    """Its machine neither acknowledges nor resets, whether the server sends something or not."""

    async def run() -> None:
        meters = Meters()
        (listener,) = processes.listen(f"{NET}.1", 0)
        port = str(listener.getsockname()[1])
        bounds = RequestLimits(stall_s=2)
        async with serving(_app, listener, grace_s=0, bounds=bounds, meters=meters):
            client = await asyncio.create_subprocess_exec(
                *("ip", "netns", "exec", network, sys.executable, "-c", CLIENT),
                *(f"{NET}.1", port, path),
                stdout=subprocess.PIPE,
            )
            assert client.stdout is not None
            try:
                assert await client.stdout.readline() == b"\n"
                await asyncio.sleep(4)  # longer than `stall_s`, so that a living client is kept
                assert len(meters.connections) == 1
                _ip("-n", network, "addr", "flush", "dev", "far")
                async with asyncio.timeout(PATIENCE_S):
                    while meters.connections:
                        await asyncio.sleep(0.05)
            finally:
                client.kill()
                await client.wait()

    asyncio.run(run())


HIGH = 200  # the first descriptor, unless the process of the tests has more
RESTARTS = 2
CLIENTS = 4
WITHIN_S = 180.0
# Start a service like systemd: its sockets are 3 and following, and its process knows its own id.
EXEC = """
import os, sys
first, *command = sys.argv[1:]
for number in range(int(os.environ["LISTEN_FDS"])):
    os.dup2(int(first) + number, 3 + number)
os.environ.setdefault("LISTEN_PID", str(os.getpid()))
os.execv(command[0], command)
"""


def _bind(*addresses: str | Path) -> list[socket.socket]:
    listeners = []
    for address in addresses:
        if isinstance(address, Path):
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(str(address))
            listener.listen()
        else:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            listener = socket.create_server((address, 0), family=family)
        listeners.append(listener)
    return listeners


def _above() -> int:
    """Return a descriptor above all that earlier tests have left open."""
    return max(HIGH, *(int(each.name) + 1 for each in Path("/proc/self/fd").iterdir()))


class Activator:
    """Holds *listeners* for a server with *options*, as systemd does for a unit."""

    def __init__(
        self, listeners: Sequence[socket.socket], options: Sequence[str], data: Path
    ) -> None:
        first = _above()
        self._numbers = [
            fcntl.fcntl(each, fcntl.F_DUPFD, first + at) for at, each in enumerate(listeners)
        ]
        self._command = [sys.executable, "-m", "tidings.server", "--data", str(data), *options]

    def start(self, **variables: str) -> tuple[subprocess.Popen[str], str]:
        """Start the server; return its process, and the first line that it prints."""
        process = subprocess.Popen(
            [sys.executable, "-c", EXEC, str(self._numbers[0]), *self._command],
            env={**os.environ, "LISTEN_FDS": str(len(self._numbers)), **variables},
            pass_fds=self._numbers,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        return process, process.stdout.readline()

    def close(self) -> None:
        for number in self._numbers:
            os.close(number)


@contextlib.contextmanager
def _activator(
    listeners: Sequence[socket.socket], options: Sequence[str], data: Path
) -> Iterator[Activator]:
    activator = Activator(listeners, options, data)
    with contextlib.ExitStack() as stack:
        stack.callback(activator.close)
        for each in listeners:
            stack.enter_context(each)
        yield activator


def _end(process: subprocess.Popen[str]) -> str:
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=WITHIN_S)
    return errors


def _post(connect: Callable[[], socket.socket], number: int) -> int:
    """Return the status of one post on a connection of its own, which no library repeats."""
    body = json.dumps({"event": "insert", "type": "video", "id": f"x{number}"}).encode()
    with connect() as connection:
        connection.settimeout(WITHIN_S)
        head = f"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        connection.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode())
        connection.sendall(body)  # the restart may be between the two
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        return answer.status


def _connects(
    listener: socket.socket, context: ssl.SSLContext | None
) -> Callable[[], socket.socket]:
    family, address = listener.family, listener.getsockname()

    def connect() -> socket.socket:
        connection = socket.socket(family)
        connection.connect(address)
        return (
            context.wrap_socket(connection, server_hostname="localhost") if context else connection
        )

    return connect


class Posts:
    """Posts from `CLIENTS` threads until the block ends; *statuses* are those of the answers."""

    def __init__(self, connects: Sequence[Callable[[], socket.socket]]) -> None:
        self.statuses: list[int | Exception] = []
        self._numbers, self._ends = itertools.count(), threading.Event()
        self._threads = [
            threading.Thread(target=self._post, args=[connects[number % len(connects)]])
            for number in range(CLIENTS)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join()

    def have(self, count: int) -> bool:
        return len(self.statuses) >= count

    def _post(self, connect: Callable[[], socket.socket]) -> None:
        while not self._ends.is_set():
            try:
                self.statuses.append(_post(connect, next(self._numbers)))
            except (OSError, http.client.HTTPException) as error:
                self.statuses.append(error)


@pytest.mark.parametrize("kind", ["plain", "tls", "unix"])
def test_no_connection_is_lost_while_a_server_restarts(tmp_path: Path, kind: str) -> None:
    """Each post to each socket is answered with 204, without a repetition."""
    options, context = ["--setting", "TIDINGS_OPEN=true"], None
    if kind == "tls":
        authority = write_authority(tmp_path)
        options += ["--tls-cert", str(authority), "--tls-key", str(authority)]
        context = ssl.create_default_context(cafile=authority)
    listeners = _bind(
        *{"plain": ("127.0.0.1", "::1"), "tls": ("127.0.0.1",), "unix": (tmp_path / "s",)}[kind]
    )
    with contextlib.ExitStack() as stack:
        activator = stack.enter_context(_activator(listeners, options, tmp_path / "data"))
        process, _ = activator.start()
        stack.callback(lambda: _end(process))
        posts = stack.enter_context(Posts([_connects(each, context) for each in listeners]))
        for _ in range(RESTARTS):
            wanted = len(posts.statuses) + 20
            until(partial(posts.have, wanted))
            _end(process)
            process, line = activator.start()
            assert line.startswith("tidings serve ready "), process.communicate()
    assert {*posts.statuses} == {204}


async def _answer_app(_scope: Message, _receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


@pytest.mark.parametrize("is_tls", [False, True])
def test_a_request_that_arrives_while_a_server_stops_is_answered(
    tmp_path: Path, is_tls: bool
) -> None:
    """On a connection that it has accepted; one that waits for a later request is closed."""
    authority = write_authority(tmp_path) if is_tls else None
    context = ssl.create_default_context(cafile=authority) if is_tls else None
    name = "localhost" if is_tls else None
    head = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"

    async def answer(reader: asyncio.StreamReader) -> bytes:
        return (await reader.readuntil(b"\r\n\r\n")).lower()

    async def run() -> None:
        meters, stack = Meters(), contextlib.AsyncExitStack()
        (listener,) = _bind("127.0.0.1")
        place = listener.getsockname()
        async with asyncio.timeout(WITHIN_S):
            await stack.enter_async_context(
                serving(
                    _answer_app,
                    listener,
                    grace_s=WITHIN_S,
                    meters=meters,
                    tls_cert=authority,
                    tls_key=authority,
                )
            )
            kept, half = [
                await asyncio.open_connection(*place, ssl=context, server_hostname=name)
                for _ in range(2)
            ]
            fresh = await asyncio.open_connection(*place)
            kept[1].write(head)
            assert b"connection: close" not in await answer(kept[0])
            half[1].write(head[:9])
            while len(meters.connections) < 3:
                await asyncio.sleep(0)
            ending = asyncio.ensure_future(stack.aclose())
            assert await kept[0].read() == b""
            if context is not None:
                await fresh[1].start_tls(context, server_hostname=name)
            for (reader, writer), rest in ((half, head[9:]), (fresh, head)):
                writer.write(rest)
                assert b" 204 " in (found := await answer(reader)), found
                assert b"connection: close" in found
            await ending

    asyncio.run(run())


@pytest.mark.parametrize(
    ("variables", "sockets", "said"),
    [
        ({"LISTEN_FDS": "two"}, "t", "LISTEN_FDS=two: must be a number"),
        ({"LISTEN_FDS": "-1"}, "t", "LISTEN_FDS=-1: must be a number"),
        ({"LISTEN_FDS": "1", "LISTEN_PID": "1 "}, "t", "LISTEN_PID=1 : must be a number"),
        ({"LISTEN_FDS": "2"}, "t", "descriptor {second} must be a listening"),  # not open
        ({"LISTEN_FDS": "1"}, "f", "descriptor {first} must be a listening"),
        ({"LISTEN_FDS": "1"}, "d", "descriptor {first} must be a listening"),
        ({"LISTEN_FDS": "2"}, "tc", "descriptor {second} must be a listening"),
        ({"LISTEN_FDS": "2"}, "tu", "must be TCP, or all Unix sockets"),
        ({"LISTEN_FDS": "1", "LISTEN_PID": "1"}, "t", None),  # those of another process
        ({"LISTEN_FDS": "0"}, "t", None),
        ({"LISTEN_FDS": ""}, "t", None),
        ({}, "t", None),
    ],
)
def test_variables_of_systemd(
    tmp_path: Path, variables: Mapping[str, str], sockets: str, said: str | None
) -> None:
    """A value that systemd does not set is refused, with its variable, and its rule."""
    first = _above()  # a refusal closes the descriptors
    with contextlib.ExitStack() as stack:
        for at, kind in enumerate(sockets):
            kinds: Mapping[str, Callable[[], Any]] = {
                "t": lambda: _bind("127.0.0.1")[0],
                "u": lambda: _bind(tmp_path / "s")[0],
                "d": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
                "c": socket.socket,  # it does not listen
                "f": lambda: (tmp_path / "file").open("w"),
            }
            with kinds[kind]() as opened:
                stack.callback(_close, fcntl.fcntl(opened, fcntl.F_DUPFD, first + at))
        given = {"LISTEN_PID": str(os.getpid()), **variables}
        if said is None:
            assert processes.inherited(given, first) == []
        else:
            rule = said.format(first=first, second=first + 1)
            with pytest.raises(processes.Problem, match=rule):
                processes.inherited(given, first)


def _close(number: int) -> None:
    with contextlib.suppress(OSError):
        os.close(number)


def test_a_feed_is_open_only_on_sockets_of_the_loopback_interface(tmp_path: Path) -> None:
    """Sockets decide it, and not the default of --host; each of them has to be private."""
    for places, status in ((("127.0.0.1", "0.0.0.0"), 401), (("127.0.0.1",), 204)):
        listeners = _bind(*places)
        with _activator(listeners, (), tmp_path / "data") as activator:
            process, line = activator.start()
            try:
                assert _post(_connects(listeners[0], None), 0) == status, line
            finally:
                _end(process)

"""The sockets of a server: the addresses that it listens on, and clients that vanish."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import write_authority
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

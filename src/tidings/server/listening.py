"""Open ports: listen on one, find a free one, wait until one accepts connections."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from pathlib import Path

from tidings.server.problems import PortBusy, Problem

BACKLOG = 1024  # clients that reconnect at once after a restart
SOCKET_MODE = 0o666  # of a Unix socket: connecting is writing, and a proxy is another user
PORTS = (20_000, 32_000)  # below Linux's range for outgoing connections, which begins at 32,768
CONNECT_EVERY_S = 0.02  # the engine boots in about a second; polling more often only costs CPU


def listen(host: str, port: int) -> socket.socket:
    """
    Listen on *port* of *host* (0: any free one) before anything slow is started.

    Raises:
        PortBusy: another process uses the port, or *host* is not an address of this machine.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        # State the protocol explicitly: asyncio disables Nagle's algorithm (40 ms per answer) only
        # for sockets marked as TCP.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        raise PortBusy(host, port, (error.strerror or str(error)).lower()) from None
    return listener


def listen_at(path: Path) -> socket.socket:
    """
    Listen on the Unix socket *path*; replace one that a killed process left.

    The permissions of its folder control access: a proxy usually runs as another user.

    Raises:
        Problem: a process listens there, or the folder is not writable.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
            probe.connect(str(path))
            raise Problem(f"somebody listens at {path}; choose another --unix-socket")
        if path.is_socket():
            path.unlink()
        listener.bind(str(path))
        path.chmod(SOCKET_MODE)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise Problem(
            f"cannot listen at {path} ({(error.strerror or str(error)).lower()})"
        ) from None
    return listener


def free_port() -> int:
    """
    Return a port of the loopback interface that is free now.

    The kernel does not use it for outgoing connections, so that a host can listen on it again.
    """
    while True:
        port = random.randrange(*PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


async def wait_until_open(place: int | Path, timeout_s: float) -> None:
    """
    Return once *place*, a loopback port or a socket's path, accepts connections.

    Raises:
        TimeoutError: no connection was accepted within *timeout_s*.
    """
    async with asyncio.timeout(timeout_s):
        while not await _accepts(place):
            await asyncio.sleep(CONNECT_EVERY_S)


async def _accepts(place: int | Path) -> bool:
    with contextlib.suppress(OSError):
        if isinstance(place, int):
            _, writer = await asyncio.open_connection("127.0.0.1", place)
        else:
            _, writer = await asyncio.open_unix_connection(place)
        writer.close()
        return True
    return False

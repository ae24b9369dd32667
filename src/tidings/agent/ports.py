"""
Bind one port number for HTTP (TCP) and datagrams (UDP), before anything slow is started, and read
how many datagrams the kernel dropped.
"""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

from .options import Problem

# The kernel buffers a burst here while the receiver writes. It accounts about 64 MB a second for
# 50,000 small datagrams a second.
RECEIVE_BUFFER_BYTES = 32 * 1024 * 1024
_SO_RCVBUFFORCE = 33  # Linux; exceeds net.core.rmem_max, if permitted
_UDP_TABLES = (Path("/proc/net/udp"), Path("/proc/net/udp6"))
_INODE, _DROPS = 9, 12  # columns of these tables
_FREE_PORT_ATTEMPTS = 10  # a port that is free for TCP is nearly always free for UDP


def take(host: str, port: int) -> tuple[socket.socket, socket.socket]:
    """
    Return a TCP listener and a UDP socket on *port* of *host* (0: any free port).

    Raises:
        Problem: the port is in use, or *host* is not a local address.
    """
    attempts = 1 if port else _FREE_PORT_ATTEMPTS
    for attempt in range(1, attempts + 1):
        try:
            return _both(host, port)
        except OSError as error:
            if attempt == attempts:
                reason = (error.strerror or str(error)).lower()
                raise Problem(f"cannot listen on {host}:{port}: {reason}") from None
    raise AssertionError


def _both(host: str, port: int) -> tuple[socket.socket, socket.socket]:
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    # With an explicit IPPROTO_TCP: asyncio disables Nagle (40 ms per answer) only then.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    datagrams = socket.socket(family, socket.SOCK_DGRAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        datagrams.bind((host, listener.getsockname()[1]))
        listener.listen(1024)
    except OSError:
        listener.close()
        datagrams.close()
        raise
    _enlarge(datagrams)
    return listener, datagrams


def _enlarge(datagrams: socket.socket) -> None:
    for option in (socket.SO_RCVBUF, _SO_RCVBUFFORCE):
        with contextlib.suppress(OSError):
            datagrams.setsockopt(socket.SOL_SOCKET, option, RECEIVE_BUFFER_BYTES)


def drops(inode: int, tables: tuple[Path, ...] = _UDP_TABLES) -> int | None:
    """Return the number of datagrams dropped because the buffer was full; None if unknown."""
    for table in tables:
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue
        for columns in map(str.split, lines):
            if len(columns) > _DROPS and columns[_INODE] == str(inode):
                return int(columns[_DROPS])
    return None

"""The receiving process, which puts unchecked datagrams into the queue, and the agent's ports.

Datagrams are received in a separate process, because each receive call releases the GIL. With a
busy thread in the same process, the GIL would be reacquired only after 5 ms, and four of five
datagrams would be lost (docs/adr/0012).

    python -m tidings.agent.receiver SOCKET FOLDER EVENTS_MAX BYTES_MAX

When its standard input is closed, the process writes the last datagrams to the queue and exits, so
it never outlives the agent. A byte on its standard output signals that the queue has grown.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from io import TextIOWrapper
from pathlib import Path

from tidings.agent import intake
from tidings.agent.queue import Bound, Problem, Store, now_ms

# The size of the kernel's buffer, which holds a burst while the receiver writes. With the kernel's
# overhead, 50,000 small datagrams a second take about 64 MB of buffer a second.
RECEIVE_BUFFER_BYTES = 32 * 1024 * 1024
_SO_RCVBUFFORCE = 33  # Linux: like SO_RCVBUF, but above net.core.rmem_max if permitted
_UDP_TABLES = (Path("/proc/net/udp"), Path("/proc/net/udp6"))
_INODE, _DROPS = 9, 12  # columns of these tables
_FREE_PORT_ATTEMPTS = 10  # a port that is free for TCP is nearly always free for UDP
DATAGRAM_BYTES_MAX = 65_535  # the longest UDP datagram, so that no datagram is truncated
BURST = 256  # datagrams received between two reads of the clock
CHUNK_MAX = 1_000  # maximum datagrams per transaction; a request has at most as many operations
# The maximum size of a chunk of large datagrams; the checker holds several chunks in memory.
CHUNK_BYTES_MAX = 1024 * 1024
FLUSH_S = 0.01  # the time between two writes under load; a single datagram is written at once
# The limits of pending datagrams while the disk is unavailable, in bytes and in number, because
# a small datagram takes more memory than its length. Further datagrams are discarded.
PENDING_BYTES_MAX = 32 * 1024 * 1024
PENDING_MAX = 100_000
STOP_S = 5.0  # the process is killed after this time; its last writes take about a second


def bind_ports(host: str, port: int) -> tuple[socket.socket, socket.socket]:
    """Return a TCP listener and a UDP socket on *port* of *host* (0: any free port).

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
    # asyncio disables Nagle's algorithm, which delays answers by 40 ms, only for sockets with an
    # explicit IPPROTO_TCP.
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
    for option in (socket.SO_RCVBUF, _SO_RCVBUFFORCE):
        with contextlib.suppress(OSError):
            datagrams.setsockopt(socket.SOL_SOCKET, option, RECEIVE_BUFFER_BYTES)
    return listener, datagrams


def kernel_drops(inode: int, tables: tuple[Path, ...] = _UDP_TABLES) -> int | None:
    """Return how many datagrams the kernel dropped because its buffer was full; None if unknown."""
    for table in tables:
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue
        for columns in map(str.split, lines):
            if len(columns) > _DROPS and columns[_INODE] == str(inode):
                return int(columns[_DROPS])
    return None


class Receiver:
    """The receive loop; *grown* is called when the queue has grown."""

    def __init__(
        self, sock: socket.socket, store: Store, bound: Bound, grown: Callable[[], None]
    ) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._store = store
        self._bound = bound
        self._grown = grown
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._discarded = 0
        self._tried_s = 0.0
        self._stuck = False  # True if the last write of a chunk failed

    def run(self, lifeline: int) -> None:
        """Receive until the agent ends, when the file descriptor *lifeline* becomes readable."""
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        poll.register(lifeline, select.POLLIN)
        while True:
            ready = poll.poll(self._wait_ms())
            self._receive()
            if any(descriptor == lifeline for descriptor, _ in ready):
                return self._finish()
            if self._wait_ms() == 0:
                self._flush()

    def _wait_ms(self) -> int | None:
        """Return the milliseconds until the next write; None if nothing is pending."""
        if not self._pending and not self._discarded:
            return None
        full = len(self._pending) >= CHUNK_MAX or self._pending_bytes >= CHUNK_BYTES_MAX
        if full and not self._stuck:
            return 0
        due_s = self._tried_s + FLUSH_S - time.monotonic()
        return max(0, -int(-due_s * 1000))

    def _receive(self) -> None:
        receive, before = self._sock.recv, len(self._pending)
        with contextlib.suppress(BlockingIOError):
            for _ in range(BURST):
                self._pending.append(receive(DATAGRAM_BYTES_MAX))
        self._pending_bytes += sum(map(len, self._pending[before:]))
        if self._pending_bytes > PENDING_BYTES_MAX or len(self._pending) > PENDING_MAX:
            self._discarded += len(self._pending) - before
            self._pending_bytes -= sum(map(len, self._pending[before:]))
            del self._pending[before:]

    def _flush(self) -> None:
        """Write one chunk. If the disk is full or busy, the chunk stays pending."""
        self._tried_s = time.monotonic()
        chunk, size = self._chunk()
        self._stuck = True
        try:
            intake.add_datagrams(
                self._store, chunk, now_ms=now_ms(), bound=self._bound, discarded=self._discarded
            )
        except sqlite3.Error:
            return
        self._stuck = False
        self._discarded = 0
        self._pending_bytes -= size
        del self._pending[: len(chunk)]
        self._grown()

    def _chunk(self) -> tuple[list[bytes], int]:
        """Return the oldest datagrams and their total size."""
        size = 0
        for at, datagram in enumerate(self._pending[:CHUNK_MAX]):
            if at and size + len(datagram) > CHUNK_BYTES_MAX:
                return self._pending[:at], size
            size += len(datagram)
        return self._pending[:CHUNK_MAX], size

    def _finish(self) -> None:
        """Receive the rest of the kernel's buffer, and write all datagrams; retry for a second."""
        before = -1
        while before != len(self._pending):
            before = len(self._pending)
            self._receive()
        self._sock.close()
        deadline_s = time.monotonic() + 1.0
        while (self._pending or self._discarded) and time.monotonic() < deadline_s:
            self._flush()
            if self._stuck:
                time.sleep(FLUSH_S)


class Receiving:
    """A handle that starts and ends the receiving process.

    The process inherits *lock*, so that the folder stays locked until the process has ended.
    """

    def __init__(
        self, sock: socket.socket, folder: Path, bound: Bound, lock: TextIOWrapper
    ) -> None:
        module = [sys.executable, "-m", "tidings.agent.receiver"]
        self._process = subprocess.Popen(
            [*module, str(sock.fileno()), str(folder), str(bound.events), str(bound.bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[sock.fileno(), lock.fileno()],
            env={"PYTHONPATH": ":".join(filter(None, sys.path))},  # without the agent's secrets
            bufsize=0,
        )

    @property
    def wake_pipe(self) -> int:
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def end(self) -> None:
        """Make the process write its datagrams and exit; kill it if this takes too long."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_S)
            return
        self._process.kill()


def main(arguments: list[str]) -> None:
    """Receive until standard input is closed; ignore signals, because the agent handles them."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    descriptor, folder, events, size = arguments
    sock = socket.socket(fileno=int(descriptor))
    store = Store(Path(folder), wait_s=0, cuts=False)
    wake_pipe = sys.stdout.fileno()
    os.set_blocking(wake_pipe, False)

    def grown() -> None:
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(wake_pipe, b"!")

    Receiver(sock, store, Bound(int(events), int(size)), grown).run(sys.stdin.fileno())
    store.close()


if __name__ == "__main__":
    main(sys.argv[1:])

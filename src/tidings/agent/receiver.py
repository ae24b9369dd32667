"""
The receiving process: datagrams into the queue, unread, and nothing else.

Receiving gives up the interpreter's lock with each call; beside a thread that computes it would
get it back after 5 ms and lose four datagrams of five (docs/adr/0012). Hence a process.

    python -m tidings.agent.receiver SOCKET FOLDER EVENTS_MAX BYTES_MAX

It ends, with everything it has in the queue, when its standard input does: so it never
outlives the agent. A byte on its standard output says that the queue has grown.
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

from . import clock, intake
from .options import Bound
from .store import Store

DATAGRAM_BYTES_MAX = 65_535  # a UDP datagram is never longer, so none is cut
BURST = 256  # received between two looks at the clock
CHUNK_MAX = 1_000  # datagrams of a transaction: a request's worth
CHUNK_BYTES_MAX = 1024 * 1024  # of large ones: who checks them has some chunks in memory
FLUSH_S = 0.01  # a tenth of what is promised; a lone datagram does not wait at all
PENDING_BYTES_MAX = 32 * 1024 * 1024  # in memory while the disk takes nothing, then discarded
STOP_S = 5.0  # it flushes within one; after this it is killed
PENDING_MAX = 100_000  # as PENDING_BYTES_MAX, for small ones, which cost more than their bytes


class Receiver:
    """*grown* is called when there is more in the queue."""

    def __init__(
        self,
        sock: socket.socket,
        store: Store,
        bound: Bound,
        grown: Callable[[], None],
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
        self._stuck = False  # the disk did not take the last chunk

    def run(self, lifeline: int) -> None:
        """Receive until *lifeline* can be read, which is when the agent ends."""
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
        """Until the next flush is due; None while there is nothing to flush."""
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
            self._discard(before)

    def _discard(self, before: int) -> None:
        self._discarded += len(self._pending) - before
        self._pending_bytes -= sum(map(len, self._pending[before:]))
        del self._pending[before:]

    def _flush(self) -> None:
        """One chunk, or later: while the disk is full or busy the socket must not wait."""
        self._tried_s = time.monotonic()
        chunk, size = self._chunk()
        self._stuck = True
        try:
            intake.add_datagrams(
                self._store,
                chunk,
                now_ms=clock.now_ms(),
                bound=self._bound,
                discarded=self._discarded,
            )
        except sqlite3.OperationalError:
            return
        self._stuck = False
        self._discarded = 0
        self._pending_bytes -= size
        del self._pending[: len(chunk)]
        self._grown()

    def _chunk(self) -> tuple[list[bytes], int]:
        """The oldest datagrams and their bytes."""
        size = 0
        for at, datagram in enumerate(self._pending[:CHUNK_MAX]):
            if at and size + len(datagram) > CHUNK_BYTES_MAX:
                return self._pending[:at], size
            size += len(datagram)
        return self._pending[:CHUNK_MAX], size

    def _finish(self) -> None:
        """Everything received, the kernel's buffer included; the disk gets some patience."""
        self._receive_all()
        self._sock.close()
        deadline_s = time.monotonic() + 1.0
        while (self._pending or self._discarded) and time.monotonic() < deadline_s:
            self._flush()
            if self._stuck:
                time.sleep(FLUSH_S)

    def _receive_all(self) -> None:
        before = -1
        while before != len(self._pending):
            before = len(self._pending)
            self._receive()


class Receiving:
    """
    The process, as the agent sees it, started at once.

    *lock* is handed on, so that the folder is ours until the process has ended.
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
            env={"PYTHONPATH": ":".join(filter(None, sys.path))},  # no secret of ours goes along
            bufsize=0,
        )

    @property
    def bell(self) -> int:
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def end(self) -> None:
        """Let it put what it has into the queue; then its bell is closed."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_S)
            return
        self._process.kill()


def main(arguments: list[str]) -> None:
    """A signal to the whole group is the agent's; it ends this process by its lifeline."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    descriptor, folder, events, size = arguments
    sock = socket.socket(fileno=int(descriptor))
    store = Store(Path(folder), wait_s=0, cuts=False)
    bell = sys.stdout.fileno()
    os.set_blocking(bell, False)

    def grown() -> None:
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(bell, b"!")

    Receiver(sock, store, Bound(int(events), int(size)), grown).run(sys.stdin.fileno())
    store.close()


if __name__ == "__main__":
    main(sys.argv[1:])

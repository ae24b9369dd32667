"""The receiver's process, as the agent sees it."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from io import TextIOWrapper
from pathlib import Path

from .options import Bound

STOP_S = 5.0  # it flushes within one; after this it is killed


class Receiving:
    """Started at once; *lock* is handed on, so that the folder is ours until it has ended."""

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

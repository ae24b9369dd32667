"""Write stdout and stderr in a thread, so that a full pipe or a full disk blocks no caller."""

from __future__ import annotations

import atexit
import io
import logging
import os
import select
import sys
import threading
from collections import deque
from typing import Any

QUEUED_BYTES_MAX = 1024 * 1024  # some 5,000 lines, for a reader that pauses; more are dropped
DRAIN_S = 1.0  # time at the end of the process to write what is queued
PATIENCE_S = 0.1  # time in which a working terminal, pipe or disk accepts a line

log = logging.getLogger(__name__)


class Unblocked(io.RawIOBase):
    """The output *name*, "stdout" or "stderr", of this process with the file descriptor *fd*.

    A thread writes to *fd*. Output beyond `QUEUED_BYTES_MAX`, and output that cannot be written, is
    dropped; a line of the log reports how many lines, once *fd* accepts output again. If *waits*,
    `write` waits for the thread, so that the order of stdout and stderr is kept. It waits at most
    `PATIENCE_S`, and then not again until *fd* accepts output.
    """

    def __init__(self, name: str, fd: int, *, waits: bool) -> None:
        self._name, self._fd, self._is_stuck = name, fd, False
        self.waits = waits
        self._queue: deque[bytes] = deque()  # the first element is being written
        self._queued_bytes = self._dropped_lines = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def isatty(self) -> bool:
        return os.isatty(self._fd)

    def write(self, data: Any, /) -> int:
        """Queue *data*, or drop it if too much is queued."""
        content = bytes(data)
        with self._changed:
            if self._queued_bytes + len(content) > QUEUED_BYTES_MAX:
                self._dropped_lines += content.count(b"\n")
                return len(content)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="output", daemon=True)
                self._thread.start()
                atexit.register(self.drain)
            self._queue.append(content)
            self._queued_bytes += len(content)
            self._changed.notify_all()
        if self.waits and not self._is_stuck and threading.current_thread() != self._thread:
            self._is_stuck = not self.drain(PATIENCE_S)
        return len(content)

    def drain(self, seconds: float = DRAIN_S) -> bool:
        """Wait until everything is written; return False if this takes longer than *seconds*."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._queue, seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue)
                content = self._queue[0]
            is_written = self._write(content)
            with self._changed:
                self._queue.popleft()
                self._queued_bytes -= len(content)
                self._is_stuck, dropped = False, 0
                if not is_written:
                    self._dropped_lines += content.count(b"\n")
                elif not self._queue:
                    dropped, self._dropped_lines = self._dropped_lines, 0
                self._changed.notify_all()
            if dropped:
                fields = {"lines": dropped, "output": self._name}
                log.warning("%(lines)d lines were dropped: %(output)s did not accept them", fields)

    def _write(self, content: bytes) -> bool:
        rest = memoryview(content)
        while rest:
            try:
                rest = rest[os.write(self._fd, rest) :]
            except BlockingIOError:  # another process has made the pipe non-blocking
                select.select([], [self._fd], [])
            except OSError:  # such as a closed pipe or a full disk
                return False
        return True


def unblock(*names: str, waits: bool) -> None:
    """Let *names*, "stdout" and "stderr", never block; see `Unblocked`."""
    for name in names:
        stream = getattr(sys, name)
        earlier = getattr(stream, "buffer", None)
        if isinstance(earlier, Unblocked):
            earlier.waits = waits
            continue
        try:
            output: Any = Unblocked(name, stream.fileno(), waits=waits)
        except (AttributeError, OSError):  # closed, or replaced by a test
            continue
        stream.flush()
        options = {"encoding": stream.encoding, "errors": "backslashreplace"}
        setattr(sys, name, io.TextIOWrapper(output, **options, write_through=True))


def drain() -> None:
    """Write the queued output, before `os._exit` ends the process."""
    for stream in (sys.stdout, sys.stderr):
        output = getattr(stream, "buffer", None)
        if isinstance(output, Unblocked):
            output.drain()

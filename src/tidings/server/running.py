"""A host in a subprocess, for tests and benchmarks."""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tidings.server import processes

# Timeout of a start. A host is ready in 2 s on an idle machine, but a first start may download 48
# MB.
READY_S = 60.0
STOP_S = 10.0  # a host that has not stopped after this time is killed; it should stop within 5 s


class NotReady(Exception):
    """The host ended or did not get ready; the message is its error output."""


class Server:
    """A server on a free port, running from `__enter__` until `__exit__`.

    Several servers can run concurrently. *arguments* are passed to `tidings serve`; the attribute
    may be changed before `start`. Without *data*, the server has a temporary folder, which
    `__exit__` deletes. After `kill` or `stop`, `start` runs the server again on the same port, so
    that clients find it.
    """

    command = "serve"
    module = "tidings.server"

    def __init__(self, *arguments: str, data: Path | None = None) -> None:
        self.arguments: Sequence[str] = arguments
        self._data = data
        self._process: subprocess.Popen[str] | None = None
        self._errors = tempfile.NamedTemporaryFile("w+")  # noqa: SIM115 lives as long as the server
        self._folder = tempfile.TemporaryDirectory(prefix="tidings-")
        self.port = processes.free_port()
        self.url = f"http://127.0.0.1:{self.port}/"
        self.ws_url = f"ws://127.0.0.1:{self.port}/ws"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_started(self) -> bool:
        """Return True if this object has started the server and not stopped it."""
        return self._process is not None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        self._errors.close()
        self._folder.cleanup()

    def start(self) -> None:
        """Start the server and return when it is ready.

        Raises:
            NotReady: the server ended, or was not ready within `READY_S`.
        """
        self._process = subprocess.Popen(
            [sys.executable, "-m", self.module, *self.options()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        line = self._first_line(self._process)
        if not line.startswith(f"tidings {self.command} ready "):
            self.kill()
            self._errors.seek(0)
            raise NotReady(self._errors.read().strip() or "no output")

    def kill(self) -> None:
        """Kill the server, which then cannot clean up, as in a crash."""
        self._end(signal.SIGKILL)

    def stop(self) -> int | None:
        """Stop the server and return its exit code; return None if it was not running."""
        return self._end(signal.SIGTERM)

    def wait(self) -> int | None:
        """Wait for the server to end and return its exit code; kill the server after `STOP_S`."""
        return self._end(None)

    @property
    def data(self) -> Path:
        """Return the data folder."""
        return self._data or Path(self._folder.name) / "data"

    @property
    def locator(self) -> list[str]:
        """Return the options with which operators' commands find the server."""
        return ["--data", str(self.data)]

    def options(self) -> list[str]:
        """Return the command line arguments."""
        return [*self.arguments, "--port", str(self.port), "--data", str(self.data)]

    def errors(self) -> str:
        """Return what the server has written to stderr."""
        return Path(self._errors.name).read_text()

    def _end(self, number: signal.Signals | None) -> int | None:
        process, self._process = self._process, None
        if process is None:
            return None
        if number is not None:
            process.send_signal(number)
        try:
            code = process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        if process.stdout is not None:
            process.stdout.close()
        return code

    def _first_line(self, process: subprocess.Popen[str]) -> str:
        lines: queue.Queue[str] = queue.Queue()
        assert process.stdout is not None
        reader = threading.Thread(
            target=lambda out: lines.put(out.readline()), args=[process.stdout]
        )
        reader.daemon = True
        reader.start()
        try:
            return lines.get(timeout=READY_S)
        except queue.Empty:
            return ""

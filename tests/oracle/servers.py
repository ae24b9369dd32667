"""Servers as an operator runs them: by the command `tidings serve`, signals and files."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx

READY_S = 120.0  # about 2 s on an idle machine
TIDINGS = str(Path(sys.executable).with_name("tidings"))
_CLOCK = Path(__file__).parent / "clock"  # its sitecustomize.py moves the wall clock
_DISK_BYTES = 256 * 1024 * 1024  # a disk that can be filled within a second


class Failed(Exception):
    """A command of an operator failed; the message is its output."""


class Machine:
    """A server, its folder and its clock.

    *can_fill* is True if its disk is small enough to be filled (a tmpfs, which needs root).
    """

    def __init__(self, folder: Path, *arguments: str) -> None:
        folder.mkdir()
        self.folder, self._arguments = folder, arguments
        self.disk = folder / "disk"
        self.disk.mkdir()
        self.data = self.disk / "data"
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.can_fill = _mounts(self.disk)
        self._clock = folder / "clock"
        self._step_s = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()  # one fault at a time
        self._output = (folder / "output").open("ab")
        self.step(0.0)

    def start(self) -> None:
        """Start it and return when it answers."""
        environment = dict(os.environ)
        environment |= {"PYTHONPATH": str(_CLOCK), "ORACLE_CLOCK": str(self._clock)}
        command = [TIDINGS, "serve", "--port", str(self.port), "--data", str(self.data)]
        self._process = subprocess.Popen(
            [*command, *self._arguments], env=environment, stdout=self._output, stderr=self._output
        )
        deadline = time.monotonic() + READY_S
        while not self.answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise Failed(f"the server did not start:\n{self.output()}")
            time.sleep(0.1)

    def answers(self) -> bool:
        """Return True if it runs; its health may be 503 because its disk is full."""
        with contextlib.suppress(httpx.HTTPError):
            httpx.get(f"{self.url}/health", timeout=5, verify=False)
            return True
        return False

    def send(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def end(self, number: int = signal.SIGTERM) -> None:
        """End it, and return once the process is gone."""
        assert self._process is not None
        self.send(signal.SIGCONT)
        self.send(number)
        self._process.wait(timeout=READY_S)

    def step(self, seconds: float) -> None:
        """Move the wall clock; the monotonic clock stays."""
        self._step_s += seconds
        written = self._clock.with_suffix(".new")
        written.write_text(f"{self._step_s:.0f}")
        written.rename(self._clock)

    @contextlib.contextmanager
    def full(self) -> Iterator[None]:
        """Leave no byte on its disk."""
        ballast = self.disk / "ballast"
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while file.write(b"\0" * 65536):
                pass
        try:
            yield
        finally:
            ballast.unlink()

    def backup(self, target: Path) -> None:
        self._run("backup", str(target), "--data", str(self.data))

    def verify(self) -> str:
        """Return what `tidings verify` says of a stopped server, "" if all is well."""
        try:
            self._run("verify", "--data", str(self.data))
        except Failed as failed:
            return str(failed)
        return ""

    def restore(self, backup: Path, ended: Callable[[], None]) -> None:
        """Serve *backup* in place of the present data, as docs/guides/SERVER.md says.

        *ended* is called while no server runs.
        """
        self.end(signal.SIGKILL)
        ended()
        shutil.rmtree(self.data)
        self.data.mkdir(mode=0o700)
        shutil.copy(backup, self.data / "feed.db")
        (self.data / "feed.db").chmod(0o600)
        self.start()

    def output(self) -> str:
        return (self.folder / "output").read_text()[-4000:]

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.end(signal.SIGKILL)
        self._output.close()
        if self.can_fill:
            subprocess.run(["umount", str(self.disk)], check=True)

    def _run(self, *arguments: str) -> None:
        done = subprocess.run(
            [TIDINGS, *arguments], capture_output=True, text=True, timeout=READY_S
        )
        if done.returncode:
            raise Failed(f"tidings {arguments[0]}: {done.stdout}{done.stderr}")


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


def _mounts(folder: Path) -> bool:
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_DISK_BYTES}", "tmpfs", str(folder)]
    return subprocess.run(mount, capture_output=True).returncode == 0

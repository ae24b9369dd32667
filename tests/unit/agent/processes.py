"""An agent as a process: its input, its output, and its end."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

from tests.unit.client.command import TIDINGS

WITHIN_S = 180.0


class Agent:
    """`with Agent(url, folder) as agent`; it can be killed and started again."""

    def __init__(self, url: str, folder: Path, *options: str, env: Any = None) -> None:
        self._command = [*TIDINGS, "agent", "--url", url, "--queue-dir", str(folder / "queue")]
        self._command += ["--listen", "127.0.0.1:0", *options]
        self._env = env
        self.folder = folder
        self._errors = (folder / "stderr").open("w+")
        self._datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.http = httpx.Client(timeout=WITHIN_S)

    def __enter__(self) -> Agent:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait()
        self._datagrams.close()
        self._errors.close()
        self.http.close()

    def start(self) -> str:
        """Return the line with which it says that it serves."""
        self.process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=self._errors, text=True, env=self._env
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("tidings agent ready "), self.errors
        host, _, port = line.split()[3].rstrip(",").rpartition(":")
        self._datagrams.connect((host, int(port)))
        self.url = f"http://{host}:{port}"
        return line

    @property
    def errors(self) -> str:
        self._errors.flush()
        return Path(self._errors.name).read_text()

    def kill(self) -> None:
        """Kill the agent as a crash would; its receiver notices by itself."""
        self.process.kill()
        self.process.wait()

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Stop the agent; return its exit code, and its last line."""
        self.process.send_signal(number)
        said, _ = self.process.communicate(timeout=WITHIN_S)
        return self.process.returncode, said

    def send(self, *datagrams: bytes) -> None:
        for datagram in datagrams:
            self._datagrams.send(datagram)

    def post(self, content: bytes, kind: str = "application/json") -> httpx.Response:
        return self.http.post(f"{self.url}/", content=content, headers={"Content-Type": kind})

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.http.get(f"{self.url}/status").json()
        return found

    def until(self, true: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return the status, once *true* holds for it."""
        deadline = time.monotonic() + WITHIN_S
        while not true(status := self.status()):
            assert time.monotonic() < deadline, (status, self.errors)
            time.sleep(0.02)
        return status


def operation(object_id: str | int, **others: Any) -> bytes:
    return json.dumps({"event": "update", "type": "video", "id": str(object_id), **others}).encode()

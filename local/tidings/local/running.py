"""A twin in a subprocess, for tests and benchmarks."""

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

from tidings.aws.config import twin_keys
from tidings.local.gateway import listening

READY_S = 60.0  # about 2 s on an idle machine, plus 48 MB to fetch the first time
STOP_S = 10.0  # it promises 5 s; after this it is killed


class NotReady(Exception):
    """The twin ended or stayed silent; the message is what it said."""


class Twin:
    """
    A twin on a free port, from `__enter__` (it serves) to `__exit__` (it has ended).

    Several can run beside each other. *arguments* go to `tidings local` as they are. After
    `kill` or `stop`, `start` runs it again on the same ports, so that clients find it.
    """

    def __init__(self, *arguments: str, data: Path | None = None) -> None:
        self._arguments: Sequence[str] = arguments
        self._data = data
        self._process: subprocess.Popen[str] | None = None
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 lives as long as the twin
        self.port = listening.free_port()
        self.dynamodb_port = listening.free_port()
        self.url = f"http://127.0.0.1:{self.port}/"
        self.ws_url = f"ws://127.0.0.1:{self.port}/ws"
        self.dynamodb_url = f"http://127.0.0.1:{self.dynamodb_port}"

    @property
    def dynamodb_key(self) -> str:
        """The access key that opens its DynamoDB, while it runs."""
        return twin_keys.credentials(self.dynamodb_url)["aws_access_key_id"]

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_started(self) -> bool:
        """Whether it was started and not ended by us since."""
        return self._process is not None

    def __enter__(self) -> Twin:
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

    def start(self) -> None:
        """
        Start it and return when it serves.

        Raises:
            NotReady: it did not within `READY_S`.
        """
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tidings.local", *self._options()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        line = self._first_line(self._process)
        if not line.startswith("tidings local ready "):
            self.kill()
            self._errors.seek(0)
            raise NotReady(self._errors.read().strip() or "it said nothing")

    def kill(self) -> None:
        """End it as a crash would: nothing is put in order."""
        self._end(signal.SIGKILL)

    def stop(self) -> int | None:
        """End it in order and return its exit code; None if it did not run."""
        return self._end(signal.SIGTERM)

    def wait(self) -> int | None:
        """Return its exit code once it has ended by itself; killed if that takes too long."""
        return self._end(None)

    def _options(self) -> list[str]:
        options = [*self._arguments, "--port", str(self.port)]
        options += ["--dynamodb-port", str(self.dynamodb_port)]
        if self._data is not None:
            options += ["--data", str(self._data)]
        return options

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

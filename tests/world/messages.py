"""A client in a process of its own that prints messages as lines of JSON."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import IO, Any, Self

STOP_S = 10.0
_NOTHING: Mapping[str, str] = MappingProxyType({})


class Client:
    """Runs *command* until the block ends; *messages* grows in the meantime."""

    def __init__(self, command: Sequence[str], variables: Mapping[str, str] = _NOTHING) -> None:
        self.command, self._variables = command, variables
        self.messages: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self.command,
            env={**os.environ, **self._variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )
        assert self._process.stdout is not None
        self._thread = threading.Thread(target=self._receive, args=[self._process.stdout])
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait(STOP_S)
        self._thread.join()

    @property
    def runs(self) -> bool:
        """Return False once the client has ended."""
        return self._process.poll() is None

    def end_input(self) -> None:
        """Close its standard input, which some clients wait for."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def take(self, line: str) -> None:
        """Add the message of one *line*."""
        self.messages.append(json.loads(line))

    def _receive(self, lines: IO[str]) -> None:
        for line in lines:
            self.take(line)

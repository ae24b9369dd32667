"""One worker process of a Lambda function, under AWS's own runtime client."""

from __future__ import annotations

import queue
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from .runtime_api import INIT, Answer, RuntimeApi, failure

INIT_S = 60  # Lambda gives ten, on a machine that does nothing else
POLL_S = 0.2  # how late the death of a worker may be seen


class Worker:
    """*handler* below the folder *code*; what the process prints is appended to *log*."""

    def __init__(
        self, handler: str, code: Path, environment: Mapping[str, str], arn: str, log: Path
    ) -> None:
        self._api = RuntimeApi(arn)
        self._log = log
        with log.open("ab") as output:
            # Of LocalStack's process group, so that it ends when that is ended.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "awslambdaric", handler],
                cwd=code,
                env={**environment, "AWS_LAMBDA_RUNTIME_API": self._api.address},
                stdout=output,
                stderr=output,
            )

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def started(self) -> Answer:
        """That the handler was imported, or why it was not."""
        return self._answer(INIT, INIT_S)

    def invoke(self, id: str, payload: bytes, limit_s: float, trace: str) -> tuple[Answer, str]:
        """What became of it, and what was printed meanwhile; past *limit_s* the worker is dead."""
        begun = self._log.stat().st_size
        self._api.hand(id, payload, limit_s, trace)
        answer = self._answer(id, limit_s)
        return answer, self._log.read_bytes()[begun:].decode(errors="replace")

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._api.stop()

    def _answer(self, of: str, limit_s: float) -> Answer:
        until = time.monotonic() + limit_s
        while (left_s := until - time.monotonic()) > 0:
            try:
                answer = self._api.answers.get(timeout=min(left_s, POLL_S))
            except queue.Empty:
                if not self.alive:
                    code = self._process.returncode
                    return failure(of, "Runtime.ExitError", f"Runtime exited with {code}")
                continue
            if answer.of == of:
                return answer
        self._process.kill()
        self._process.wait()
        return failure(of, "Sandbox.Timedout", f"Task timed out after {limit_s:.2f} seconds")

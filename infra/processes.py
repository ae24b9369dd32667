"""Child processes that never outlive us."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

STOP_S = 5


@contextmanager
def stopped_at_exit(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Ends *process* and everything it started; it must lead a session of its own."""
    try:
        yield
    finally:
        _signal(process, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
        _signal(process, signal.SIGKILL)
        process.wait()


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)

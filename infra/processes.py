"""Child processes: they never outlive us, and are waited for until they answer."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

STOP_S = 5
POLL_S = 0.05


@contextmanager
def stopped_at_exit(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Ends *process* and everything it started; it must lead a session of its own."""
    try:
        yield
    finally:
        try:
            _signal(process, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_S)
        finally:  # also where somebody is impatient and interrupts us once more
            _signal(process, signal.SIGKILL)
            process.wait()


def answers(url: str, limit_s: float, check: Callable[[], None]) -> bool:
    """Whether there is an answer at *url* within *limit_s*; *check* raises if there never will."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        check()
        try:
            urllib.request.urlopen(url, timeout=1).close()
        except (urllib.error.URLError, OSError):
            time.sleep(POLL_S)
        else:
            return True
    return False


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)

"""The clock: the only module that reads the time and sleeps."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Implements `Clock`."""
    return time.time_ns() // 1_000_000


def sleep_ms(ms: int) -> None:
    """Implements `Sleep`."""
    time.sleep(ms / 1000)

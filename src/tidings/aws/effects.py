"""The clock, ids and threads of a process; the only module that reads the time and sleeps."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Each = TypeVar("Each")


def now_ms() -> int:
    """Implement `Clock`."""
    return time.time_ns() // 1_000_000


def steady_ms() -> int:
    """Return a time that never steps, for durations."""
    return time.monotonic_ns() // 1_000_000


def sleep_ms(ms: int) -> None:
    """Implement `Sleep`."""
    time.sleep(ms / 1000)


def new_id() -> str:
    """Implement `NewId` without the module uuid, because its import takes 15 ms."""
    return os.urandom(16).hex()


class Threads:
    """
    Implements `Spread`, for items of any type, by a small thread pool.

    The threads are reused by later calls, because starting them costs more than many tasks. The
    first error of a task is raised after all have ended.
    """

    def __init__(self, count: int) -> None:
        from concurrent.futures import (
            ThreadPoolExecutor,  # imported here, as some programs only need the clock
        )

        self._pool = ThreadPoolExecutor(count, thread_name_prefix="tidings")

    def __call__(self, task: Callable[[Each], None], items: Iterable[Each]) -> None:
        futures = [self._pool.submit(task, item) for item in items]
        errors = [error for future in futures if (error := future.exception()) is not None]
        if errors:
            raise errors[0]

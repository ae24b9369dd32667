"""The clock, the ids and the threads of a process on AWS."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, TypeVar

from tidings.core.effects import Runtime, discard_count, discard_trace, one_by_one

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tidings.core.effects import Count, Spread, TraceSink
    from tidings.http.settings import Shared

Each = TypeVar("Each")


def now_ms() -> int:
    """Implement `Clock`."""
    return time.time_ns() // 1_000_000


def steady_ms() -> int:
    """Return the time of a clock that is never set, to measure durations."""
    return time.monotonic_ns() // 1_000_000


def sleep_ms(ms: int) -> None:
    """Implement `Sleep`."""
    time.sleep(ms / 1000)


def new_id() -> str:
    """Implement `NewId` without the module uuid, because its import takes 15 ms."""
    return os.urandom(16).hex()


def new_runtime(
    settings: Shared,
    count: Count = discard_count,
    spread: Spread = one_by_one,
    trace: TraceSink = discard_trace,
) -> Runtime:
    """Return the runtime of a process on AWS, or of a command that uses the stores of a stage."""
    return Runtime(
        clock=now_ms,
        steady=steady_ms,
        expiring=now_ms,
        sleep=sleep_ms,
        new_id=new_id,
        count=count,
        spread=spread,
        trace=trace,
        await_writer=sleep_ms,
        page_ms=settings.page_ms,
        tombstone_ms=settings.tombstone_ms,
    )


class Threads:
    """Implements `Spread`, for items of any type, by a small thread pool.

    Later calls reuse the threads, because starting a thread costs more than many tasks. The first
    error of a task is raised after all tasks have ended.
    """

    def __init__(self, count: int) -> None:
        from concurrent.futures import (
            ThreadPoolExecutor,  # imported here, because some programs only need the clock
        )

        self._pool = ThreadPoolExecutor(count, thread_name_prefix="tidings")

    def __call__(self, task: Callable[[Each], None], items: Iterable[Each]) -> None:
        futures = [self._pool.submit(task, item) for item in items]
        errors = [error for future in futures if (error := future.exception()) is not None]
        if errors:
            raise errors[0]

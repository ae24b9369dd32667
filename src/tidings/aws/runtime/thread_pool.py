"""A small thread pool for concurrent network requests."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Each = TypeVar("Each")


class Threads:
    """
    Implements `Spread`, for items of any type.

    The threads are reused by later calls, because starting them costs more than many tasks. The
    first error of a task is raised after all have ended.
    """

    def __init__(self, count: int) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="tidings")

    def __call__(self, task: Callable[[Each], None], items: Iterable[Each]) -> None:
        futures = [self._pool.submit(task, item) for item in items]
        errors = [error for future in futures if (error := future.exception()) is not None]
        if errors:
            raise errors[0]

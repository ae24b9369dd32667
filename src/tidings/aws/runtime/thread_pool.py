"""Side by side: what waits for the network is done by a few threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Each = TypeVar("Each")


class Threads:
    """
    Implements `Spread`, for items of any type.

    The threads are kept from one call to the next, as starting them costs more than many a
    task. The first error of a task is raised when all have ended.
    """

    def __init__(self, count: int) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="tidings")

    def __call__(self, task: Callable[[Each], None], items: Iterable[Each]) -> None:
        futures = [self._pool.submit(task, item) for item in items]
        errors = [error for future in futures if (error := future.exception()) is not None]
        if errors:
            raise errors[0]

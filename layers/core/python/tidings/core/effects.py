"""The stores of `core`; `tests/contract` has what every adapter keeps to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Clock(Protocol):
    """Milliseconds since 1970. Only ever compared within `limits.CLOCK_SKEW_MS_MAX`."""

    def __call__(self) -> int: ...


class Sleep(Protocol):
    """Wait for some milliseconds."""

    def __call__(self, ms: int) -> None: ...


class NewId(Protocol):
    """A fresh unique id of 32 lower-case hex digits."""

    def __call__(self) -> str: ...


class Spread(Protocol):
    """Run a task for each item, side by side where the edge can; returns when all are done."""

    def __call__(self, task: Callable[[str], None], items: Sequence[str]) -> None: ...


class Count(Protocol):
    """Add to a metric of `tidings.aws.config.metrics`."""

    def __call__(self, metric: str, value: int) -> None: ...

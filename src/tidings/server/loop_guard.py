"""
Prevent the event loop from waiting for a lock.

If the loop waits for the lock of a thread that waits for the loop, the server deadlocks. So the
loop must never wait for a lock. `Database` always enforces this rule for its own lock. `install`
enforces it for all other locks of Tidings. The server calls `install` only if the environment
variable `VARIABLE` is set, as in the tests.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from functools import wraps
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

VARIABLE = "TIDINGS_DEBUG_LOOP"
_PLACES = ("tidings.server.", "tidings.core.", "tidings.http.")
_KINDS = ("Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore")


class LoopWouldBlock(RuntimeError):
    """The event loop tried to wait for a lock, which another thread may hold."""


def check_may_block() -> None:
    """
    Check that the calling thread may block.

    Raises:
        LoopWouldBlock: the calling thread runs an event loop.
    """
    if asyncio._get_running_loop() is not None:
        raise LoopWouldBlock("the event loop must not wait for a lock; use a thread")


class _CheckedLock:
    """A lock of `threading` that raises instead of blocking the event loop."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock

    def acquire(self, blocking: bool = True, *timeout: float, **named: float) -> bool:
        if blocking:
            check_may_block()
        return bool(self._lock.acquire(blocking, *timeout, **named))

    def __enter__(self) -> Any:
        check_may_block()
        return self._lock.__enter__()

    def __exit__(self, *error: object) -> None:
        self._lock.__exit__(*error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lock, name)


def _check(make: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(make)
    def make_checked(*arguments: Any) -> Any:
        return _CheckedLock(make(*arguments))

    return make_checked


def install() -> None:
    """Make every lock that a module of Tidings creates from now on a checked lock."""
    kinds: dict[str, Callable[..., Any]] = {name: getattr(threading, name) for name in _KINDS}
    for name, module in list(sys.modules.items()):
        if name.startswith(_PLACES) and name != __name__:
            for kind, make in kinds.items():
                if getattr(module, kind, None) is make:
                    setattr(module, kind, _check(make))

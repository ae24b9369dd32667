"""Prevent the event loop from waiting and from computing for long.

If the loop waits for the lock of a thread that waits for the loop, the server deadlocks. So the
loop must never wait for a lock. `Database` always enforces this rule for its own lock. If the
environment variable `VARIABLE` is set, as in the tests, `install` enforces it for all other locks
of Tidings, for sleeping and for network calls, and `watch` measures the CPU time of each callback.
The value is the longest time in milliseconds. It is 0, for no limit, in the tests, because a slow
or busy machine needs more CPU time for the same work.
"""

from __future__ import annotations

import asyncio
import fcntl
import gc
import sys
import threading
import time
from functools import cache, partial, wraps
from math import inf
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

VARIABLE = "TIDINGS_DEBUG_LOOP"
_PLACES = ("tidings.server.", "tidings.core.", "tidings.http.")
_KINDS = ("Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore")
# The methods of a loop that schedule a callback, and the place of the callback in their arguments.
_SCHEDULERS = {"call_soon": 0, "call_soon_threadsafe": 0, "call_later": 1, "call_at": 1}


class LoopWouldBlock(RuntimeError):
    """The event loop tried to wait, for a lock that another thread may hold or for the network."""


class LoopBlocked(SystemExit):
    """A callback blocked the event loop for too long.

    Both asyncio's loop and uvloop's loop end with this error.
    """


def check_may_block(what: str = "a lock") -> None:
    """Check that the calling thread may wait for *what*.

    Raises:
        LoopWouldBlock: the calling thread runs an event loop.
    """
    if asyncio._get_running_loop() is not None:
        raise LoopWouldBlock(f"the event loop must not wait for {what}; use a thread")


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
    """Check the loops of this process from now on.

    Every lock that a module of Tidings creates is a checked lock.
    """
    sys.addaudithook(_check_event)
    time.sleep = partial(_sleep, time.sleep)
    kinds: dict[str, Callable[..., Any]] = {name: getattr(threading, name) for name in _KINDS}
    for name, module in list(sys.modules.items()):
        if name.startswith(_PLACES) and name != __name__:
            for kind, make in kinds.items():
                if getattr(module, kind, None) is make:
                    setattr(module, kind, _check(make))


def _sleep(sleep: Callable[[float], None], seconds: float) -> None:
    check_may_block("a pause")
    sleep(seconds)


def _check_event(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse to block the loop; called by Python for each auditing event of the process."""
    if event == "socket.connect" and arguments[0].gettimeout() != 0:
        check_may_block("a connection")
    elif event == "socket.getaddrinfo":
        check_may_block("a name server")
    elif event == "fcntl.flock" and not arguments[1] & (fcntl.LOCK_NB | fcntl.LOCK_UN):
        check_may_block("a file lock")


@cache
class _CollectorTime:
    """The CPU time of the garbage collector, which depends on all objects of the process."""

    def __init__(self) -> None:
        self.total_s = self._began_s = 0.0
        gc.callbacks.append(self._note)

    def _note(self, phase: str, _: object) -> None:
        if phase == "start":
            self._began_s = time.thread_time()
        else:
            self.total_s += time.thread_time() - self._began_s


def parse_limit_ms(value: str) -> float:
    """Return the limit in milliseconds from *value*, that of `VARIABLE`; 0 means no limit.

    Raises:
        ValueError: *value* is not a number, or negative, or infinite.
    """
    limit_ms = float(value)
    if not 0 <= limit_ms < inf:
        raise ValueError(f"must be at least 0 and finite, not {value}")
    return limit_ms


def watch(loop: asyncio.AbstractEventLoop, limit_ms: float) -> None:
    """End *loop* with `LoopBlocked` after a callback that used more than *limit_ms* of CPU time.

    Do nothing if *limit_ms* is 0.
    """
    max_s = limit_ms / 1000
    if not max_s:
        return

    def measured(callback: Any) -> Any:
        is_measured = isinstance(callback, partial) and callback.func is _run
        return callback if is_measured else partial(_run, loop, max_s, callback)

    def checked(schedule: Callable[..., Any], at: int) -> Callable[..., Any]:
        @wraps(schedule)
        def scheduled(*arguments: Any, **named: Any) -> Any:
            callback, rest = measured(arguments[at]), arguments[at + 1 :]
            return schedule(*arguments[:at], callback, *rest, **named)

        return scheduled

    for name, at in _SCHEDULERS.items():
        setattr(loop, name, checked(getattr(loop, name), at))


def _run(loop: asyncio.AbstractEventLoop, max_s: float, callback: Any, *arguments: Any) -> None:
    collector = _CollectorTime()
    began_s = time.thread_time() - collector.total_s
    callback(*arguments)
    used_s = time.thread_time() - collector.total_s - began_s
    if used_s > max_s:
        used = f"{used_s * 1000:.0f} ms of CPU in one callback of the event loop"
        error = LoopBlocked(f"{_name(callback)} used {used}")
        loop.call_soon(_raise, error)


def _raise(error: BaseException) -> None:
    raise error


def _name(callback: Any) -> str:
    """Return the name of *callback*; of a task, the functions in which it waits now."""
    task = getattr(callback, "__self__", None)
    if not isinstance(task, asyncio.Task):
        return getattr(callback, "__qualname__", repr(callback))
    names: list[str] = []
    coroutine: Any = task.get_coro()
    while hasattr(coroutine, "cr_await"):
        names.append(coroutine.__qualname__)
        coroutine = coroutine.cr_await
    return " > ".join(names)

"""A simulated machine: virtual time, and the threads and the event loop of a server in one thread.

Threads are fibers. A fiber runs until it waits, or until the seed lets another one run: before a
statement of SQLite, at a lock or at a look at the clock, where a real thread may lose its turn too.
The event loop is asyncio's own; while it waits, the fibers run, and if all wait, time passes.
The event loop must never wait for a fiber. If it does, the seed is broken (`Broken`).
"""

from __future__ import annotations

import asyncio
import queue
import random as random_module
import sqlite3
import sys
import threading
import time
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

from tests.simulation.model import Broken
from tests.simulation.process import History

START_US = 1_795_000_000_000_000  # some day in 2026; event ids hold its seconds
PREEMPT = 0.15  # how often a fiber loses its turn where it may
_STEPS_MAX = 1_000_000
_MODULES = ("tidings.server.", "tidings.core.", "tidings.http.")
OWNER: ContextVar[Any] = ContextVar("owner", default=None)  # the process that runs; None: a client


class Machine:
    """The clock, the fibers and the loop; *random* decides what runs next."""

    def __init__(self, random: Random) -> None:
        self.random, self.history = random, History()
        self.now_us = 0
        self.wall_us = START_US  # the wall clock at the start of the machine, and its steps
        self.steps = 0
        self.broken: BaseException | None = None
        self.current: Fiber | None = None
        self.ready: list[Fiber] = []
        self.sleeping: list[tuple[int, int, Fiber]] = []
        self._hub = getcurrent()
        self.loop = Loop(self)

    def note(self, who: str, what: str, *details: object) -> None:
        self.history.entries.append((self.now_us, who, what, details))

    def breaks(self, error: BaseException) -> None:
        """End the run with *error*, which no handler of the code under test may hide."""
        self.broken = self.broken or error
        self.loop.stop()

    # Time.

    def monotonic(self) -> float:
        self.preempt()
        self.now_us += 1
        return self.now_us / 1e6

    def time_ns(self) -> int:
        self.preempt()
        return (self.wall_us + self.now_us) * 1000

    def sleep(self, seconds: float) -> None:
        """Let the calling fiber sleep."""
        fiber = self._waiting("sleeps")
        self.steps += 1
        insort(self.sleeping, (self.now_us + int(max(seconds, 0) * 1e6), self.steps, fiber))
        self._leave()

    # Fibers.

    def spawn(self, body: Callable[[], object], owner: Any = None) -> Fiber:
        fiber = Fiber(self, body, OWNER.get() if owner is None else owner)
        self.ready.append(fiber)
        return fiber

    def preempt(self) -> None:
        """Perhaps let others run first; the calling fiber loses its turn."""
        if self.current is not None and self.random.random() < PREEMPT:
            self.ready.append(self.current)
            self._leave()

    def wait(self, what: str, true: Callable[[], object], timeout: float | None = None) -> bool:
        """Let the calling fiber wait until *true* says so, at most *timeout* seconds."""
        end_us = None if timeout is None else self.now_us + int(timeout * 1e6) + 1
        while not true():
            fiber = self._waiting(what)
            if end_us is not None and self.now_us >= end_us:
                return False
            fiber.wants = true
            if end_us is not None:
                self.steps += 1
                insort(self.sleeping, (end_us, self.steps, fiber))
            fiber.owner.waiting.append(fiber)
            self._leave()
        return True

    def _waiting(self, what: str) -> Fiber:
        if self.current is None:
            error = Broken(f"the event loop {what}")
            self.breaks(error)
            raise error
        return self.current

    def _leave(self) -> None:
        fiber = self.current
        assert fiber is not None
        self._hub.switch()
        if fiber.owner.dead:
            raise GreenletExit

    def wake(self, owner: Any) -> None:
        """Let the fibers of *owner* run if their conditions may hold now."""
        for fiber in [each for each in owner.waiting if each.wants()]:
            owner.waiting.remove(fiber)
            self.sleeping = [each for each in self.sleeping if each[2] is not fiber]
            self.ready.append(fiber)

    def step(self) -> None:
        """Run one of the fibers that are ready."""
        self.steps += 1
        fiber = self.ready.pop(self.random.randrange(len(self.ready)))
        self.run_fiber(fiber, fiber.greenlet.switch)
        self.wake(fiber.owner)

    def run_fiber(self, fiber: Fiber, switch: Callable[..., Any], *error: Any) -> None:
        if fiber.greenlet.dead:
            return
        loop = asyncio._get_running_loop()
        asyncio._set_running_loop(None)
        before, self.current = self.current, fiber
        try:
            switch(*error)
        finally:
            self.current = before
            asyncio._set_running_loop(loop)

    def kill(self, owner: Any) -> None:
        """End all that *owner* runs, without letting it do anything more."""
        loop = self.loop
        for handle in [*loop._ready, *loop._scheduled]:  # type: ignore[attr-defined]
            if handle._context is not None and handle._context.get(OWNER) is owner:
                handle.cancel()
        for task in list(owner.tasks):
            self._drop(task)
        self.sleeping = [each for each in self.sleeping if each[2].owner is not owner]
        self.ready = [each for each in self.ready if each.owner is not owner]
        for fiber in list(owner.fibers):
            self.run_fiber(fiber, fiber.greenlet.throw, GreenletExit)
        owner.tasks.clear()
        owner.waiting.clear()

    def _drop(self, task: Any) -> None:
        """End *task* where it is."""
        task._log_destroy_pending = False
        asyncio._set_running_loop(self.loop)  # at the end of a run it does not run
        for _ in range(5):  # a `finally` of the task may await again
            try:
                task.get_coro().close()
                break
            except BaseException:  # noqa: BLE001 (whatever it does now)
                continue
        asyncio._set_running_loop(self.loop if self.loop.is_running() else None)

    def close(self) -> None:
        """End the clients, and the loop."""
        for task in asyncio.all_tasks(self.loop):
            self._drop(task)
        self.loop.close()

    # The loop calls this where it would wait for its sockets.

    def pass_time(self, timeout: float | None) -> None:
        if self.steps > _STEPS_MAX:
            self.breaks(Broken("the run does not end"))
        if timeout == 0:
            self.now_us += 1  # otherwise a wait for less than a microsecond would never end
            while self.ready and self.random.random() < 0.5:
                self.step()
            return
        end_us = None if timeout is None else self.now_us + max(1, int(timeout * 1e6 + 0.999))
        while not self.loop._ready:  # type: ignore[attr-defined]
            if self.ready:
                self.step()
            elif self.sleeping and (end_us is None or self.sleeping[0][0] <= end_us):
                self._wake_sleepers()
            elif end_us is not None:
                self.now_us = max(self.now_us, end_us)
                return
            else:
                self.breaks(Broken("nothing can continue"))
                return

    def _wake_sleepers(self) -> None:
        """Let time pass until the next fiber is due."""
        self.now_us = max(self.now_us, self.sleeping[0][0])
        while self.sleeping and self.sleeping[0][0] <= self.now_us:
            fiber = self.sleeping.pop(0)[2]
            if fiber in fiber.owner.waiting:
                fiber.owner.waiting.remove(fiber)
            self.ready.append(fiber)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Let the modules of Tidings use this machine while the block runs."""
        kept: list[tuple[Any, str, Any]] = []
        urandom = SimpleNamespace(urandom=self.random.randbytes)
        places = {("tidings.server.sockets", "os"): urandom}
        others = _instead(self)
        for name, module in list(sys.modules.items()):
            if not name.startswith(_MODULES) or name == "tidings.server.loop_guard":
                continue
            for attribute, value in list(vars(module).items()):
                other = places.get((name, attribute))
                for real, fake in others:
                    other = fake if value is real else other
                if other is not None:
                    kept.append((module, attribute, value))
                    setattr(module, attribute, other)
        try:
            yield
        finally:
            for module, attribute, value in kept:
                setattr(module, attribute, value)


class Fiber:
    """A thread of *owner*, or one job of its pools."""

    def __init__(self, machine: Machine, body: Callable[[], object], owner: Any) -> None:
        self.owner, self.done = owner, False
        self.wants: Callable[[], object] = lambda: True
        self._body, self._machine = body, machine
        self.greenlet = greenlet(self._run, machine._hub)
        context = copy_context()
        context.run(OWNER.set, owner)
        self.greenlet.gr_context = context
        owner.fibers[self] = None

    def _run(self) -> None:
        try:
            if not self.owner.dead:
                self._body()
        except GreenletExit:
            pass
        except Broken as broken:
            self._machine.breaks(broken)
        finally:
            self.done = True
            self.owner.fibers.pop(self, None)


class Loop(asyncio.BaseEventLoop):
    """asyncio's loop on virtual time."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self._machine, self._selector = machine, self
        self.set_task_factory(self._make_task)
        self.set_exception_handler(self._failed)

    def time(self) -> float:
        return self._machine.now_us / 1e6

    def select(self, timeout: float | None) -> list[Any]:
        self._machine.steps += 1
        self._machine.pass_time(timeout)
        return []

    def _asyncgen_finalizer_hook(self, generator: Any) -> None: ...  # of a task that was killed

    def _process_events(self, event_list: list[Any]) -> None: ...

    def _write_to_self(self) -> None: ...

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Any, *args: Any
    ) -> Any:
        pool = executor or OWNER.get().pool
        return asyncio.wrap_future(pool.submit(func, *args), loop=self)

    def _make_task(self, loop: Any, coroutine: Any, **more: Any) -> Any:
        task = asyncio.Task(coroutine, loop=self, **more)
        context = more.get("context")
        owner = OWNER.get() if context is None else context.get(OWNER)
        if owner is not None:
            owner.tasks[task] = None
            task.add_done_callback(lambda task: owner.tasks.pop(task, None))
        task.add_done_callback(partial(self._ended, owner))
        return task

    def _ended(self, owner: Any, task: Any) -> None:
        """Break the seed if a client fails, or if a check in the server does."""
        error = None if task.cancelled() else task.exception()
        if error is not None and (owner is None or isinstance(error, (Broken, AssertionError))):
            self._machine.breaks(error)

    def _failed(self, loop: Any, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None and not isinstance(error, GreenletExit):
            self._machine.breaks(error)


# The replacements of locks, queues, threads and pools.


class _Lock:
    def __init__(self, machine: Machine, free: int = 1) -> None:
        self._machine, self._free = machine, free

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        machine = self._machine
        if blocking:
            if machine.current is None:
                machine._waiting("waits for a lock")
            machine.preempt()
            machine.wait("waits for a lock", lambda: self._free > 0)
        elif not self._free:
            return False
        self._free -= 1
        return True

    def release(self) -> None:
        self._free += 1
        if OWNER.get() is not None:
            self._machine.wake(OWNER.get())

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


class _Queue:
    def __init__(self, machine: Machine) -> None:
        self._machine, self._items = machine, deque[Any]()

    def put(self, item: Any) -> None:
        self._items.append(item)
        if OWNER.get() is not None:
            self._machine.wake(OWNER.get())

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if not self._machine.wait("waits for a queue", lambda: self._items, timeout):
            raise queue.Empty
        return self._items.popleft()


class _Thread:
    def __init__(
        self, machine: Machine, target: Callable[..., object], name: str = "", daemon: bool = False
    ) -> None:
        self._machine, self._target, self.name = machine, target, name
        self._fiber: Fiber | None = None

    def start(self) -> None:
        self._fiber = self._machine.spawn(self._target)

    def is_alive(self) -> bool:
        return self._fiber is not None and not self._fiber.done

    def join(self) -> None:
        self._machine.wait("waits for a thread", lambda: not self.is_alive())


class _Result(Future[Any]):
    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self.machine = machine
        self.add_done_callback(self._wake)

    def _wake(self, _: object) -> None:
        if OWNER.get() is not None:
            self.machine.wake(OWNER.get())

    def result(self, timeout: float | None = None) -> Any:
        self.machine.wait("waits for a result", self.done, timeout)
        return super().result(0)


class Pool:
    """A pool of threads."""

    def __init__(
        self, machine: Machine, max_workers: int = 32, thread_name_prefix: str = ""
    ) -> None:
        self._machine, self._free = machine, max_workers
        self._waiting: deque[tuple[_Result, Callable[[], object]]] = deque()
        self._running = 0

    def submit(self, call: Callable[..., Any], *args: Any, **named: Any) -> _Result:
        future = _Result(self._machine)
        context = copy_context()
        self._waiting.append((future, lambda: context.run(call, *args, **named)))
        self._begin()
        return future

    def shutdown(self, wait: bool = True, cancel_futures: bool = False) -> None:
        if cancel_futures:
            for future, _ in self._waiting:
                future.cancel()
            self._waiting.clear()
        if wait:
            self._machine.wait("waits for a pool", lambda: not self._running)

    def _begin(self) -> None:
        if self._waiting and self._free:
            self._free -= 1
            self._running += 1
            self._machine.spawn(self._work)

    def _work(self) -> None:
        while self._waiting:
            future, call = self._waiting.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = call()
            except Exception as error:  # noqa: BLE001 (as a pool does)
                future.set_exception(error)
            else:
                future.set_result(result)
        self._free += 1
        self._running -= 1


def _instead(machine: Machine) -> list[tuple[Any, Any]]:
    """Return pairs of what a module may have imported, and what it uses instead."""

    def of(kind: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **named: kind(machine, *args, **named)

    clock = SimpleNamespace(
        time_ns=machine.time_ns, monotonic=machine.monotonic, sleep=machine.sleep
    )
    from tests.simulation.server.disk import connect

    database = SimpleNamespace(**{**vars(sqlite3), "connect": connect})
    return [
        (time, clock),
        (random_module, machine.random),
        (sqlite3, database),
        (threading.Lock, of(_Lock)),
        (threading.BoundedSemaphore, of(_Lock)),
        (threading.Thread, of(_Thread)),
        (threading.get_ident, lambda: id(machine.current)),
        (queue.SimpleQueue, of(_Queue)),
        (Future, of(_Result)),
        (ThreadPoolExecutor, of(Pool)),
    ]

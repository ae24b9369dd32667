"""
Processes: one invocation of one function, whose every effect is a moment for things to happen.

A process is killed at its function's time limit, as Lambda does. Each of its ports is wrapped
in `Effects`, which lets time pass, and faults strike, before and after every call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from tidings.core import limits
from tidings.core.errors import TidingsError, Unavailable

from .history import History
from .scheduler import Scheduler, Task
from .weather import Weather

# What the lease leaves for writes that are still under way when their writer has ended.
LATE_MS_MAX = limits.LEASE_MS - limits.FOLLOW_TIMEOUT_S * 1000 - 100
RETRY_AFTER_MS = 60_000  # Lambda repeats a failed asynchronous invocation after a minute
_QUICK_MS, _NORMAL_MS = 4.0, 30.0
_UNCONDITIONAL = ("state.write", "departures.write")


class Machine:
    """What all processes of a world share."""

    def __init__(self, random: Random, weather: Weather, history: History) -> None:
        self.random, self.weather, self.history = random, weather, history
        self.scheduler = Scheduler()
        self.touched: Counter[tuple[str, str]] = Counter()  # (kind of process, port.method)
        self.failures: Counter[str] = Counter()
        self._ids = 0

    def new_id(self) -> str:
        self._ids += 1
        return f"{self._ids:032x}"

    def note(self, who: str, what: str, *details: object) -> None:
        self.history.add(self.scheduler.now_us, who, what, *details)

    def start(
        self, kind: str, limit_s: float, body: Callable[[Process], None], retries: int = 0
    ) -> Process:
        """Invoke a function; a failure that is not a crash is retried like Lambda does."""
        process = Process(self, kind, limit_s)

        def run() -> None:
            try:
                body(process)
            except* TidingsError as errors:
                for error in errors.exceptions:
                    self.failures[type(error).__name__] += 1
                    self.note(process.name, "failed", str(error))
                if retries:
                    again = self.start, kind, limit_s, body, retries - 1
                    self.scheduler.after(RETRY_AFTER_MS, lambda: again[0](*again[1:]))

        process.task = self.scheduler.spawn(process.name, run)
        self.scheduler.after(limit_s * 1000, lambda: self._end(process))
        return process

    def _end(self, process: Process) -> None:
        """The time limit: whatever it was doing, it is over."""
        if process.task is not None and not process.task.done:
            self.weather.saw("killed at the time limit")
            self.note(process.name, "time limit")
            process.task.kill()


class Process:
    def __init__(self, machine: Machine, kind: str, limit_s: float) -> None:
        self.machine, self.kind, self.limit_s = machine, kind, limit_s
        self.name = f"{kind}-{machine.new_id().lstrip('0')}"
        self.skew_ms = 0
        self.slow: dict[str, float] = {}  # effects before which this process pauses once
        self.task: Task | None = None

    def clock(self) -> int:
        return self.machine.scheduler.now_ms + self.skew_ms

    def sleep(self, ms: float) -> None:
        self.machine.scheduler.sleep(ms)

    def new_id(self) -> str:
        return self.machine.new_id()

    def count(self, metric: str, value: int) -> None:
        """Metrics are not looked at here."""

    def crash(self) -> None:
        self.machine.note(self.name, "crash")
        self.machine.scheduler.die()

    def through(self, port: str, target: object) -> Any:
        """*target* as this process reaches it."""
        return Effects(self, port, target)

    def effect(self, label: str, call: Callable[[], Any]) -> Any:
        """One call of a port: time passes, it may fail, be lost or be the last."""
        machine = self.machine
        machine.touched[self.kind, label] += 1
        self._pause()
        if label in self.slow:
            self.sleep(self.slow.pop(label))
        if label == "inbox.post" and machine.weather.strikes("slow_change"):
            self.sleep(machine.random.uniform(200, 9_000))
        self._strike(machine.weather.at_effect(), label, before=True)
        if label in _UNCONDITIONAL and machine.weather.strikes("late_write"):
            self._write_late(label, call)
        result = call()
        machine.note(self.name, label)
        self._pause()
        if label == "sockets.send" and machine.weather.strikes("crash_amid_sends"):
            self.crash()
        self._strike(machine.weather.at_effect(), label, before=False)
        return result

    def _pause(self) -> None:
        random = self.machine.random
        self.sleep(random.random() * (_QUICK_MS if random.random() < 0.8 else _NORMAL_MS))

    def _strike(self, fault: str, label: str, *, before: bool) -> None:
        if not fault:
            return
        self.machine.note(self.name, fault, label, "before" if before else "after")
        if fault == "crash":
            self.crash()
        elif fault == "freeze":
            self.sleep(self.machine.random.uniform(0.1, 1.5) * self.limit_s * 1000)
        elif fault == "slow":
            self.sleep(self.machine.random.uniform(500, 8_000))
        else:  # a request or an answer was lost: nobody knows which
            self.sleep(self.machine.random.uniform(100, 2000))
            raise Unavailable(f"{label} did not answer")

    def _write_late(self, label: str, call: Callable[[], Any]) -> None:
        """The write lands after this process has ended, but within what its lease leaves."""
        machine = self.machine

        def land() -> None:
            machine.note(self.name, "late", label)
            call()

        machine.scheduler.after(machine.random.uniform(0, LATE_MS_MAX), land)
        if machine.random.random() < 0.5:
            self.crash()
        raise Unavailable(f"{label} did not answer")


class Effects:
    """Stands for a port: every method of it is an effect of the process."""

    def __init__(self, process: Process, port: str, target: object) -> None:
        self._process, self._port, self._target = process, port, target

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method, label = getattr(self._target, name), f"{self._port}.{name}"

        def effect(*args: Any, **named: Any) -> Any:
            return self._process.effect(label, lambda: method(*args, **named))

        self.__dict__[name] = effect
        return effect

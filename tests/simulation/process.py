"""Processes: each is one invocation of one function, and each of its effects is a point for a
fault.

A process is killed at its function's time limit, as Lambda does. Each of its ports is wrapped
in `Effects`, which lets time pass, and faults strike, before and after every call.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from random import Random
from typing import Any

from tests.simulation.clocks import Clocks
from tests.simulation.faults import Faults
from tests.simulation.model import Broken
from tests.simulation.scheduler import Scheduler, Task
from tidings.core.effects import Runtime, Spread, discard_trace
from tidings.core.errors import TidingsError, Unavailable
from tidings.core.websocket.connections import Outcome

Entry = tuple[int, str, str, tuple[object, ...]]
_LATE_MS_MAX = 240_000  # long after others have taken over, and again
_IN_TIME = ("follow-state", "follow-push")  # they stop by themselves before they are stopped
_DELAYED_MS = 3_000  # the work of a run after its last turn
RETRY_AFTER_MS = 60_000  # Lambda repeats a failed asynchronous invocation after a minute
_QUICK, _QUICK_MS, _NORMAL_MS = 0.8, 4.0, 30.0  # most calls are quick


class History:
    """What happened in a run; the same seed gives the same lines. Most are never printed."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def lines(self, last: int | None = None) -> Iterator[str]:
        for at, who, what, details in self.entries if last is None else self.entries[-last:]:
            yield json.dumps({"t": at, "who": who, "what": what, "details": details}, default=str)


class Machine:
    """What all processes of a world share."""

    def __init__(self, random: Random, faults: Faults, history: History) -> None:
        self.random, self.faults, self.history = random, faults, history
        self.scheduler = Scheduler()
        self.clocks = Clocks(random, faults)
        self.touched: set[tuple[str, str]] = set()  # (kind of process, port.method)
        self.failures: Counter[str] = Counter()
        self.stay_warm = {
            "receive"
        }  # one that ended is the next one, with all that was built for it
        self._warm: defaultdict[str, list[Process]] = defaultdict(list)
        self._ids = 0
        self.costs_ms: Mapping[str, float] = {}  # the additional time of a call
        self.refuses: Callable[[Process, str, object], bool] | None = None

    def new_id(self) -> str:
        self._ids += 1
        return f"{self._ids:032x}"

    def note(self, who: str, what: str, *details: object) -> None:
        self.history.entries.append((self.scheduler.now_us, who, what, details))

    def start(
        self, kind: str, limit_s: float, body: Callable[[Process], None], retries: int = 0
    ) -> Process:
        """Invoke a function; a failure that is not a crash is retried like Lambda does."""
        warm = self._warm[kind] if kind in self.stay_warm else []
        process = warm.pop() if warm else Process(self, kind, limit_s)
        process.begin()

        def run() -> None:
            try:
                body(process)
                warm.append(process)
            except* TidingsError as errors:
                for error in errors.exceptions:
                    self.failures[type(error).__name__] += 1
                    self.note(process.name, "failed", str(error))
                if retries:
                    again = self.start, kind, limit_s, body, retries - 1
                    self.scheduler.after(RETRY_AFTER_MS, lambda: again[0](*again[1:]))

        process.task = task = self.scheduler.spawn(process.name, run)
        self.scheduler.after(limit_s * 1000, lambda: self._end(process, task))
        return process

    def _end(self, process: Process, task: Task) -> None:
        """End the process at its time limit."""
        if task.done:
            return
        self.faults.saw("killed at the time limit")
        self.note(process.name, "time limit")
        task.kill()
        if process.kind in _IN_TIME and process.delayed_ms < _DELAYED_MS:
            raise Broken(f"{process.name} was not done in time, and nothing delayed it")


class Process:
    def __init__(self, machine: Machine, kind: str, limit_s: float) -> None:
        self.machine, self.kind, self.limit_s = machine, kind, limit_s
        self.name, self.skew_ms = kind, 0
        self.services: Any = None  # what `functions` built for it
        self.sleep = machine.scheduler.sleep
        self._ports: dict[str, Effects] = {}

    def begin(self) -> None:
        """Begin one more invocation."""
        self.name = f"{self.kind}-{self.machine.new_id().lstrip('0')}"
        self.skew_ms = self.machine.clocks.skew_ms(self.kind)
        self.delayed_ms = 0.0  # by faults
        self.slow: dict[str, float] = {}  # effects before which this process pauses once
        self.task: Task | None = None

    def clock(self) -> int:
        return self.machine.scheduler.now_us // 1000 + self.skew_ms

    def delay(self, ms: float) -> None:
        """Sleep because of a fault."""
        self.delayed_ms += ms
        self.sleep(ms)

    def new_id(self) -> str:
        return self.machine.new_id()

    def count(self, metric: str, value: int) -> None:
        """Metrics are not looked at here."""

    @property
    def runtime(self) -> Runtime:
        return Runtime(
            clock=self.clock,
            steady=lambda: self.machine.scheduler.now_us // 1000,
            expiring=self.clock,
            sleep=self.sleep,
            new_id=self.new_id,
            count=self.count,
            spread=shuffled(self),
            trace=discard_trace,
            await_writer=self.sleep,
            page_ms=0,  # services replace both
            tombstone_ms=0,
        )

    def crash(self) -> None:
        self.machine.note(self.name, "crash")
        self.machine.scheduler.die()

    def through(self, port: str, target: object) -> Any:
        """*target* as this process reaches it."""
        if port not in self._ports:
            self._ports[port] = Effects(self, port, target)
        return self._ports[port]

    def send(self, label: str, call: Callable[..., Any], *args: Any) -> Outcome:
        """Run *call* as `effect` does; an error is an outcome of the message."""
        try:
            outcome: Outcome = self.effect(label, call, *args)
        except Unavailable:
            outcome = Outcome.UNKNOWN
        if outcome is Outcome.UNKNOWN and self.machine.faults.strikes("crash_in_doubt"):
            self.crash()
        return outcome

    def effect(self, label: str, call: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Run one call of a port: time passes, it may fail, be lost or be the last."""
        machine, random, sleep = self.machine, self.machine.random.random, self.sleep
        strikes, at_effect = machine.faults.strikes, machine.faults.at_effect
        machine.touched.add((self.kind, label))
        sleep(random() * (_QUICK_MS if random() < _QUICK else _NORMAL_MS))
        if label in machine.costs_ms or label in self.slow or label == "inbox.post":
            self._take_longer(label)
        if fault := at_effect():
            self._strike(fault, label, before=True)
        if machine.refuses is not None and machine.refuses(self, label, args[0] if args else None):
            raise Unavailable(f"{label} is throttled")
        if label in _BADLY:
            _BADLY[label](self, label, call, *args, **named)
        result = call(*args, **named)
        machine.history.entries.append((machine.scheduler.now_us, self.name, label, ()))
        sleep(random() * (_QUICK_MS if random() < _QUICK else _NORMAL_MS))
        if label == "sockets.send" and strikes("crash_amid_sends"):
            self.crash()  # no process acts on the outcome
        pushes = label == "connections.update" and self.kind.startswith("follow-push")
        if pushes and strikes("crash_amid_move"):
            self.crash()
        if fault := at_effect():
            self._strike(fault, label, before=False)
        return result

    def _take_longer(self, label: str) -> None:
        """Before some calls more time passes than before others."""
        machine = self.machine
        if label in machine.costs_ms:
            self.sleep(machine.costs_ms[label])
        if label in self.slow:
            self.delay(self.slow.pop(label))
        if label == "inbox.post" and machine.faults.strikes("slow_change"):
            self.delay(machine.random.uniform(200, 9_000))

    def _strike(self, fault: str, label: str, *, before: bool) -> None:
        self.machine.note(self.name, fault, label, "before" if before else "after")
        if fault == "crash":
            self.crash()
        elif fault == "freeze":
            self.delay(self.machine.random.uniform(0.1, 1.5) * self.limit_s * 1000)
        elif fault == "slow":
            self.delay(self.machine.random.uniform(500, 8_000))
        else:  # a request or an answer was lost: the caller cannot know which
            self.delay(self.machine.random.uniform(100, 2000))
            raise Unavailable(f"{label} did not answer")

    def _save_late(self, label: str, call: Callable[..., Any], *args: Any, **named: Any) -> None:
        """Save after this process has ended; a later holder of the lease must not notice."""
        machine, random = self.machine, self.machine.random
        if not machine.faults.strikes("late_save"):
            return

        def land() -> None:
            try:
                call(*args, **named)
            except TidingsError:
                machine.faults.saw("late save was refused")

        machine.note(self.name, "saves late")
        machine.scheduler.after(random.uniform(0, _LATE_MS_MAX), land)
        if random.random() < 0.5:
            self.crash()
        raise Unavailable(f"{label} did not answer")

    def _write_badly(
        self, label: str, call: Callable[..., Any], feed: str, rows: Sequence[Any], **named: Any
    ) -> None:
        """Write some rows now, some after this process has ended, and some never."""
        machine, random = self.machine, self.machine.random
        partly = machine.faults.strikes("part_write")
        late = machine.faults.strikes("late_write")
        if not partly and not late:
            return
        now = [row for row in rows if partly and random.random() < 0.5]
        later = [row for row in rows if late and row not in now]
        machine.note(self.name, "in part", label, len(now), len(later), len(rows))
        if now:
            call(feed, now, **named)

        def land() -> None:
            machine.note(self.name, "late", label, len(later))
            try:
                overwritten: Sequence[Any] = call(feed, later, **named) or ()
            except TidingsError as refused:  # the writer has ended
                machine.faults.saw("late write was refused")
                machine.note(self.name, "refused", str(refused))
                return
            if outdated := sum(each is None for each in overwritten):
                machine.faults.saw("late row was outdated", outdated)

        if later:
            machine.scheduler.after(random.uniform(0, _LATE_MS_MAX), land)
        if random.random() < 0.5:
            self.crash()
        raise Unavailable(f"{label} did not answer")


# Effects that may arrive late, or in part: several rows of a feed, side by side; a checkpoint.
_BADLY: Mapping[str, Callable[..., None]] = {
    "state.write": Process._write_badly,
    "removed_parents.write": Process._write_badly,
    "followers.save": Process._save_late,
}


class Effects:
    """A port of the process: every method call is an effect."""

    def __init__(self, process: Process, port: str, target: object) -> None:
        self._process, self._port, self._target = process, port, target

    def together(self, run: Callable[[], Any]) -> Any:
        """Run *run*. Each of its calls is an effect of its own, as on DynamoDB."""
        self._process.effect(_label(self._port, "together"), lambda: None)
        return run()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        process, label = self._process, _label(self._port, name)
        through = process.send if label == "sockets.send" else process.effect
        effect = partial(through, label, getattr(self._target, name))
        self.__dict__[name] = effect
        return effect


@cache
def _label(port: str, name: str) -> str:
    return f"{port}.{name}"


def shuffled(process: Process) -> Spread:
    """Implements `Spread`: each task is tried, in any order; then the first error is raised."""

    def spread(task: Callable[[str], None], items: Sequence[str]) -> None:
        errors = []
        for item in process.machine.random.sample(items, len(items)):
            try:
                task(item)
            except Exception as error:  # noqa: BLE001 - as a pool of threads does
                errors.append(error)
        if errors:
            raise errors[0]

    return spread

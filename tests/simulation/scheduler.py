"""Virtual time and cooperative tasks: the only clock and the only thread of a simulated world.

A task runs until it sleeps; the next task that is due continues. Equal times are served in the
order in which they were asked for, so a run depends on its seed and on nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from greenlet import GreenletExit, getcurrent, greenlet

START_US = 1_795_000_000_000_000  # some day in 2026; event ids hold its seconds


class Task:
    """Something that runs by itself and can be killed between two steps."""

    __slots__ = ("_fiber", "_scheduler", "done", "dying", "name")

    def __init__(self, scheduler: Scheduler, name: str, body: Callable[[], object]) -> None:
        self._scheduler, self.name, self.done, self.dying = scheduler, name, False, False
        self._fiber = greenlet(body, scheduler.hub)  # it continues in the hub when it ends

    def resume(self) -> None:
        """Run it until it sleeps or ends. Only the scheduler calls this."""
        if self.done:
            return
        scheduler, fiber = self._scheduler, self._fiber
        scheduler.current = self
        fiber.switch()
        scheduler.current = None
        if fiber.dead:
            self._end()

    def kill(self) -> None:
        """End it at its sleep; its effects so far stay."""
        if self.done:
            return
        self._scheduler.current, self.dying = self, True
        if self._fiber:
            self._fiber.throw(GreenletExit)
        self._scheduler.current = None
        self._end()

    def _end(self) -> None:
        self.done = True
        self._scheduler.ended(self)


class Scheduler:
    def __init__(self) -> None:
        self.now_us = START_US
        self.current: Task | None = None
        self.steps = 0
        self._until_us = START_US  # how far time may pass now
        self._due: list[tuple[int, int, Callable[[], object]]] = []
        self._asked = 0
        self._tasks: dict[Task, None] = {}  # in the order they began
        self.hub = getcurrent()
        self._leave = self.hub.switch

    @property
    def now_ms(self) -> int:
        return self.now_us // 1000

    def after(self, ms: float, action: Callable[[], object]) -> None:
        """Call *action* in *ms* of virtual time."""
        self._asked += 1
        heappush(self._due, (self.now_us + int(ms * 1000), self._asked, action))

    def spawn(self, name: str, body: Callable[[], object]) -> Task:
        """Start *body* now as a task."""
        task = Task(self, name, body)
        self._tasks[task] = None
        self.after(0, task.resume)
        return task

    def ended(self, task: Task) -> None:
        self._tasks.pop(task, None)

    def close(self) -> None:
        """The world ends: a task that sleeps for ever would keep all of it in memory."""
        for task in list(self._tasks):
            task.kill()
        self._due.clear()

    def kill(self, task: Task) -> None:
        """Kill *task* as soon as no task runs."""
        self.after(0, task.kill)

    def sleep(self, ms: float) -> None:
        """Let others run; the calling task continues in *ms*."""
        assert self.current is not None, "only tasks sleep"
        if self.current.dying:
            raise GreenletExit  # also in a `finally`, which a killed process does not run
        due_us, due = self.now_us + int(ms * 1000), self._due
        if due_us <= self._until_us and not (due and due[0][0] <= due_us):
            self.now_us = (
                due_us  # no other task is due before: a way through the hub costs the most
            )
            self.steps += 1
            return
        self._asked += 1
        heappush(due, (due_us, self._asked, self.current.resume))
        self._leave()

    def wait(self, true: Callable[[], object], within_ms: float, every_ms: float) -> bool:
        """Let the calling task sleep until *true* returns something true, at most *within_ms*.

        The hub asks every *every_ms*, because a switch to the task costs more than the question.
        Return what *true* says at the end.
        """
        task, until_ms = self.current, self.now_ms + within_ms
        assert task is not None, "only tasks sleep"

        def ask() -> None:
            if task.done:
                return
            if true() or self.now_us // 1000 >= until_ms:
                task.resume()
            else:
                self.after(every_ms, ask)

        if not true() and within_ms > 0:
            self.after(every_ms, ask)
            self._leave()
        return bool(true())

    def die(self) -> None:
        """End the calling task at once, as a crash does."""
        assert self.current is not None, "only tasks die"
        self.current.dying = True
        raise GreenletExit

    def run(self, ms: float) -> None:
        """Let *ms* of virtual time pass."""
        until = self._until_us = self.now_us + int(ms * 1000)
        due = self._due
        while due and due[0][0] <= until:
            self.now_us, _, action = heappop(due)
            self.steps += 1
            action()
        self.now_us = until

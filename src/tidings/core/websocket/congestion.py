"""
Many deliveries at a time, no more than the other side takes: which request is sent next, and when.

It does no I/O and reads no clock. Its times are milliseconds of any one clock that never goes back.
"""

from __future__ import annotations

import heapq
from collections import deque
from itertools import count
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.errors import Unavailable
from tidings.core.websocket.connections import Outcome
from tidings.core.websocket.send import Close, Send, Wait

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidings.core.websocket.send import Request, Steps

_GOT_THROUGH = (Outcome.SENT, Outcome.GONE, Outcome.REFUSED)


class Window:
    """
    How many requests may be under way, found as TCP finds it: growing with what gets through,
    halved by a throttle, behind which all wait for the same moment.

    It outlives a turn, because the other side's limit does.
    """

    def __init__(self) -> None:
        self.opens_ms = 0  # nothing is sent before
        self._size = float(limits.SENDS_FIRST)
        self._slow_above = float(limits.SENDS_MAX)
        self._pause_ms = 0
        self._refused: set[str] = set()  # connections, by the latest answers
        self._passed = 0
        self._throttled_until_ms = 0

    def has_room(self, under_way: int, now_ms: int) -> bool:
        return now_ms >= self.opens_ms and under_way < int(self._size)

    def passed(self, sent_ms: int) -> None:
        """A request that was sent at *sent_ms* got through."""
        if sent_ms >= self.opens_ms:
            self._pause_ms = 0
        fast = self._size < self._slow_above
        self._size = min(limits.SENDS_MAX, self._size + (1 if fast else 1 / self._size))
        self._passed += 1
        if self._passed == limits.SEND_ANSWERS:
            self._passed = 0
            self._refused.clear()

    def refused(self, connection_id: str, sent_ms: int, now_ms: int) -> bool:
        """
        A request was throttled; whether all are, rather than the client it was for.

        The answer is the same for both (429): `@connections` also refuses for a client that does
        not read. So a few that are refused among many are taken for such clients. Of requests that
        were under way together the first one slows the sender down.
        """
        self._refused.add(connection_id)
        if len(self._refused) > limits.SEND_REFUSED_FEW:
            self._throttled_until_ms = now_ms + limits.SEND_THROTTLED_MS
        if now_ms >= self._throttled_until_ms:
            return False
        if sent_ms >= self.opens_ms:
            self._size = self._slow_above = max(1.0, self._size / 2)
            doubled = self._pause_ms * 2 or limits.SEND_BACKOFF_MS
            self._pause_ms = min(limits.SEND_PAUSE_MS_MAX, doubled)
            self.opens_ms = now_ms + self._pause_ms
        return True


class Task:
    """A delivery, and the request of it that is next or under way."""

    __slots__ = ("request", "sent_ms", "steps")

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self.sent_ms = 0
        self.request: Request


class Turn:
    """
    Drives *deliveries*, within *window*.

    Each one is begun when there is room for it, in their order. What was begun goes first, so that
    a message that was refused does not wait behind all others. While all are throttled no message
    loses attempts by it, until the turn has lost its patience: then who is refused is cut, and if
    not even that gets through, the turn is given up.
    """

    def __init__(self, deliveries: Iterable[Steps], window: Window) -> None:
        self.errors: list[Exception] = []
        self._new = iter(deliveries)
        self._window = window
        self._ready: deque[Task] = deque()
        self._waiting: list[tuple[int, int, Task]] = []
        self._ids = count()
        self._under_way = 0
        self._ended = False  # none is begun any more
        self._given_up = False
        self._patient = True
        self._closes = False  # the last one got through
        self._stalled_ms: int | None = None  # nothing has got through since

    @property
    def done(self) -> bool:
        return self._ended and not (self._under_way or self._ready or self._waiting)

    def next(self, now_ms: int) -> Task | None:
        """The task whose request is to be sent now; None when that has to wait or nothing is."""
        while self._waiting and self._waiting[0][0] <= now_ms:
            self._go_on(heapq.heappop(self._waiting)[2], None, now_ms)
        if not self._window.has_room(self._under_way, now_ms):
            return None
        while not self._ready and not self._ended:
            self._begin(now_ms)
        if not self._ready:
            return None
        task = self._ready.popleft()
        task.sent_ms = now_ms
        self._under_way += 1
        return task

    def answered(self, task: Task, outcome: Outcome, now_ms: int) -> None:
        """The request of *task* had this *outcome*: THROTTLED whenever it was refused for now."""
        self._under_way -= 1
        if outcome in _GOT_THROUGH:
            self._stalled_ms = None
            self._closes = self._closes or isinstance(task.request, Close)
            self._window.passed(task.sent_ms)
        elif outcome is Outcome.THROTTLED:
            self._closes = self._closes and isinstance(task.request, Send)
            verdict = self._judged(task, now_ms)
            if verdict is None:
                self._ready.append(task)
                return
            outcome = verdict
        self._go_on(task, outcome, now_ms)

    def due_ms(self, now_ms: int) -> int | None:
        """When to ask for the next request, unless an answer comes before; None: not before."""
        times = [self._waiting[0][0]] if self._waiting else []
        if self._window.opens_ms > now_ms and (self._ready or not self._ended):
            times.append(self._window.opens_ms)
        return min(times, default=None)

    def _judged(self, task: Task, now_ms: int) -> Outcome | None:
        """What a refusal means for its delivery; None: it is sent again as if it had not been."""
        if self._closes and not self._patient:
            return Outcome.THROTTLED  # closes get through, so it is the clients that do not read
        if not self._window.refused(task.request.connection_id, task.sent_ms, now_ms):
            return Outcome.BUSY
        if self._stalled_ms is None:
            self._stalled_ms = now_ms
        stalled_ms = now_ms - self._stalled_ms
        self._patient = self._patient and stalled_ms < limits.SEND_PATIENCE_MS
        if stalled_ms >= 2 * limits.SEND_PATIENCE_MS and not self._given_up:
            self._give_up()
        return None if self._patient else Outcome.THROTTLED

    def _give_up(self) -> None:
        """Who was not served yet is left as it is: the turn comes again."""
        self._given_up = self._ended = True
        self.errors.append(Unavailable("all messages to WebSockets are throttled"))
        for task in (*self._ready, *(task for _, _, task in self._waiting)):
            task.steps.close()
        self._ready.clear()
        self._waiting.clear()

    def _begin(self, now_ms: int) -> None:
        for steps in self._new:
            self._go_on(Task(steps), None, now_ms)
            return
        self._ended = True

    def _go_on(self, task: Task, outcome: Outcome | None, now_ms: int) -> None:
        try:
            step = task.steps.send(outcome)
        except StopIteration:
            return
        except Exception as error:  # noqa: BLE001 (raised when the others have ended)
            self.errors.append(error)
            return
        if self._given_up:
            task.steps.close()
        elif isinstance(step, Wait):
            heapq.heappush(self._waiting, (now_ms + step.ms, next(self._ids), task))
        else:
            task.request = step
            add = self._ready.appendleft if isinstance(step, Close) else self._ready.append
            add(task)  # a client that does not read is held up by nobody

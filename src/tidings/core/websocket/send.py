"""Deliver all messages of a connection in order, or cut the connection.

To cut a connection is to close it and to remove it from the store; the client then resumes from its
cursor. Generators without I/O decide which message is sent next and handle its outcome. `Delivery`
runs these generators one after the other. An `Exchange` runs the generators of many connections at
the same time. `Window` limits the requests to the rate that API Gateway accepts. Times in `Window`
and `Turn` are milliseconds of any monotonic clock.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tidings.core import limits
from tidings.core.errors import KeyEnded, Unavailable
from tidings.core.model import events
from tidings.core.websocket.connections import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidings.core.effects import Runtime, Spread
    from tidings.core.errors import Rejected
    from tidings.core.websocket.connections import ConnectionStore


class Sockets(Protocol):
    """The transport of messages to connected clients."""

    def send(self, connection_id: str, frame: str) -> Outcome:
        """Send one text message. It exceeds `limits.FRAME_BYTES_MAX` only if it has a single event.

        Every failure is returned as an outcome, so that one client never causes an error for
        others.
        """

    def close(self, connection_id: str) -> None:
        """Close the connection; do nothing if it is gone or never existed.

        Raises:
            Unavailable: it is unknown whether the connection was closed.
        """


class Send(NamedTuple):
    """A request of a generator to send one message. The answer is the outcome."""

    connection_id: str
    message: str


class Close(NamedTuple):
    """A request of a generator to close a connection. Answered by SENT, or UNKNOWN on an error."""

    connection_id: str


class Wait(NamedTuple):
    """A request of a generator to continue after *ms* milliseconds. The answer is None."""

    ms: int


Request = Send | Close
Steps = Generator[Request | Wait, Outcome | None, None]
# An exchange runs many deliveries concurrently. It raises errors when all deliveries have ended.
Exchange = Callable[[Iterable[Steps]], None]
# A broadcast sends each connection its messages at once, except to connections that do not accept
# all their messages now. It sends nothing to these connections, and returns their messages.
Broadcast = Callable[["Mapping[str, Sequence[str]]"], "Mapping[str, Sequence[str]]"]


@dataclass(slots=True)
class SendCounts:
    """The result of deliveries: the number of messages *sent*, and the connections *lost*.

    Messages to a lost connection are not counted.
    """

    sent: int = 0
    lost: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A sender of messages. If *exchange* is None, it serves connections one after the other.

    If *broadcast* is given, `send_each` first sends all messages with it.
    """

    sockets: Sockets
    connections: ConnectionStore
    runtime: Runtime
    exchange: Exchange | None = None
    broadcast: Broadcast | None = None

    def send(self, connection_id: str, messages: Sequence[str]) -> bool:
        """Send *messages*; return False if the connection is gone or had to be cut.

        A message is repeated only if it is known not to have arrived, and only a few times. Any
        other failure cuts the connection, so that the client reconnects and resumes from its
        cursor. No message is ever skipped on an open connection, and no message is sent after a
        message that may still arrive.
        """
        counts = SendCounts()
        self._drive(self.steps(connection_id, messages, counts))
        if counts.lost:
            self.connections.remove(connection_id)
            return False
        self.runtime.count("FramesSent", counts.sent)
        return True

    def send_each(self, messages: Mapping[str, Sequence[str]], spread: Spread) -> Sequence[str]:
        """Send each connection its own messages as `send` does; return the lost connections.

        A client that fails does not delay other clients. *spread* is used to remove the lost
        connections from the store.

        Raises:
            Unavailable: all messages were throttled for so long that the sends were given up.
                Connections that were lost before are still removed.
        """
        counts, left = SendCounts(), messages
        if self.broadcast is not None:
            left = self.broadcast(messages)
            counts.sent += sum(map(len, messages.values())) - sum(map(len, left.values()))
        try:
            self._drive_each(self.steps(*each, counts) for each in left.items())
        except Unavailable:
            self._settle(counts, spread)
            raise
        self._settle(counts, spread)
        return counts.lost

    def _settle(self, counts: SendCounts, spread: Spread) -> None:
        self.runtime.count("FramesSent", counts.sent)
        spread(self.connections.remove, counts.lost)

    def cut(self, connection_id: str) -> None:
        """Close the connection, so that the client is notified, then remove it from the store.

        If the connection cannot be closed, remove it nevertheless, because nothing more may be sent
        to it. The connection is closed later, when its client sends a message.
        """
        self._drive(self._cutting(connection_id))
        self.connections.remove(connection_id)

    def end(self, connection_id: str, reason: Rejected | None = None) -> None:
        """Send the client the error *reason*, by default `KeyEnded`, and cut the connection."""
        if reason is None:
            rule = "was revoked or has expired; subscribe with another key"
            reason = KeyEnded(rule, field="key")
        self.sockets.send(connection_id, events.error(reason.body()))
        self.cut(connection_id)

    # The steps for one connection, without I/O.

    def steps(self, connection_id: str, messages: Sequence[str], counts: SendCounts) -> Steps:
        """Yield the requests of `send`; a lost connection is closed, but stays in the store."""
        for message in messages:
            outcome = yield from _outcome_of(Send(connection_id, message))
            if outcome is not Outcome.SENT:
                # Record the loss before the close, because the generator may be ended during it.
                counts.lost.append(connection_id)
                yield from self._giving_up(connection_id, outcome)
                return
        counts.sent += len(messages)

    def _giving_up(self, connection_id: str, outcome: Outcome) -> Steps:
        """Count the failure, and close the connection unless the client has disconnected."""
        if outcome is Outcome.GONE:
            self.runtime.count("ConnectionsGone", 1)
            return
        if outcome is Outcome.REFUSED:
            self.runtime.count("SendsRefused", 1)
        elif outcome is Outcome.UNKNOWN:
            self.runtime.count("SendsUnknown", 1)
        yield from self._cutting(connection_id)

    def _cutting(self, connection_id: str) -> Steps:
        for attempt in range(limits.SEND_ATTEMPTS_MAX):
            if (yield Close(connection_id)) is Outcome.SENT:
                break
            yield Wait(limits.SEND_BACKOFF_MS << attempt)
        self.runtime.count("ConnectionsClosed", 1)

    # Execution of the steps.

    def _drive_each(self, deliveries: Iterable[Steps]) -> None:
        if self.exchange is not None:
            self.exchange(deliveries)
            return
        for delivery in deliveries:
            self._drive(delivery)

    def _drive(self, steps: Steps) -> None:
        outcome: Outcome | None = None
        with suppress(StopIteration):
            while True:
                outcome = self._do(steps.send(outcome))

    def _do(self, step: Request | Wait) -> Outcome | None:
        if isinstance(step, Wait):
            self.runtime.sleep(step.ms)
            return None
        return perform(self.sockets, step)


def perform(sockets: Sockets, request: Request) -> Outcome:
    """Execute *request* and return its outcome."""
    if isinstance(request, Send):
        return sockets.send(request.connection_id, request.message)
    try:
        sockets.close(request.connection_id)
    except Unavailable:
        return Outcome.UNKNOWN
    return Outcome.SENT


def _outcome_of(request: Send) -> Generator[Request | Wait, Outcome | None, Outcome]:
    """Send with retries; return the outcome, which is BUSY if no attempt was accepted."""
    for attempt in range(limits.SEND_ATTEMPTS_MAX):
        if attempt:
            yield Wait(limits.SEND_BACKOFF_MS << attempt - 1)
        outcome = yield request
        if outcome is not None and outcome is not Outcome.BUSY:
            return outcome
    return Outcome.BUSY


_GOT_THROUGH = (Outcome.SENT, Outcome.GONE, Outcome.REFUSED)


class Window:
    """A limit of concurrent requests that adapts like the congestion window of TCP.

    The limit grows with each success. When a request is throttled, the limit is halved, and no
    request is sent until `opens_ms`. The window is kept between turns, because the rate that API
    Gateway accepts stays the same.
    """

    def __init__(self) -> None:
        self.opens_ms = 0  # no request is sent before this time
        self._size = float(limits.SENDS_FIRST)
        self._slow_above = float(limits.SENDS_MAX)
        self._pause_ms = 0
        self._refused: set[str] = set()  # connections with a refusal among the latest answers
        self._passed = 0
        self._throttled_until_ms = 0

    def has_room(self, under_way: int, now_ms: int) -> bool:
        return now_ms >= self.opens_ms and under_way < int(self._size)

    def record_success(self, sent_ms: int) -> None:
        """Record a success of a request that was sent at *sent_ms*."""
        if sent_ms >= self.opens_ms:
            self._pause_ms = 0
        fast = self._size < self._slow_above
        self._size = min(limits.SENDS_MAX, self._size + (1 if fast else 1 / self._size))
        self._passed += 1
        if self._passed == limits.SEND_ANSWERS:
            self._passed = 0
            self._refused.clear()

    def record_refusal(self, connection_id: str, sent_ms: int, now_ms: int) -> bool:
        """Record a refusal; return True if all requests are throttled, False if this client is.

        API Gateway answers 429 in both cases, because it also refuses messages to a client that
        does not read. A few refused connections among many are therefore assumed to be slow
        clients. If several concurrent requests are throttled, only the first of them slows the
        sender down.
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
    """A delivery with its `request`, which is to be sent next or is not answered yet."""

    __slots__ = ("request", "sent_ms", "steps")

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self.sent_ms = 0
        self.request: Request


class Turn:
    """The execution of *deliveries*, the generators for one batch of messages, within *window*.

    Deliveries start in the given order when the window has room. Started deliveries have priority
    over new ones, so that a refused message does not wait for all others. While all requests are
    throttled, a refusal does not count as an attempt. When all requests have been throttled for
    `limits.SEND_PATIENCE_MS`, refused connections are cut. After twice that time, the turn is given
    up.
    """

    def __init__(self, deliveries: Iterable[Steps], window: Window) -> None:
        self.errors: list[Exception] = []
        self._new = iter(deliveries)
        self._window = window
        self._ready: deque[Task] = deque()
        self._waiting: list[tuple[int, int, Task]] = []
        self._ids = count()
        self._under_way = 0
        self._ended = False  # if True, no more deliveries are started
        self._given_up = False
        self._may_wait = True
        self._closes = False  # True if the last close succeeded
        self._stalled_ms: int | None = None  # time of the first refusal since the last success

    @property
    def done(self) -> bool:
        return self._ended and not (self._under_way or self._ready or self._waiting)

    def next(self, now_ms: int) -> Task | None:
        """Return the task of the request to send now, or None if no request may be sent now."""
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

    def record_outcome(self, task: Task, outcome: Outcome, now_ms: int) -> None:
        """Record *outcome* for the request of *task*.

        The outcome THROTTLED here means any temporary refusal of API Gateway.
        """
        self._under_way -= 1
        if outcome in _GOT_THROUGH:
            self._stalled_ms = None
            self._closes = self._closes or isinstance(task.request, Close)
            self._window.record_success(task.sent_ms)
        elif outcome is Outcome.THROTTLED:
            self._closes = self._closes and isinstance(task.request, Send)
            verdict = self._decide_refusal(task, now_ms)
            if verdict is None:
                self._ready.append(task)
                return
            outcome = verdict
        self._go_on(task, outcome, now_ms)

    def due_ms(self, now_ms: int) -> int | None:
        """Return when to call `next`, None if an answer only can change its result."""
        times = [self._waiting[0][0]] if self._waiting else []
        if self._window.opens_ms > now_ms and (self._ready or not self._ended):
            times.append(self._window.opens_ms)
        return min(times, default=None)

    def _decide_refusal(self, task: Task, now_ms: int) -> Outcome | None:
        """Return the outcome that the delivery gets for a refused request.

        Return None to repeat the request; the repetition does not count as an attempt.
        """
        if self._closes and not self._may_wait:
            return Outcome.THROTTLED  # closes succeed, so the refused clients do not read
        if not self._window.record_refusal(task.request.connection_id, task.sent_ms, now_ms):
            return Outcome.BUSY
        if self._stalled_ms is None:
            self._stalled_ms = now_ms
        stalled_ms = now_ms - self._stalled_ms
        self._may_wait = self._may_wait and stalled_ms < limits.SEND_PATIENCE_MS
        if stalled_ms >= 2 * limits.SEND_PATIENCE_MS and not self._given_up:
            self._give_up()
        return None if self._may_wait else Outcome.THROTTLED

    def _give_up(self) -> None:
        """Give up the turn.

        Connections with unsent messages stay open, because the follower repeats the turn.
        """
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
        except Exception as error:  # noqa: BLE001 (raised when the other deliveries have ended)
            self.errors.append(error)
            return
        if self._given_up:
            task.steps.close()
        elif isinstance(step, Wait):
            heapq.heappush(self._waiting, (now_ms + step.ms, next(self._ids), task))
        else:
            task.request = step
            add = self._ready.appendleft if isinstance(step, Close) else self._ready.append
            add(task)  # closes are first, so that a client that does not read delays no other

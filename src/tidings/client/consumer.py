"""A consumer with acknowledgements, which reads ahead and saves the cursor after handled events.

With `for`, a separate thread reads; with `async for`, a task in the running event loop reads. A
copy consists of the rows of the feed's state, which the feed sends after a `reset`.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Unpack

from tidings.client.address import Subscription, Switches
from tidings.client.errors import Lost
from tidings.client.events import RESET, Event, Moved
from tidings.client.files import EVERYTHING, SAVE_EVERY_S, StateFile, start
from tidings.client.reconnect import ListenAsync, Transport, listeners, resume_async
from tidings.client.retries import Closing, log_lost
from tidings.core.model.cursors import NOW

AFTER_RESET = "1"  # the id of `reset`, after which the consumer has no objects (PROTOCOL 6.3)
# Events in memory; usually up to 1 MB, as an operation is rarely above 1 KB, never above 64 KB.
IN_FLIGHT_MAX = 1000


@dataclass(slots=True, eq=False)
class Group:
    """Consecutive events with one id, as rows of a copy, which the cursor passes together."""

    id: str
    unacked: int


class InFlight:
    """The delivered groups, in order. The cursor moves past a group once the group is acknowledged.

    An acknowledged group is kept, without its events, until all earlier groups are acknowledged.
    *limit* bounds the number of groups, and of unacknowledged events, and so the memory.
    """

    def __init__(self, cursor: str, limit: int) -> None:
        self.cursor = cursor
        self._limit = limit
        self._groups: deque[Group] = deque()
        self._unacked = 0

    @property
    def is_full(self) -> bool:
        return max(self._unacked, len(self._groups)) >= self._limit

    @property
    def is_half_empty(self) -> bool:
        """Return True if the reader should resume; resuming for each event would be expensive."""
        return max(self._unacked, len(self._groups)) <= self._limit // 2

    def add(self, event_id: str) -> Group:
        """Add an event; return its group, for `ack`. One without an id joins the last group."""
        last = self._groups[-1] if self._groups else None
        if last is None or event_id not in ("", last.id):
            last = Group(event_id or self.cursor, 0)
            self._groups.append(last)
        last.unacked += 1
        self._unacked += 1
        return last

    def ack(self, group: Group) -> None:
        """Record that one event of *group* is handled."""
        group.unacked -= 1
        self._unacked -= 1
        self._advance()

    def move(self, cursor: str) -> None:
        """Let the cursor move to *cursor* once the earlier groups are acknowledged.

        The feed has sent all events up to *cursor*.
        """
        if self._groups and self._groups[-1].unacked == 0:
            self._groups[-1].id = cursor
        else:
            self._groups.append(Group(cursor, 0))
        self._advance()

    def _advance(self) -> None:
        while self._groups and self._groups[0].unacked == 0:
            self.cursor = self._groups.popleft().id


class Delivery:
    """An event, to be acknowledged once it is handled; otherwise a restart delivers it again.

    `name` is insert, update, delete, leave, erase, reset or live; `data` is the operation.
    """

    __slots__ = ("_buffer", "_group", "event")

    def __init__(self, event: Event, buffer: PrefetchBuffer, group: Group) -> None:
        self.event = event
        self._buffer = buffer
        self._group: Group | None = group

    def __repr__(self) -> str:
        return f"Delivery({self.event!r})"

    @property
    def id(self) -> str:
        return self.event.id

    @property
    def name(self) -> str:
        return self.event.name

    @property
    def data(self) -> dict[str, Any]:
        return self.event.data

    @property
    def is_operation(self) -> bool:
        return self.event.is_operation

    def ack(self) -> None:
        """Acknowledge the event.

        Any thread may acknowledge events, in any order. A repeated call has no effect.
        """
        self._buffer.ack(self)


class _Waiting(NamedTuple):
    """A paused reader.

    The reader waits for room. If *reset* is not None, it also waits until *reset* is acknowledged.
    """

    reset: Delivery | None
    wake: Callable[[], object]


class PrefetchBuffer:
    """A reader that passes the events of a feed to a function.

    Reading pauses while too many events are unacknowledged. Reading also pauses after a `reset`
    until the `reset` is acknowledged, so that events of the new copy do not mix with objects that
    the consumer is about to drop.
    """

    def __init__(
        self,
        listen: ListenAsync,
        cursor: str,
        *,
        in_flight_max: int,
        state: StateFile | None,
        on_lost: Callable[[Lost, float], None],
        timeout_s: float | None,
    ) -> None:
        self._listen = listen
        self._on_lost, self._timeout_s = on_lost, timeout_s
        self._state = state
        self._lock = threading.Lock()  # acknowledgements come from any thread
        self._in_flight = InFlight(cursor, in_flight_max)
        self._waiting: _Waiting | None = None

    @property
    def cursor(self) -> str:
        with self._lock:
            return self._in_flight.cursor

    async def run(self, put: Callable[[Delivery], None]) -> None:
        """Read events, and save the cursor regularly, until one of the two fails.

        Raises:
            ClientError: the feed refuses, or the state cannot be saved.
        """
        tasks = {asyncio.create_task(self._read(put)), asyncio.create_task(self._save_often())}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def ack(self, delivery: Delivery) -> None:
        with self._lock:
            group, delivery._group = delivery._group, None
            if group is None:
                return
            self._in_flight.ack(group)
            waiting = self._reader_to_wake()
        if waiting is not None:
            with contextlib.suppress(RuntimeError):  # the loop may have ended in the meantime
                waiting.wake()

    def save(self) -> None:
        """Write the cursor, unless it is already saved or not yet known.

        Raises:
            WrongState: the cursor cannot be written.
        """
        cursor = self.cursor
        # A restart has to begin with another `reset` and copy, because objects that were handled
        # since this `reset` may be deleted from the feed before the restart.
        if cursor == AFTER_RESET:
            cursor = EVERYTHING
        if self._state is not None and cursor not in ("", NOW):
            self._state.save(cursor)

    async def _read(self, put: Callable[[Delivery], None]) -> None:
        items = resume_async(
            self._listen, self.cursor, on_lost=self._on_lost, timeout_s=self._timeout_s
        )
        async with aclosing(items):
            async for item in items:
                if isinstance(item, Moved):
                    with self._lock:
                        is_first = self._in_flight.cursor in ("", NOW)
                        self._in_flight.move(item.cursor)
                    if is_first:  # without a saved cursor, a killed consumer would start later
                        await asyncio.to_thread(self.save)
                    continue
                with self._lock:
                    delivery = Delivery(item, self, self._in_flight.add(item.id))
                put(delivery)
                await self._until_more_may_come(delivery)

    async def _until_more_may_come(self, last: Delivery) -> None:
        with self._lock:
            waits_for = last if last.name == RESET and last._group is not None else None
            if waits_for is None and not self._in_flight.is_full:
                return
            woken, loop = asyncio.Event(), asyncio.get_running_loop()
            self._waiting = _Waiting(waits_for, lambda: loop.call_soon_threadsafe(woken.set))
        await woken.wait()

    def _reader_to_wake(self) -> _Waiting | None:
        """Return the paused reader if it can resume now, else None. The caller holds the lock."""
        waiting = self._waiting
        if waiting is None or (waiting.reset is not None and waiting.reset._group is not None):
            return None
        if not self._in_flight.is_half_empty:
            return None
        self._waiting = None
        return waiting

    async def _save_often(self) -> None:
        while True:
            await asyncio.to_thread(self.save)
            await asyncio.sleep(SAVE_EVERY_S)


class Consumer(Closing):
    """The events of *feed*, each one a `Delivery` to be acknowledged.

    Unacknowledged events are delivered again after a restart, in order, without gaps. Within one
    run, an operation is delivered once; only rows of an interrupted copy may be repeated. Reading
    pauses while *in_flight_max* events wait for the oldest unacknowledged event, and after a
    `reset` until the `reset` is acknowledged. After a lost connection, the consumer reconnects with
    delays of 1 to 32 seconds, without end unless *timeout_s* limits the time in which no attempt
    succeeds. *on_lost* is called for each loss, in the reading thread if there is one; the
    default logs a warning.

    The consumer starts at the cursor in *state_file*, else at *cursor*, else at the end of the log.
    If *allow_replication* is True, *cursor* is None, and *state_file* names a file that does not
    exist or is empty, the consumer starts with a copy of everything. Close the consumer, or use
    `with`. The cursor is saved once a second and at the end. *switches* are described in
    `address.Subscription`.

    Raises:
        WrongUrl: *url* or *ws_url* is not a valid address.
        WrongState: the state file cannot be read or written, now or later while iterating.
        AccessDenied, Refused: the server gave a final answer, while iterating.
        Lost: *timeout_s* is over, while iterating.
    """

    def __init__(
        self,
        url: str,
        *,
        transport: Transport = "ws",
        feed: str = "main",
        types: Sequence[str] = (),
        parents: Sequence[str] = (),
        ids: Sequence[str] = (),
        password: str = "",
        cursor: str | None = None,
        state_file: Path | str | None = None,
        allow_replication: bool = False,
        in_flight_max: int = IN_FLIGHT_MAX,
        ws_url: str | None = None,
        timeout_s: float | None = None,
        on_lost: Callable[[Lost, float], None] = log_lost,
        **switches: Unpack[Switches],
    ) -> None:
        if in_flight_max < 1:
            raise ValueError(f"in_flight_max must be at least 1, not {in_flight_max}")
        wanted = Subscription(
            feed=feed,
            types=types,
            parents=parents,
            ids=ids,
            password=password,
            **switches,
        )
        state = StateFile(Path(state_file)) if state_file is not None else None
        _, listen = listeners(transport, url, ws_url, wanted)
        self._buffer = PrefetchBuffer(
            listen,
            start(state, cursor, allow_replication=allow_replication),
            in_flight_max=in_flight_max,
            state=state,
            on_lost=on_lost,
            timeout_s=timeout_s,
        )
        self._ended = False
        self._lock = threading.Lock()  # several threads may share the iteration, or end it
        self._thread: _Thread | None = None
        self._task: _Task | None = None

    @property
    def cursor(self) -> str:
        """Return the cursor after the acknowledged events; `now` until a cursor is known."""
        return self._buffer.cursor

    @property
    def ended(self) -> bool:
        """Return True if no event will be delivered any more."""
        return self._ended

    def __iter__(self) -> Consumer:
        return self

    def __next__(self) -> Delivery:
        delivery = self.within(None)
        if delivery is None:
            raise StopIteration
        return delivery

    def within(self, timeout_s: float | None) -> Delivery | None:
        """Return the next event, as `for` does; None after *timeout_s* or `close`.

        Raises:
            WrongState, AccessDenied, Refused: as while iterating.
        """
        with self._lock:
            if self._ended:
                return None
            if self._thread is None:
                self._thread = _Thread(self._buffer)
        try:
            return self._deliver(self._thread.get(timeout_s))
        except queue.Empty:
            return None

    def close(self) -> None:
        """Stop reading, save the cursor and end every `for`. Any thread may call this method.

        Raises:
            WrongState: the cursor could not be saved.
        """
        with self._lock:
            self._ended = True
        if self._thread is not None:
            self._thread.stop()
        self._buffer.save()

    async def __aenter__(self) -> Consumer:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    def __aiter__(self) -> Consumer:
        return self

    async def __anext__(self) -> Delivery:
        if self._ended:
            raise StopAsyncIteration
        if self._task is None:
            self._task = _Task(self._buffer)
        delivery = self._deliver(await self._task.get())
        if delivery is None:
            raise StopAsyncIteration
        return delivery

    async def aclose(self) -> None:
        """Do the same as `close`, from within the event loop."""
        self._ended = True
        if self._task is not None:
            await self._task.stop()
        await asyncio.to_thread(self._buffer.save)

    def _deliver(self, received: Delivery | _Ended) -> Delivery | None:
        """Return *received*, or None at the end; raise an error only once."""
        if isinstance(received, Delivery):
            return received
        self._ended = True
        if received.error is not None:
            raise received.error
        return None


@dataclass(frozen=True, slots=True)
class _Ended:
    """The end of the events. *error* is the reason, None if the consumer was closed."""

    error: BaseException | None = None


class _Thread:
    """A thread that runs the buffer in its own event loop, and queues the deliveries."""

    def __init__(self, buffer: PrefetchBuffer) -> None:
        self._buffer = buffer
        self._deliveries: queue.SimpleQueue[Delivery | _Ended] = queue.SimpleQueue()
        self._running = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tidings-consumer", daemon=True)
        self._thread.start()
        self._running.wait()

    def get(self, timeout_s: float | None) -> Delivery | _Ended:
        received = self._deliveries.get(timeout=timeout_s)
        if isinstance(received, _Ended):
            self._deliveries.put(_Ended())  # ends the other waiting threads
        return received

    def stop(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop may have ended by itself
            self._loop.call_soon_threadsafe(self._task.cancel)
        # *on_lost* runs in this thread and may close the consumer; a thread cannot join itself.
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.ensure_future(self._buffer.run(self._deliveries.put))
        self._running.set()
        await asyncio.wait({self._task})
        self._deliveries.put(_end_of(self._task))


class _Task:
    """A task that runs the buffer in the running event loop, and queues the deliveries."""

    def __init__(self, buffer: PrefetchBuffer) -> None:
        self._deliveries: asyncio.Queue[Delivery | _Ended] = asyncio.Queue()
        self._task = asyncio.create_task(buffer.run(self._deliveries.put_nowait))
        self._task.add_done_callback(lambda task: self._deliveries.put_nowait(_end_of(task)))

    async def get(self) -> Delivery | _Ended:
        received = await self._deliveries.get()
        if isinstance(received, _Ended):
            self._deliveries.put_nowait(_Ended())  # ends the other waiting tasks
        return received

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})


def _end_of(task: asyncio.Task[None]) -> _Ended:
    return _Ended(None if task.cancelled() else task.exception())

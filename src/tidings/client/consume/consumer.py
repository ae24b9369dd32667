"""
A consumer with acknowledgements. It reads ahead, and saves the cursor after handled events.

With `for`, a separate thread reads; with `async for`, a task in the running event loop does.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidings.client.closing import Closing
from tidings.client.consume.checkpoint_file import StateFile, start
from tidings.client.consume.follow import Transport, listeners
from tidings.client.consume.prefetch import Delivery, Intake
from tidings.client.errors import Lost
from tidings.client.subscription import Subscription

IN_FLIGHT_MAX = 1000  # a few MB at most: an operation is rarely above 1 KB, never above 64 KB


class Consumer(Closing):
    """
    The events of *feed*, each one a `Delivery` to be acknowledged.

    Unacknowledged events are delivered again after a restart, in order; none is skipped. Within one
    run an operation is delivered once; only rows of an interrupted copy may be repeated. Reading
    pauses while *in_flight_max* events wait for the oldest unacknowledged one, and after a `reset`
    until it is acknowledged. After a lost connection the consumer reconnects with delays of 1 to 32
    seconds. *on_lost* is called for each loss, in the reading thread if one exists.

    It starts at the cursor in *state_file*, else at *cursor*, else at the end of the log. With
    *allow_replication* and a *state_file* that is missing or empty, it starts with a copy of
    everything. Close it, or use `with`. It saves the cursor once a second and when it is closed.

    Raises:
        WrongUrl: *url* or *ws_url* is not a valid address.
        WrongState: the state file cannot be read or written, now or later while iterating.
        AccessDenied, Refused: while iterating: the server gave a final answer.
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
        leave: bool = False,
        password: str = "",
        cursor: str | None = None,
        state_file: Path | str | None = None,
        allow_replication: bool = False,
        in_flight_max: int = IN_FLIGHT_MAX,
        ws_url: str | None = None,
        on_lost: Callable[[Lost, float], None] = lambda lost, delay_s: None,
    ) -> None:
        if in_flight_max < 1:
            raise ValueError(f"in_flight_max must be at least 1, not {in_flight_max}")
        wanted = Subscription(feed, tuple(types), tuple(parents), leave, password, tuple(ids))
        state = StateFile(Path(state_file)) if state_file is not None else None
        _, listen = listeners(transport, url, ws_url, wanted)
        self._intake = Intake(
            listen,
            start(state, cursor, allow_replication=allow_replication),
            in_flight_max=in_flight_max,
            state=state,
            on_lost=on_lost,
        )
        self._ended = False
        self._lock = threading.Lock()  # several threads may share the iteration, or end it
        self._thread: _Thread | None = None
        self._task: _Task | None = None

    @property
    def cursor(self) -> str:
        """Return the cursor after the acknowledged events; `now` if none is known yet."""
        return self._intake.cursor

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
        """
        Return the next event, as `for` does; None after *timeout_s* or once the consumer is closed.

        Raises:
            WrongState, AccessDenied, Refused: as while iterating.
        """
        with self._lock:
            if self._ended:
                return None
            if self._thread is None:
                self._thread = _Thread(self._intake)
        try:
            return self._delivered(self._thread.get(timeout_s))
        except queue.Empty:
            return None

    def close(self) -> None:
        """
        Stop reading, save the cursor and end every `for`. Any thread may call it.

        Raises:
            WrongState: the cursor could not be saved.
        """
        with self._lock:
            self._ended = True
        if self._thread is not None:
            self._thread.stop()
        self._intake.save()

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
            self._task = _Task(self._intake)
        delivery = self._delivered(await self._task.get())
        if delivery is None:
            raise StopAsyncIteration
        return delivery

    async def aclose(self) -> None:
        """Close it as `close` does, from within the event loop."""
        self._ended = True
        if self._task is not None:
            await self._task.stop()
        await asyncio.to_thread(self._intake.save)

    def _delivered(self, received: Delivery | _Ended) -> Delivery | None:
        """Return None at the end. Raise an error only once; later calls return None."""
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
    """The intake in a thread with its own event loop; deliveries go through a queue."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._deliveries: queue.SimpleQueue[Delivery | _Ended] = queue.SimpleQueue()
        self._running = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tidings-consumer", daemon=True)
        self._thread.start()
        self._running.wait()

    def get(self, timeout_s: float | None) -> Delivery | _Ended:
        received = self._deliveries.get(timeout=timeout_s)
        if isinstance(received, _Ended):
            self._deliveries.put(_Ended())  # for the other waiting threads
        return received

    def stop(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop may have ended by itself
            self._loop.call_soon_threadsafe(self._task.cancel)
        if threading.current_thread() is not self._thread:  # *on_lost* may close it, too
            self._thread.join()

    def _run(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.ensure_future(self._intake.run(self._deliveries.put))
        self._running.set()
        await asyncio.wait({self._task})
        self._deliveries.put(_ended(self._task))


class _Task:
    """The intake in the running event loop."""

    def __init__(self, intake: Intake) -> None:
        self._deliveries: asyncio.Queue[Delivery | _Ended] = asyncio.Queue()
        self._task = asyncio.create_task(intake.run(self._deliveries.put_nowait))
        self._task.add_done_callback(lambda task: self._deliveries.put_nowait(_ended(task)))

    async def get(self) -> Delivery | _Ended:
        received = await self._deliveries.get()
        if isinstance(received, _Ended):
            self._deliveries.put_nowait(_Ended())  # for the other waiting tasks
        return received

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})


def _ended(task: asyncio.Task[None]) -> _Ended:
    return _Ended(None if task.cancelled() else task.exception())

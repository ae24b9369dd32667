"""The reading half of a consumer. It runs in an event loop and waits for acknowledgements."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from contextlib import aclosing
from typing import Any, NamedTuple

from tidings.client.consume.checkpoint_file import EVERYTHING, NOW, SAVE_EVERY_S, StateFile
from tidings.client.consume.follow import ListenAsync, resume_async
from tidings.client.consume.in_flight import Group, InFlight
from tidings.client.errors import Lost
from tidings.client.events import RESET, Event, Moved

AFTER_RESET = "1"  # the id of `reset`: all objects are dropped, none is handled since (P6.3)


class Delivery:
    """
    An event to be acknowledged once it is handled; otherwise it is delivered again after a restart.

    `name` is insert, update, delete, leave, reset or live; `data` is the operation.
    """

    __slots__ = ("_group", "_intake", "event")

    def __init__(self, event: Event, intake: Intake, group: Group) -> None:
        self.event = event
        self._intake = intake
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
        """
        Acknowledge the event. Any thread may call it, in any order; repeated calls have no effect.
        """
        self._intake.ack(self)


class _Waiting(NamedTuple):
    """A paused reader. It waits for the acknowledgement of *reset*, if any, and for room."""

    reset: Delivery | None
    wake: Callable[[], object]


class Intake:
    """
    Reads a feed into *put* until it is cancelled or the feed refuses.

    Reading pauses while too many events are in flight, and after a `reset` until it is
    acknowledged: events of the new copy must not be mixed with objects that are about to be
    dropped.
    """

    def __init__(
        self,
        listen: ListenAsync,
        cursor: str,
        *,
        in_flight_max: int,
        state: StateFile | None,
        on_lost: Callable[[Lost, float], None],
    ) -> None:
        self._listen = listen
        self._on_lost = on_lost
        self._state = state
        self._lock = threading.Lock()  # acknowledgements come from any thread
        self._in_flight = InFlight(cursor, in_flight_max)
        self._waiting: _Waiting | None = None

    @property
    def cursor(self) -> str:
        with self._lock:
            return self._in_flight.cursor

    async def run(self, put: Callable[[Delivery], None]) -> None:
        """
        Read events and save the cursor until one of the two fails.

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
            waiting = self._woken()
        if waiting is not None:
            with contextlib.suppress(RuntimeError):  # the loop may have ended in the meantime
                waiting.wake()

    def save(self) -> None:
        """
        Write the cursor, unless it is saved already or not known yet.

        Raises:
            WrongState: the cursor cannot be written.
        """
        cursor = self.cursor
        if cursor == AFTER_RESET:  # rows handled since are not tracked and may be deleted by then
            cursor = EVERYTHING
        if self._state is not None and cursor not in ("", NOW):
            self._state.save(cursor)

    async def _read(self, put: Callable[[Delivery], None]) -> None:
        signs = resume_async(self._listen, self.cursor, on_lost=self._on_lost)
        async with aclosing(signs):
            async for sign in signs:
                if isinstance(sign, Moved):
                    with self._lock:
                        self._in_flight.move(sign.cursor)
                    continue
                with self._lock:
                    delivery = Delivery(sign, self, self._in_flight.add(sign.id))
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

    def _woken(self) -> _Waiting | None:
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

"""Requests that come at the same time are made safe together, by one write to the disk."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable

from . import clock, intake
from .options import Bound
from .store import Store


class Committing:
    """*grown* is called when there are more lines to send. Use it from one event loop."""

    def __init__(self, store: Store, bound: Bound, grown: Callable[[], None]) -> None:
        self._store = store
        self._bound = bound
        self._grown = grown
        self._waiting: list[tuple[list[str], asyncio.Future[bool]]] = []
        self._working: asyncio.Task[None] | None = None

    async def add(self, lines: list[str]) -> bool:
        """
        Return once *lines* are safe on disk; False: they do not fit.

        Raises:
            sqlite3.OperationalError: the disk does not take them.
        """
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((lines, answer))
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._work())
        return await answer

    async def _work(self) -> None:
        while self._waiting:
            group, self._waiting = self._waiting, []
            kept: list[bool] | sqlite3.OperationalError
            try:
                kept = await asyncio.to_thread(self._commit, [lines for lines, _ in group])
            except sqlite3.OperationalError as error:
                kept = error
            for at, (_, answer) in enumerate(group):
                if answer.done():
                    continue  # the producer has gone; its operations are queued all the same
                if isinstance(kept, sqlite3.OperationalError):
                    answer.set_exception(kept)
                else:
                    answer.set_result(kept[at])
            self._grown()

    def _commit(self, requests: list[list[str]]) -> list[bool]:
        return intake.add_lines(self._store, requests, now_ms=clock.now_ms(), bound=self._bound)

"""
Wake-ups after a commit: followers run in threads, event streams in the loop.

On AWS a wake-up invokes a function; here it sets an event. The rules are the same: a wake-up may be
lost, repeated or late, and only means that there may be new data.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

from tidings.core.errors import TidingsError
from tidings.core.replication.relay import RELAY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tidings.core.followers.leases import Observation

log = logging.getLogger(__name__)
PAUSE_S_MAX = 0.05  # between two runs, however long the last one took
AGAIN_S = 1.0  # retry after a failed run; the next commit or sweep may start it earlier


class Runs:
    """
    A thread that runs one follower, for one feed at a time.

    After a run it pauses for *rest* times the duration of the run, at most *pause_s_max*: the pages
    written during the pause are handled in one run, and appends get the remaining CPU time.
    """

    def __init__(
        self,
        name: str,
        run: Callable[[str], object],
        rest: Callable[[], float],
        pause_s_max: float = PAUSE_S_MAX,
    ) -> None:
        self._name, self._run, self._rest = name, run, rest
        self._pause_s_max = pause_s_max
        # Feeds in the order of arrival; None ends the thread. Putting never blocks, so the event
        # loop may do it. *due* prevents a feed from being queued twice.
        self._queue: SimpleQueue[str | None] = SimpleQueue()
        self._due: set[str] = set()
        self._stopped = False
        self._thread = Thread(target=self._serve, name=f"follow-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self, feed: str) -> None:
        """Schedule a run of *feed*; callable from any thread, without blocking."""
        if feed not in self._due:
            self._due.add(feed)
            self._queue.put(feed)

    def stop(self) -> None:
        """Start no more runs."""
        self._stopped = True
        self._queue.put(None)

    def join(self) -> None:
        """Wait for the current run to end, after `stop`."""
        if self._thread.is_alive():
            self._thread.join()

    def _serve(self) -> None:
        while (feed := self._next()) is not None:
            began_s = time.monotonic()
            try:
                self._run(feed)
            except TidingsError as error:
                log.warning("follower stopped: %s %s: %s", self._name, feed, error)
                self._again(feed)
            except Exception:
                if self._stopped:  # the file is closed
                    return
                log.exception("follower failed: %s %s", self._name, feed)
                self._again(feed)
            time.sleep(min(self._pause_s_max, self._rest() * (time.monotonic() - began_s)))

    def _next(self) -> str | None:
        feed = self._queue.get()
        if feed is None or self._stopped:
            return None
        self._due.discard(feed)  # before the run: later writes need another run
        return feed

    def _again(self, feed: str) -> None:
        time.sleep(AGAIN_S)
        self.wake(feed)


class Wakeups:
    """
    Implements `Waker`: *replay* runs the catch-up of a connection.

    *runs* are by follower. *relays* are by feed, because a relay's run waits for its upstream.
    """

    def __init__(self, replay: Callable[[str], None]) -> None:
        self._replay = replay
        self.runs: dict[str, Runs] = {}
        self.relays: dict[str, Runs] = {}

    def ring(self, feed: str, follower: str, observation: Observation | None = None) -> None:
        """
        Schedule a run of *follower*; *observation* is unused, because leases end with the process.
        """
        runs = self.relays.get(feed) if follower == RELAY else self.runs.get(follower)
        if runs is not None:
            runs.wake(feed)

    def replay(self, connection_id: str) -> None:
        self._replay(connection_id)

    def start(self) -> None:
        for each in (*self.runs.values(), *self.relays.values()):
            each.start()

    def stop(self) -> None:
        """Wait for the current runs to end, except for relays: they may wait for an upstream."""
        for each in (*self.runs.values(), *self.relays.values()):
            each.stop()
        for each in self.runs.values():
            each.join()


class _Listening:
    """Implements `tail_poller.News`."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    async def wait(self) -> None:
        await self._event.wait()
        self._event.clear()

    def look(self) -> None:
        self._event.set()


class News:
    """A notifier of new pages, for the readers at the end of a feed in the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._listening: defaultdict[str, list[_Listening]] = defaultdict(list)

    def listen(self, feed: str) -> _Listening:
        """Implements `tail_poller.Listen`."""
        listening = _Listening()
        self._listening[feed].append(listening)
        return listening

    def tell(self, feeds: Iterable[str]) -> None:
        """Notify the readers of *feeds*; callable from any thread."""
        self._loop.call_soon_threadsafe(self._tell, list(feeds))

    def _tell(self, feeds: list[str]) -> None:
        for feed in feeds:
            for listening in self._listening[feed]:
                listening.look()

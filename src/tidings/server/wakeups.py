"""Wake followers, webhooks and event streams after a commit.

Followers and webhooks run in threads, and event streams in the event loop. On AWS a wake-up invokes
a function. Here it puts an entry into a queue, or sets an event. The rules are the same: a wake-up
may be lost, repeated or late, and only means that there may be new data.
"""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

from tidings.core.errors import TidingsError
from tidings.core.model.feeds import STATE
from tidings.core.replication.relay import RELAY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tidings.core.effects import Clock
    from tidings.core.followers.leases import Observation
    from tidings.core.hooks.registry import Named, Registry
    from tidings.core.hooks.webhook import Webhook, WebhookDelivery
    from tidings.core.model.pages import Page

log = logging.getLogger(__name__)
PAUSE_S_MAX = 0.05  # the longest pause between two runs, even after a long run
SLICE_S = 0.005  # the work of a long run between two pauses
AGAIN_S = 1.0  # the pause after a failed run, before the run is repeated
LOOK_S = 1.0  # the pause between two looks at a webhook that has or may have something to do
# Maximum number of webhooks that are called concurrently. A call that hangs lasts 25 s; its webhook
# then pauses for minutes.
ENDPOINTS = 16
Key = tuple[str, str]  # feed and name


def call_later(
    loop: asyncio.AbstractEventLoop, seconds: float, call: Callable[..., object], *arguments: object
) -> None:
    """Let *loop* run *call* with *arguments* after *seconds*; callable from any thread.

    Do nothing if the loop is closed.
    """
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(loop.call_later, seconds, call, *arguments)


class Retries:
    """The feeds for which the last run of the follower *name* failed.

    Each of them runs again after a pause, and not before: *wake* is then called in *loop*.
    """

    def __init__(
        self, name: str, loop: asyncio.AbstractEventLoop, wake: Callable[[str], object]
    ) -> None:
        self._name, self._loop, self._wake = name, loop, wake
        self._failed: set[str] = set()

    def __contains__(self, feed: str) -> bool:
        return feed in self._failed

    @contextmanager
    def run(self, feed: str) -> Iterator[None]:
        """Run the follower inside the context. If this raises, log the error and try again."""
        try:
            yield
        except TidingsError as error:
            fields = {"follower": self._name, "feed": feed, "error": error}
            log.warning("follower stopped: %(follower)s %(feed)s: %(error)s", fields)
        except Exception:
            fields = {"follower": self._name, "feed": feed}
            log.exception("follower failed: %(follower)s %(feed)s", fields)
        else:
            return
        self._failed.add(feed)
        call_later(self._loop, AGAIN_S, self._again, feed)

    def _again(self, feed: str) -> None:
        self._failed.discard(feed)
        self._wake(feed)


class Rests:
    """The pauses within a long run of a thread, which calls this object often.

    After `SLICE_S`, a call pauses for *rest* times this duration, so that the event loop does not
    wait for Python's interpreter lock all the time.
    """

    def __init__(self, rest: float) -> None:
        self._rest, self._began_s = rest, time.monotonic()

    def __call__(self) -> None:
        worked_s = time.monotonic() - self._began_s
        if worked_s >= SLICE_S:
            time.sleep(min(PAUSE_S_MAX, self._rest * worked_s))
            self._began_s = time.monotonic()


class Runs:
    """A thread that runs one follower, for one feed at a time.

    After a run, the thread pauses for *rest* times the duration of the run, at most for
    `PAUSE_S_MAX`. The next run handles all pages that are written during the pause. So runs take
    less CPU time from appends.
    """

    def __init__(
        self,
        name: str,
        run: Callable[[str], object],
        rest: float,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._run, self._rest = run, rest
        self._retries = Retries(name, loop, self.wake)
        # The feeds to run, in the order of their wake-ups; None ends the thread. The event loop may
        # put feeds, because putting never blocks. `_due` prevents a feed from being queued twice.
        self._queue: SimpleQueue[str | None] = SimpleQueue()
        self._due: set[str] = set()
        self._stopped = False
        self._thread = Thread(target=self._serve, name=f"follow-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self, feed: str) -> None:
        """Schedule a run of *feed*; callable from any thread, without blocking."""
        if feed not in self._due and feed not in self._retries:
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
        while (feed := self._queue.get()) is not None and not self._stopped:
            self._due.discard(feed)  # before the run, because pages written later need another run
            began_s = time.monotonic()
            with self._retries.run(feed):
                self._run(feed)
            time.sleep(min(PAUSE_S_MAX, self._rest * (time.monotonic() - began_s)))


class Wakeups:
    """Implements `Waker`. *replay* runs the catch-up of a connection. *loop* has the timers."""

    def __init__(self, loop: asyncio.AbstractEventLoop, replay: Callable[[str], None]) -> None:
        self._loop, self._replay = loop, replay
        self._planned: set[tuple[str, str]] = set()

    def follow(
        self,
        wake_state: Callable[[str], object],
        runs: Mapping[str, Runs],
        relays: Mapping[str, Runs],
    ) -> None:
        """Wake these from now on; call this before any other method.

        *runs* has one thread for each follower. *relays* has one thread for each chained feed,
        because the run of a relay waits for its upstream. The follower `state` has no thread,
        because *wake_state* schedules its runs in the event loop.
        """
        self._wake_state, self._runs, self._relays = wake_state, runs, relays

    def wake(self, feed: str, follower: str, observation: Observation | None = None) -> None:
        """Schedule a run of *follower* for *feed*.

        *observation* is not used: leases end with the process, so no holder can have crashed.
        """
        if follower == STATE:
            self._wake_state(feed)
            return
        runs = self._relays.get(feed) if follower == RELAY else self._runs.get(follower)
        if runs is not None:
            runs.wake(feed)

    def wake_later(self, feed: str, follower: str, seconds: float) -> None:
        """Wake *follower* after *seconds*, unless such a call already waits; for any thread."""
        if (feed, follower) not in self._planned:
            self._planned.add((feed, follower))
            call_later(self._loop, seconds, self._wake_planned, feed, follower)

    def wake_seldom(self, feed: str, follower: str, seconds: float) -> None:
        """Wake *follower* now and after *seconds*, unless the latter is already planned."""
        if (feed, follower) not in self._planned:
            self.wake(feed, follower)
            self.wake_later(feed, follower, seconds)

    def _wake_planned(self, feed: str, follower: str) -> None:
        self._planned.discard((feed, follower))
        self.wake(feed, follower)

    def replay(self, connection_id: str) -> None:
        self._replay(connection_id)

    def start(self) -> None:
        for each in (*self._runs.values(), *self._relays.values()):
            each.start()

    def stop(self) -> None:
        """Start no more runs, and wait for the current runs of followers.

        Runs of relays are not awaited, because they may wait for an upstream.
        """
        for each in (*self._runs.values(), *self._relays.values()):
            each.stop()
        for each in self._runs.values():
            each.join()


class _Listening:
    """Implements `tail_poller.Notifications`.

    *_pages* is None if the log must be read, as it is while no reader waits. *observe* is called
    with the time since the first of the pages was committed, and the number of streams that have
    received them. *end* is called with this object when it is closed.
    """

    def __init__(
        self, observe: Callable[[float, int], object], end: Callable[[_Listening], object]
    ) -> None:
        self._event, self._observe, self._end = asyncio.Event(), observe, end
        self._pages: list[Page] | None = None
        self._committed_s = self._waited_s = 0.0  # 0: no page was committed

    async def wait(self) -> list[Page]:
        await self._event.wait()
        self._event.clear()
        pages, self._pages = self._pages, []
        self._waited_s, self._committed_s = self._committed_s, 0.0
        return pages or []

    def mark_written(self, streams: int) -> None:
        if streams and self._waited_s:
            self._observe(time.monotonic() - self._waited_s, streams)

    def look(self) -> None:
        self._pages = None
        self._event.set()

    def close(self) -> None:
        self._end(self)

    def add(self, page: Page) -> None:
        if self._pages is not None:
            self._pages.append(page)
        self._committed_s = self._committed_s or time.monotonic()
        self._event.set()


class FeedNotifications:
    """A notifier of new pages for the readers that wait in the event loop at the end of a feed.

    For *observe* see `_Listening`.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        observe: Callable[[float, int], object] = lambda *_: None,
    ) -> None:
        self.loop, self._observe = loop, observe
        self._listening: dict[str, list[_Listening]] = {}

    def listen(self, feed: str) -> _Listening:
        """Implement `tail_poller.Listen`."""
        listening = _Listening(self._observe, partial(self._remove, feed))
        self._listening.setdefault(feed, []).append(listening)
        return listening

    def _remove(self, feed: str, listening: _Listening) -> None:
        self._listening[feed].remove(listening)
        if not self._listening[feed]:
            del self._listening[feed]

    def notify(self, pages: Sequence[tuple[str, Page]]) -> None:
        """Pass the committed *pages* to the readers of their feeds; callable from any thread."""
        if self._listening:  # a reader that begins to listen now reads the log first
            self.loop.call_soon_threadsafe(self._notify, pages)

    def _notify(self, pages: Sequence[tuple[str, Page]]) -> None:
        for feed, page in pages:
            for listening in self._listening.get(feed, ()):
                listening.add(page)

    def look_soon(self, feed: str) -> None:
        """Do the same as `look`; callable from any thread."""
        self.loop.call_soon_threadsafe(self.look, feed)

    def look(self, feed: str) -> None:
        """Let the readers of *feed* read the log; call this in the event loop."""
        for listening in self._listening.get(feed, ()):
            listening.look()


class Webhooks:
    """A scheduler that runs *delivery* for the webhooks of the host.

    A webhook runs in one thread at a time. It is due if its feed may have new pages or a changed
    document, if its last run left messages, and every `LOOK_S` until a run has found nothing to do.
    Then it rests, so that webhooks of idle feeds cost nothing. *feeds* returns all feeds with
    webhooks, and possibly others. *cut* aborts the calls in progress.
    """

    def __init__(
        self,
        registry: Registry,
        delivery: WebhookDelivery,
        feeds: Callable[[], Iterable[str]],
        clock: Clock,
        cut: Callable[[], None],
    ) -> None:
        self._registry, self._delivery = registry, delivery
        self._feeds, self._clock, self._cut = feeds, clock, cut
        # Only the thread of `_serve` changes the following. Other threads, such as the event loop,
        # add to `_queued`, and put functions for that thread into `_happened`, which never blocks.
        self._known: dict[str, Named] = {}  # the webhooks of each feed that has some
        self._unread: set[str] | None = None  # feeds with webhooks to load; None for all feeds
        self._due: dict[Key, bool] = {}  # the value is the argument *look* of the next run
        self._active: set[Key] = set()  # webhooks that do not rest
        self._running: set[Key] = set()
        self._happened: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._queued: set[str] = set()  # feeds with a queued `_mark_due`
        self._stopped = False
        self._pool = ThreadPoolExecutor(ENDPOINTS, thread_name_prefix="webhook")
        self._thread = Thread(target=self._serve, name="webhooks", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Start no more calls, and abort the calls in progress; their messages are sent again."""
        self._stopped = True
        self._happened.put(_nothing)
        self._cut()
        if self._thread.is_alive():
            self._thread.join()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def wake(self, feed: str) -> None:
        """Make the webhooks of *feed* due; callable from any thread, without blocking."""
        if feed in self._known and feed not in self._queued:
            self._queued.add(feed)
            self._happened.put(partial(self._mark_due, feed))

    def reload(self, feed: str) -> None:
        """Load the webhooks of *feed*, which may have changed; callable from any thread."""
        self._happened.put(partial(self._reload, feed))

    def _reload(self, feed: str) -> None:
        if self._unread is not None:
            self._unread.add(feed)
            self._load()
            self._mark_due(feed)

    def _mark_due(self, feed: str) -> None:
        self._queued.discard(feed)
        for name in self._known.get(feed, ()):
            self._due.setdefault((feed, name), False)
            self._active.add((feed, name))

    def _serve(self) -> None:
        look_s = time.monotonic()
        while not self._stopped:
            if time.monotonic() >= look_s:
                look_s = time.monotonic() + LOOK_S
                # Load changed webhooks if that has failed before, and mark those that do not rest.
                if self._running:
                    with suppress(RuntimeError):  # the system has no thread yet
                        # Starts a thread if a queued run waits for one.
                        self._pool.submit(_nothing)
                self._load()
                self._due.update(dict.fromkeys(self._active, True))
            self._begin()
            with suppress(Empty):
                self._happened.get(timeout=max(0.0, look_s - time.monotonic()))()

    def _load(self) -> None:
        """Load the webhooks of the feeds in `_unread`. Those that are new or changed are active."""
        try:
            if self._unread is None:
                self._unread = {*self._feeds()}
            while self._unread:
                feed = next(iter(self._unread))
                named = dict(self._registry.all(feed))
                self._unread.discard(feed)
                self._active -= {(feed, name) for name in self._known.pop(feed, ())}
                if named:
                    self._known[feed] = named
                    self._active |= {(feed, name) for name in named}
        except Exception as error:  # noqa: BLE001 (this thread must continue, to load them later)
            log.warning("the webhooks could not be loaded: %s", error)

    def _begin(self) -> None:
        """Start the due webhooks that are not running."""
        for key in self._due.keys() - self._running:
            look, (feed, name) = self._due.pop(key), key
            hook = self._known.get(feed, {}).get(name)
            if hook is not None and not self._stopped:
                self._running.add(key)
                try:
                    self._pool.submit(self._turn, key, hook, look)
                except RuntimeError as error:  # the run is queued, and `_look` starts a thread
                    fields = {"feed": feed, "webhook": name, "error": error}
                    log.warning(
                        "webhook waits for a thread: %(feed)s %(webhook)s: %(error)s", fields
                    )

    def _turn(self, key: Key, hook: Webhook, look: bool) -> None:
        again_ms, rests = None, False
        try:
            again_ms = self._delivery.run(key[0], hook, look=look)
            rests = look and again_ms is None
        except TidingsError as error:
            fields = {"feed": key[0], "webhook": key[1], "error": error}
            log.warning("webhook stopped: %(feed)s %(webhook)s: %(error)s", fields)
        except Exception:
            fields = {"feed": key[0], "webhook": key[1]}
            log.exception("webhook failed: %(feed)s %(webhook)s", fields)
        self._happened.put(partial(self._has_ended, key, again_ms, rests))

    def _has_ended(self, key: Key, again_ms: int | None, rests: bool) -> None:
        self._running.discard(key)
        if again_ms is not None and again_ms <= self._clock():
            self._due.setdefault(key, False)
        if rests and key not in self._due:  # nothing has happened since the run began
            self._active.discard(key)


def _nothing() -> None:
    """Do nothing: a task that wakes or starts a thread."""

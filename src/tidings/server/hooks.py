"""What calls webhooks: one thread that knows who is due, and some that wait for endpoints."""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

from tidings.core.errors import TidingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tidings.core.effects import Clock
    from tidings.core.hooks.courier import Courier
    from tidings.core.hooks.registry import Registry
    from tidings.core.hooks.webhook import Webhook

log = logging.getLogger(__name__)
LOOK_S = 1.0  # how late a webhook that is made, or what an operator does to one, counts
ENDPOINTS = 16  # called at a time; those that hang have a turn of 25 s and then wait for minutes

Key = tuple[str, str]  # feed and name


class Webhooks:
    """
    Runs *courier* for the webhooks of *feeds*: each in one thread at a time. *cut* ends its calls.

    A webhook is due when its feed has news, while its courier has more, and each `LOOK_S`.
    """

    def __init__(
        self,
        registry: Registry,
        courier: Courier,
        feeds: Iterable[str],
        clock: Clock,
        cut: Callable[[], None],
    ) -> None:
        self._registry, self._courier = registry, courier
        self._feeds, self._clock, self._cut = sorted(feeds), clock, cut
        # Only the thread of `_serve` changes these. Others, such as the event loop, put what has
        # happened into the queue, which never waits.
        self._known: Mapping[Key, Webhook] = {}
        self._due: dict[Key, bool] = {}  # and whether to look at what is not for it, too
        self._running: set[Key] = set()
        self._happened: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._news: set[str] = set()  # feeds that are in the queue
        self._stopped = False
        self._pool = ThreadPoolExecutor(ENDPOINTS, thread_name_prefix="webhook")
        self._thread = Thread(target=self._serve, name="webhooks", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Begin no turn, and cut those that were begun: what they sent is sent again."""
        self._stopped = True
        self._happened.put(_nothing)
        self._cut()
        if self._thread.is_alive():
            self._thread.join()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def wake(self, feed: str) -> None:
        """There may be news of *feed*; nothing is read here, and no thread waits."""
        if self._known and feed not in self._news:
            self._news.add(feed)
            self._happened.put(partial(self._has_news, feed))

    def _has_news(self, feed: str) -> None:
        self._news.discard(feed)
        for key in self._known:
            if key[0] == feed:
                self._due.setdefault(key, False)

    def _serve(self) -> None:
        look_s = time.monotonic()
        while not self._stopped:
            if time.monotonic() >= look_s:
                look_s = time.monotonic() + LOOK_S
                self._look()
            self._begin()
            with suppress(Empty):
                self._happened.get(timeout=max(0.0, look_s - time.monotonic()))()

    def _look(self) -> None:
        """Which webhooks there are; all of them are due."""
        try:
            known = {
                (feed, name): hook
                for feed in self._feeds
                for name, hook in self._registry.all(feed).items()
            }
        except Exception as error:  # noqa: BLE001 (this thread is the only one that looks)
            log.warning("webhooks are not known: %s", error)
            return
        self._known, self._due = known, dict.fromkeys(known, True)

    def _begin(self) -> None:
        """Hand over who is due and has no turn."""
        for key in self._due.keys() - self._running:
            look = self._due.pop(key)
            hook = self._known.get(key)
            if hook is not None and not self._stopped:
                self._running.add(key)
                self._pool.submit(self._turn, key, hook, look)

    def _turn(self, key: Key, hook: Webhook, look: bool) -> None:
        again_ms: int | None = None
        try:
            again_ms = self._courier.run(key[0], hook, look=look)
        except TidingsError as error:
            log.warning("webhook stopped: %s %s: %s", *key, error)
        except Exception:
            log.exception("webhook failed: %s %s", *key)
        self._happened.put(partial(self._has_ended, key, again_ms))

    def _has_ended(self, key: Key, again_ms: int | None) -> None:
        self._running.discard(key)
        if again_ms is not None and again_ms <= self._clock():
            self._due.setdefault(key, False)


def _nothing() -> None:
    """Wake the thread."""

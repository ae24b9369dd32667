"""Webhook scheduling: one thread decides which webhooks are due, a pool waits for endpoints."""

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
    from tidings.core.hooks.registry import Registry
    from tidings.core.hooks.webhook import Courier, Webhook

log = logging.getLogger(__name__)
LOOK_S = 1.0  # maximum delay until a new webhook, or an operator's change to one, takes effect
ENDPOINTS = 16  # called concurrently; one that hangs takes 25 s, then pauses for minutes

Key = tuple[str, str]  # feed and name


class Webhooks:
    """
    A scheduler that runs *courier* for the webhooks of *feeds*, each in one thread at a time.

    A webhook is due if its feed has news, if its courier has more to send, and every `LOOK_S`.
    *cut* aborts the calls in progress.
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
        # Only the thread of `_serve` changes these. Other threads, such as the event loop, put
        # events into the queue, which never blocks.
        self._known: Mapping[Key, Webhook] = {}
        self._due: dict[Key, bool] = {}  # True: also skip pages that its filter excludes
        self._running: set[Key] = set()
        self._happened: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._news: set[str] = set()  # feeds that are already queued
        self._stopped = False
        self._pool = ThreadPoolExecutor(ENDPOINTS, thread_name_prefix="webhook")
        self._thread = Thread(target=self._serve, name="webhooks", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Start no more calls, and abort those in progress: their messages are sent again."""
        self._stopped = True
        self._happened.put(_nothing)
        self._cut()
        if self._thread.is_alive():
            self._thread.join()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def wake(self, feed: str) -> None:
        """Note that *feed* may have news; neither read nor block."""
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
        """Load the list of webhooks; mark all of them as due."""
        try:
            known = {
                (feed, name): hook
                for feed in self._feeds
                for name, hook in self._registry.all(feed).items()
            }
        except Exception as error:  # noqa: BLE001 (this is the only thread that loads them)
            log.warning("webhooks are not known: %s", error)
            return
        self._known, self._due = known, dict.fromkeys(known, True)

    def _begin(self) -> None:
        """Start the due webhooks that are not running."""
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
    """Do nothing; queued to wake the thread."""

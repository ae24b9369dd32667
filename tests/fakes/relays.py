"""The relays of chained feeds, and the way into their logs."""

from __future__ import annotations

from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING

from tidings.core.replication.replica import Relay

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidings.core.model.pages import Page

    from tests.fakes.log import MemoryLog


class MemoryRelays:
    """Implements `RelayStore`."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self._relays: dict[str, Relay] = {}
        self._lock = Lock()

    def relay(self, feed: str) -> Relay:
        with self._lock:
            return self._relays.get(feed, Relay(feed))

    def relays(self) -> Sequence[Relay]:
        with self._lock:
            return [relay for _, relay in sorted(self._relays.items())]

    def write(self, before: Relay, after: Relay) -> bool:
        with self._lock:
            return self._write(before, after)

    def append(self, before: Relay, after: Relay, pages: Sequence[Page]) -> bool:
        with self._lock:
            if self._version(after.feed) != before.version:
                return False
            operations = after.counts.operations - before.counts.operations
            entered = self._log.enter(
                after.feed, pages, head=after.checkpoint, operations=operations
            )
            return entered and self._write(before, after)

    def _write(self, before: Relay, after: Relay) -> bool:
        if self._version(after.feed) != before.version:
            return False
        self._relays[after.feed] = replace(after, version=before.version + 1)
        return True

    def _version(self, feed: str) -> int:
        return self._relays.get(feed, Relay(feed)).version

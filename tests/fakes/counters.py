"""Counters outside of the log, and the connected clients."""

from __future__ import annotations

from collections import Counter, defaultdict
from threading import Lock

from tidings.core.counters import Totals, is_present


class MemoryCounters:
    """Implements `Counters`."""

    def __init__(self) -> None:
        self._counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._places: defaultdict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
        self._lock = Lock()

    def refuse(self, feed: str) -> None:
        with self._lock:
            self._counts[feed]["refused"] += 1

    def serve(self, feed: str, *, connections: int, sent: int) -> None:
        with self._lock:
            self._counts[feed].update(connections=connections, sent=sent)

    def attend(self, feed: str, place: str, clients: int, *, until_ms: int) -> None:
        with self._lock:
            self._places[feed].pop(place, None)
            if clients:
                self._places[feed][place] = (clients, until_ms)

    def totals(self, feed: str, *, now_ms: int) -> Totals:
        with self._lock:
            there = self._places[feed].values()
            clients = sum(count for count, until_ms in there if is_present(until_ms, now_ms))
            return Totals(**self._counts[feed], clients=clients)

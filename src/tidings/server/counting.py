"""
Counters that any thread, including the event loop, increments without waiting for another one.
"""

from __future__ import annotations

from collections import Counter
from threading import local


class ThreadCounters:
    """Counters per thread: without a lock, a thread can only increment its own."""

    def __init__(self) -> None:
        self._own = local()
        self._all: list[Counter[str]] = []

    def add(self, metric: str, value: int) -> None:
        """Add *value* to *metric*."""
        try:
            counter = self._own.counter
        except AttributeError:
            counter = self._own.counter = Counter()
            self._all.append(counter)
        counter[metric] += value

    def totals(self) -> Counter[str]:
        """Return the sums over all threads, including threads that have ended."""
        totals: Counter[str] = Counter()
        for counter in list(self._all):
            totals.update(dict(counter))
        return totals

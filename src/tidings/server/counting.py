"""Counters that any thread adds to, also the event loop: none waits for another one."""

from __future__ import annotations

from collections import Counter
from threading import local


class ThreadCounters:
    """Counts per thread, because only a thread's own counter can be added to without a lock."""

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
        """Return the sums over all threads, also over those that have ended."""
        totals: Counter[str] = Counter()
        for counter in list(self._all):
            totals.update(dict(counter))
        return totals

"""How long things took: a histogram that keeps two digits of each value, in constant memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from hdrh.histogram import HdrHistogram  # type: ignore[import-untyped]

_US = 1_000_000
_LONGEST_S = 3_600  # what took longer counts as this
_DIGITS = 2  # within one part in a hundred; a third digit would take ten times the memory
SHARES = (50.0, 90.0, 99.0, 99.9)


class Latencies:
    """Seconds, each rounded to a part in a hundred."""

    def __init__(self, seconds: Iterable[float] = ()) -> None:
        self._histogram = HdrHistogram(1, _LONGEST_S * _US, _DIGITS)
        for each in seconds:
            self.record(each)

    def record(self, seconds: float) -> None:
        self._histogram.record_value(min(max(1, int(seconds * _US)), _LONGEST_S * _US))

    def add(self, other: Self) -> None:
        self._histogram.add(other._histogram)

    @property
    def count(self) -> int:
        return int(self._histogram.get_total_count())

    def at(self, percentile: float) -> float:
        """The seconds within which *percentile* (0..100) of them were; 0 without any."""
        return float(self._histogram.get_value_at_percentile(percentile)) / _US

    @property
    def longest(self) -> float:
        return float(self._histogram.get_max_value()) / _US if self.count else 0.0

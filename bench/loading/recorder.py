"""Count events in a run and record latencies, by interval and in total."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

from hdrh.histogram import HdrHistogram  # type: ignore[import-untyped]

_US = 1_000_000
_LONGEST_S = 3_600  # longer latencies count as this
_DIGITS = 2  # precise to one percent; a third digit would take ten times the memory
SHARES = (50.0, 90.0, 99.0, 99.9)
ACKED = "POST, due to answer"
ANSWERED = "POST, sent to answer"
HEARD = {"ws": "WebSocket, due to receipt", "sse": "SSE, due to receipt"}
KINDS = (ACKED, ANSWERED, *HEARD.values())


class Latencies:
    """A histogram of seconds, with two digits of each value, in constant memory."""

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
        """Return the seconds that *percentile* (0 to 100) of the values are within; 0 if empty."""
        return float(self._histogram.get_value_at_percentile(percentile)) / _US

    @property
    def longest(self) -> float:
        return float(self._histogram.get_max_value()) / _US if self.count else 0.0


@dataclass(slots=True)
class Interval:
    """*memory* has the resident bytes of each kind of process at the end, *load* the load
    average."""

    begins_s: float
    latencies: dict[str, Latencies] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    memory: Mapping[str, int] = field(default_factory=dict)
    load: float = 0.0

    @property
    def heard(self) -> Latencies:
        """Return the latencies from due to receipt over all transports."""
        found = Latencies()
        for kind in HEARD.values():
            if kind in self.latencies:
                found.add(self.latencies[kind])
        return found


class Recorder:
    """Counts into the current interval; the whole is the sum of all intervals."""

    def __init__(self) -> None:
        self.intervals = [Interval(0.0)]

    @property
    def current(self) -> Interval:
        return self.intervals[-1]

    def took(self, kind: str, seconds: float) -> None:
        self.current.latencies.setdefault(kind, Latencies()).record(seconds)

    def count(self, what: str, by: int = 1) -> None:
        self.current.counts[what] += by

    def closes(self, memory: Mapping[str, int], load: float) -> None:
        """End the current interval."""
        self.current.memory, self.current.load = memory, load

    def opens(self, at_s: float) -> None:
        """Begin another interval."""
        self.intervals.append(Interval(at_s))

    def counted(self, what: str) -> int:
        return sum(each.counts[what] for each in self.intervals)

    def whole(self, kind: str) -> Latencies:
        found = Latencies()
        for each in self.intervals:
            if kind in each.latencies:
                found.add(each.latencies[kind])
        return found

"""What a run counts: as a whole, and in intervals beside each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from .latencies import Latencies

ACKED = "POST, due to answer"
ANSWERED = "POST, sent to answer"
HEARD = {"ws": "WebSocket, due to receipt", "sse": "SSE, due to receipt"}
KINDS = (ACKED, ANSWERED, *HEARD.values())


@dataclass(slots=True)
class Interval:
    """
    *memory* has the resident bytes of each kind of process at its end, *load* how many processes
    wanted to run.
    """

    begins_s: float
    latencies: dict[str, Latencies] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    memory: Mapping[str, int] = field(default_factory=dict)
    load: float = 0.0

    @property
    def heard(self) -> Latencies:
        """From due to receipt, over every transport."""
        found = Latencies()
        for kind in HEARD.values():
            if kind in self.latencies:
                found.add(self.latencies[kind])
        return found


class Recorder:
    """Everything goes into the current interval; the whole is their sum."""

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
        """The current interval is at its end."""
        self.current.memory, self.current.load = memory, load

    def opens(self, at_s: float) -> None:
        """Another interval begins."""
        self.intervals.append(Interval(at_s))

    def counted(self, what: str) -> int:
        return sum(each.counts[what] for each in self.intervals)

    def whole(self, kind: str) -> Latencies:
        found = Latencies()
        for each in self.intervals:
            if kind in each.latencies:
                found.add(each.latencies[kind])
        return found

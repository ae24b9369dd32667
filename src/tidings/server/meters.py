"""Measurements of a server's requests, commits, pushed messages and webhooks, for `/metrics`.

Only the event loop changes them, so no lock is needed. Threads pass their values to the loop. A
scrape copies them in a thread; each copy is one call of the interpreter.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Collection

    from tidings.core.changeagent.webhooks import Verdict

# The upper bounds of all histograms, in seconds: from a post on a fast disk to a webhook's timeout.
BOUNDS_S = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
EVENT_STREAM, WEBSOCKET = "event-stream", "websocket"  # the values of the label `transport`
OTHER = "other"  # the route and the method of requests that no route matches
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
ACCEPTED, REFUSED, FAILED = "accepted", "refused", "failed"  # the results of a webhook's call


class Histogram:
    """Durations by the bounds of `BOUNDS_S`, not cumulated; the last count has no bound."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    def observe(self, seconds: float, times: int = 1) -> None:
        """Add *seconds*, which *times* events took each."""
        self.counts[bisect_left(BOUNDS_S, seconds)] += times
        self.sum_s += seconds * times

    def __add__(self, other: Histogram) -> Histogram:
        total = Histogram()
        total.counts = [mine + its for mine, its in zip(self.counts, other.counts, strict=True)]
        total.sum_s = self.sum_s + other.sum_s
        return total

    @property
    def count(self) -> int:
        """Return the number of events."""
        return sum(self.counts)


class Meters:
    """The measurements of one process. Only `count_call` may be called from any thread.

    *answers* has the time from the head of a request to the head of its answer, by route, method
    and status. *refusals* counts, by status, requests that no app received.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop
        self.answers: dict[tuple[str, str, int], Histogram] = {}
        self.refusals: Counter[int] = Counter()
        self.commits = Histogram()
        self.push = {EVENT_STREAM: Histogram(), WEBSOCKET: Histogram()}
        self.calls = {result: Histogram() for result in (ACCEPTED, REFUSED, FAILED)}
        self.received_bytes = self.sent_bytes = 0
        self.connections: Collection[object] = ()  # the open connections of the HTTP server
        self.event_streams: Callable[[], int] = int  # returns the number of open event streams
        # Called with the scope, the route, the status and the seconds of each answer, if not None.
        self.observe_answer: Callable[[Any, str, int, float], object] | None = None

    def count_answer(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count the answer to a request that matched *route*, a template of `http.routes`.

        Labels have a bounded number of values: *route* never contains a part of the request.
        """
        histogram = self.answers.get((route, method, status))
        if histogram is None:
            key = route, method if method in _METHODS else OTHER, status
            histogram = self.answers.setdefault(key, Histogram())
        histogram.observe(seconds)

    def count_call(self, verdict: Verdict, seconds: float) -> None:
        """Count a call of a webhook, which took *seconds*; callable from any thread."""
        result = ACCEPTED if verdict.accepts else REFUSED if verdict.status else FAILED
        assert self._loop is not None, "a server passes its loop"
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self.calls[result].observe, seconds)

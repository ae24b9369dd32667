"""
The effects that the core needs in addition to its stores: time, ids, threads, counts, traces.

The functions compare deadlines, which are stored as wall-clock times to survive a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tidings.core.limits import CLOCK_SKEW_MS_MAX

# Milliseconds since 1970. Compare two clocks only within `limits.CLOCK_SKEW_MS_MAX`.
Clock = Callable[[], int]
# Wait for some milliseconds.
Sleep = Callable[[int], None]
# Return a new unique id of 32 lower-case hex digits.
NewId = Callable[[], str]
# Run a task for each item, in parallel if the host can; return when all tasks are done.
Spread = Callable[[Callable[[str], None], Sequence[str]], None]
# Add to a metric of `tidings.core.metrics`.
Count = Callable[[str, int], None]


def is_ahead(until_ms: int, now_ms: int, longest_ms: int) -> bool:
    """
    Return True if the deadline *until_ms*, set at most *longest_ms* ahead, is in the future.

    A deadline that is further ahead was set by a clock that was fast and has been corrected since.
    It counts as passed, so that no process waits for the time by which the clock was wrong.
    """
    return 0 < until_ms - now_ms <= longest_ms + CLOCK_SKEW_MS_MAX


def has_passed(since_ms: int, now_ms: int, length_ms: int) -> bool:
    """
    Return True if *length_ms* has passed since *since_ms*, or if *now_ms* is before *since_ms*.
    """
    return not 0 <= now_ms - since_ms < length_ms


class TraceRecord(NamedTuple):
    """
    A record that a page passed *step*, which is `tracing.INGEST` or the name of a follower.

    *ms* is the time since the page was committed. *trace* is empty if the page is reported because
    it was late. The page is then the oldest of *pages* pages that were handled together.
    """

    step: str
    feed: str
    page: int
    ms: int
    trace: str = ""
    pages: int = 1


TraceSink = Callable[[TraceRecord], None]


def discard_trace(_: TraceRecord) -> None:
    """Implement `TraceSink` for hosts without a log: discard the record."""


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """
    The effects of a host.

    `clock` shows the time of day and may be set forward or back. `steady` is never set, so that it
    measures durations within the process. Only differences between times of `steady` have a
    meaning.

    `await_writer` waits for a page that is not written yet although its number is taken. A host
    that takes the number and writes the page in one transaction must not wait within the
    transaction, and raises `Unavailable` instead.
    """

    clock: Clock
    steady: Clock
    sleep: Sleep
    new_id: NewId
    count: Count
    spread: Spread
    trace: TraceSink
    await_writer: Sleep

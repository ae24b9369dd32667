"""The effects that the core needs in addition to its stores: time, ids, threads, counts, traces.

The functions of this module compare stored times. Stored times are wall-clock times, because other
clocks do not survive a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tidings.core.limits import CLOCK_SKEW_MS_MAX

# Return the time in milliseconds, since 1970 except for `Runtime.steady`. The clocks of two hosts
# differ by up to `limits.CLOCK_SKEW_MS_MAX`.
Clock = Callable[[], int]
# Wait for the given number of milliseconds.
Sleep = Callable[[int], None]
# Return a new unique id of 32 lower-case hex digits.
NewId = Callable[[], str]
# Run a task for each item, in parallel if the host can; return when all tasks are done.
Spread = Callable[[Callable[[str], None], Sequence[str]], None]
# Add a value to the named metric of `tidings.core.metrics`.
Count = Callable[[str, int], None]


def is_ahead(until_ms: int, now_ms: int, longest_ms: int) -> bool:
    """Return True if the deadline *until_ms*, set at most *longest_ms* ahead, is in the future.

    A deadline that is further ahead was set by a clock that was fast and has been corrected since.
    Such a deadline counts as passed. Otherwise a process would wait until the correct clock reaches
    the deadline.
    """
    return 0 < until_ms - now_ms <= longest_ms + CLOCK_SKEW_MS_MAX


def has_passed(since_ms: int, now_ms: int, length_ms: int) -> bool:
    """Return True if *length_ms* has passed since *since_ms*, or *now_ms* is before *since_ms*."""
    return not 0 <= now_ms - since_ms < length_ms


class TraceRecord(NamedTuple):
    """A record that page *page* passed *step*, which is `tracing.INGEST` or the name of a follower.

    *ms* is the time since the page was committed. *trace* is the trace id of the page. If *trace*
    is empty, the page is reported because it was late, as the oldest of *pages* pages that were
    handled together.
    """

    step: str
    feed: str
    page: int
    ms: int
    trace: str = ""
    pages: int = 1


TraceSink = Callable[[TraceRecord], None]


def one_by_one(task: Callable[[Any], None], items: Iterable[Any]) -> None:
    """Implement `Spread` for hosts on which no task waits: run the tasks one after the other."""
    for item in items:
        task(item)


def discard_count(metric: str, value: int) -> None:
    """Implement `Count` for programs without metrics."""


def discard_trace(_: TraceRecord) -> None:
    """Implement `TraceSink` for hosts without a log: discard the record."""


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """The effects of a host, and the lifetimes of the data that it writes.

    `clock` shows the time of day and may be set forward or back. `steady` is never set, so that
    differences between its times are durations. A single time of `steady` has no meaning.
    `expiring` is the clock that decides if something has expired or may have expired.

    `await_writer` is the `Sleep` between two attempts to read a page that is not written yet
    although its number is taken. A host that takes the number and writes the page in one
    transaction must not wait within the transaction. Its `await_writer` raises `Unavailable`.

    A page is written with the lifetime `page_ms`, the tombstone of a deleted object with
    `tombstone_ms`. Both follow from the retention.
    """

    clock: Clock
    steady: Clock
    expiring: Clock
    sleep: Sleep
    new_id: NewId
    count: Count
    spread: Spread
    trace: TraceSink
    await_writer: Sleep
    page_ms: int
    tombstone_ms: int

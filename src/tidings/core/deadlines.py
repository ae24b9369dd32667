"""Deadlines that outlive a process, and so are stored as wall-clock times."""

from __future__ import annotations

from tidings.core.limits import CLOCK_SKEW_MS_MAX


def is_ahead(until_ms: int, now_ms: int, longest_ms: int) -> bool:
    """
    Return True if the deadline *until_ms*, set at most *longest_ms* before, is still to come.

    One that is further away was set by a clock that was ahead and has been corrected: it is over,
    so that nothing waits for as long as the clock was wrong.
    """
    return 0 < until_ms - now_ms <= longest_ms + CLOCK_SKEW_MS_MAX


def has_passed(since_ms: int, now_ms: int, length_ms: int) -> bool:
    """Return True *length_ms* after *since_ms*, and if the clock was set back to before it."""
    return not 0 <= now_ms - since_ms < length_ms

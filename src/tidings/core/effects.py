"""The effects that the core needs in addition to its stores: time, ids, threads and counting."""

from __future__ import annotations

from collections.abc import Callable, Sequence

# Milliseconds since 1970. Compare two clocks only within `limits.CLOCK_SKEW_MS_MAX`.
Clock = Callable[[], int]
# Wait for some milliseconds.
Sleep = Callable[[int], None]
# Return a new unique id of 32 lower-case hex digits.
NewId = Callable[[], str]
# Run a task for each item, in parallel if the host can; return when all are done.
Spread = Callable[[Callable[[str], None], Sequence[str]], None]
# Add to a metric of `tidings.core.metrics`.
Count = Callable[[str, int], None]

"""`/status`: oplog's ten fields with their meanings, and what an operator asks next."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from . import clock
from .options import Bound
from .sender import Condition
from .store import Store


@dataclass(frozen=True, slots=True)
class Status:
    """*errors* are those counted at the door; *drops* what the kernel threw away."""

    store: Store
    bound: Bound
    condition: Condition
    target: str
    errors: Callable[[], int]
    drops: Callable[[], int | None]
    started_s: float

    def body(self) -> dict[str, object]:
        """Only what is listed here: no environment, no command line, no password."""
        totals = self.store.totals()
        oldest_ms = self.store.oldest_ms()
        return {
            "status": self.condition.state,
            # An agent serves no consumers; oplog's fields for them are kept.
            "clients": 0,
            "connections": 0,
            "events_discarded": totals.discarded,
            "events_error": totals.errors + self.errors(),
            "events_ingested": totals.ingested,
            "events_received": totals.received,
            "events_sent": 0,
            "queue_max_size": self.bound.events,
            "queue_size": totals.events,
            "events_refused": totals.refused,
            "kernel_drops": self.drops(),
            "last_error": self.condition.error,
            "last_error_ms": self.condition.error_ms,
            "oldest_queued_ms": None if oldest_ms is None else clock.now_ms() - oldest_ms,
            "queue_bytes": totals.bytes,
            "queue_max_bytes": self.bound.bytes,
            "retries": self.condition.retries,
            "target": self.target,
            "uptime_s": int(time.monotonic() - self.started_s),
        }

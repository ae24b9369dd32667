"""The last attempts to send messages to webhooks, in the memory of the process that sends them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.newest import Newest

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt to send the message *id*, which began at *at_ms* and took *took_ms*.

    *number* counts the attempts of the message, from 1. *status* is that of the response, or 0;
    *error* says why the message was not accepted, or is "". It has no part of the webhook's URL.
    """

    at_ms: int
    id: str
    number: int
    status: int
    error: str
    took_ms: int


class AttemptLog:
    """The last `limits.WEBHOOK_ATTEMPTS_KEPT` attempts of each webhook since *since_ms*.

    At most `limits.WEBHOOK_LOGS_MAX` webhooks have attempts; those without attempts for the longest
    time are dropped. Threads may share the log; no lock is needed, because each operation is
    atomic.
    """

    def __init__(self, since_ms: int) -> None:
        self.since_ms = since_ms
        self._kept: Newest[tuple[str, str], deque[Attempt]] = Newest(limits.WEBHOOK_LOGS_MAX)

    def add(self, feed: str, name: str, attempts: Sequence[Attempt]) -> None:
        """Add *attempts* of the webhook *name* of *feed*, the oldest first."""
        key = feed, name
        kept = self._kept.get(key) or deque(maxlen=limits.WEBHOOK_ATTEMPTS_KEPT)
        kept.extend(attempts)
        self._kept[key] = kept

    def last(self, feed: str, name: str) -> list[Attempt]:
        """Return the attempts of the webhook *name* of *feed*, the latest first."""
        return [*reversed([*self._kept.get((feed, name), ())])]

    def forget(self, feed: str, name: str) -> None:
        """Drop the attempts of a webhook that is deleted."""
        self._kept.pop((feed, name), None)

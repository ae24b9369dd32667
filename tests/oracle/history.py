"""The sent and the acknowledged operations: the facts that the feed is checked against."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class Sent:
    """A request. *numbers* identify its operations; *ids* are those of its acknowledgement."""

    numbers: Sequence[int]
    sent_s: float
    acked_s: float | None = None
    ids: Sequence[str] = ()
    may_be_lost: bool = False  # acknowledged after the backup that was restored

    @property
    def is_acked(self) -> bool:
        return self.acked_s is not None


@dataclass
class History:
    """All requests of all producers. Its methods may be called by any thread."""

    requests: list[Sent] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    _numbers: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def sends(self, count: int) -> Sent:
        """Record a request of *count* operations that is about to be sent."""
        with self._lock:
            numbers = range(self._numbers, self._numbers + count)
            self._numbers += count
            sent = Sent(numbers, time.monotonic())
            self.requests.append(sent)
        return sent

    def acked(self, sent: Sent, ids: Sequence[str] = ()) -> None:
        """Record that *sent* was acknowledged, with the *ids* if the answer contains them."""
        with self._lock:
            sent.ids, sent.acked_s = ids, time.monotonic()

    def violated(self, promise: str) -> None:
        """Record a broken promise; the run continues, because the first one may cause others."""
        with self._lock:
            self.violations.append(promise)

    def restored(self, backup_began_s: float) -> None:
        """Note that everything unacknowledged before *backup_began_s* may be lost now."""
        with self._lock:
            for sent in self.requests:
                if not (sent.acked_s is not None and sent.acked_s < backup_began_s):
                    sent.may_be_lost = True

    @property
    def operations_acked(self) -> int:
        with self._lock:
            return sum(len(sent.numbers) for sent in self.requests if sent.is_acked)

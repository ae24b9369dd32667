"""The records of a host in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from threading import RLock
from typing import Any

from tidings.core.effects import Clock
from tidings.core.records import Kind, Record, Write


class MemoryRecords:
    """Implements `RecordStore`. Records expire by *clock*; *mark* makes a feed due."""

    def __init__(
        self, clock: Clock = lambda: 0, mark: Callable[[str], object] = lambda feed: None
    ) -> None:
        self._clock, self.mark = clock, mark
        self._records: dict[tuple[str, str, str, str], tuple[dict[str, Any], int]] = {}
        self._lock = RLock()

    def get(
        self, feed: str, kind: Kind, name: str = "", of: str = "", *, eventual: bool = False
    ) -> Record | None:
        with self._lock:
            fields, expires_ms = self._records.get((feed, kind.name, of, name), ({}, 0))
        return Record(name, {**fields}) if fields and not self._has_passed(expires_ms) else None

    def query(
        self,
        feed: str,
        kind: Kind,
        of: str = "",
        *,
        after: str = "",
        limit: int = 0,
        newest: bool = False,
    ) -> Iterator[Record]:
        with self._lock:
            found = sorted(
                (key[3], {**fields})
                for key, (fields, expires_ms) in self._records.items()
                if key[:3] == (feed, kind.name, of) and not self._has_passed(expires_ms)
            )
        some = [Record(*each) for each in found if not after or each[0] > after]
        return iter((some[::-1] if newest else some)[: limit or None])

    def write(self, feed: str, writes: Sequence[Write], *, mark: bool = True) -> bool:
        with self._lock:
            stored = [self.get(feed, each.kind, each.name, each.of) for each in writes]
            there = [found.fields if found else {} for found in stored]
            if not all(map(Write.is_expected, writes, there)):
                return False
            if mark and any(each.kind.is_due for each in writes):
                self.mark(feed)
            for write, fields in zip(writes, there, strict=True):
                key = feed, write.kind.name, write.of, write.name
                if write.fields is None:
                    self._records.pop(key, None)
                elif write.fields:
                    self._records[key] = write.applied(fields), write.expires_ms
        return True

    def forget(self, feed: str) -> None:
        """Remove all records of *feed*."""
        with self._lock:
            for key in [key for key in self._records if key[0] == feed]:
                del self._records[key]

    def _has_passed(self, expires_ms: int) -> bool:
        return 0 < expires_ms <= self._clock()

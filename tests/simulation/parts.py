"""Which code a world runs: the core, or the core with one part replaced by a broken one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from tests.fakes import MemoryConnections, MemoryFollowers, MemoryState
from tests.simulation.stores import ReportingLog
from tidings.client.listener import MemoryBuffer
from tidings.core import limits

RETENTION_MS = limits.RETENTION_MS_MIN
Around = Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True)
class Parts:
    """*broken* is a class that replaces the class of the core from which it inherits."""

    broken: type | None = None
    followers: type[MemoryFollowers] = MemoryFollowers
    state: type[MemoryState] = MemoryState
    connections: type[MemoryConnections] = MemoryConnections
    buffer: type[MemoryBuffer] = MemoryBuffer
    log: type[ReportingLog] = ReportingLog
    page_ms: int | None = None  # how long pages stay, instead of the settings' value
    around: Around = nullcontext  # while the world runs

    def instead(self) -> AbstractContextManager[object]:
        """While the world runs, `tidings.assembly` builds the broken class."""
        if self.broken is None:
            return nullcontext()
        sound = self.broken.__base__
        assert sound is not None
        return instead(sys.modules[sound.__module__], sound.__name__, self.broken)()


SOUND = Parts()


@contextmanager
def limited(values: Mapping[str, int]) -> Iterator[None]:
    """While the world runs, these are its limits."""
    kept = {name: getattr(limits, name) for name in values}
    _set(values)
    try:
        yield
    finally:
        _set(kept)


def _set(values: Mapping[str, int]) -> None:
    for name, value in values.items():
        setattr(limits, name, value)


def bounds(
    *, small: bool, few_buckets: bool = False, others: Mapping[str, int] | None = None
) -> AbstractContextManager[None]:
    """Reads and frames so *small* that a few operations need several, or as they are.

    With *few_buckets* a bucket holds many rows, more than one step of a copy where that is
    *small* too. *others* are bounds of the plan's additions.
    """
    changed: dict[str, int] = dict(others or {})
    if small:
        changed |= {"READ_PAGES_BYTES_MAX": 1_200, "SERVER_READ_BYTES_MAX": 1_200}
        changed |= {"FRAME_BYTES_MAX": 500, "COPY_STEP_ROWS": 7}
        changed |= {"FEW_SUBSCRIPTIONS": 1}  # of two or more each key is looked up
        changed |= {"ERASURE_PAGES": 3}
        changed |= {"CORRECT_SECTION": 4, "CORRECT_BATCH_BYTES": 400}
        changed |= {"ARCHIVE_PART_BYTES": 3_000, "ARCHIVE_STEP_BYTES": 600, "ARCHIVE_LISTED": 3}
    if few_buckets:
        changed |= {"BUCKETS": 5}
    return limited(changed)


def instead(owner: Any, name: str, other: object) -> Around:
    """While the world runs, *other* replaces the attribute."""

    @contextmanager
    def around() -> Iterator[None]:
        kept = getattr(owner, name)
        setattr(owner, name, other)
        try:
            yield
        finally:
            setattr(owner, name, kept)

    return around

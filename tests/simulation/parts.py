"""Which code a world runs: the core, or the core with one part replaced by a broken one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from tidings.core import limits
from tidings.core.append import Appender
from tidings.core.memory import MemoryConnections, MemoryFollowers
from tidings.core.pushing import Pusher
from tidings.core.reader import Reader

from .stores import WatchedLog

RETENTION_MS = limits.RETENTION_MS_MIN


@dataclass(frozen=True)
class Parts:
    appender: type[Appender] = Appender
    reader: type[Reader] = Reader
    pusher: type[Pusher] = Pusher
    followers: type[MemoryFollowers] = MemoryFollowers
    connections: type[MemoryConnections] = MemoryConnections
    log: type[WatchedLog] = WatchedLog
    page_ms: int = RETENTION_MS + limits.TTL_SLACK_MS
    around: Callable[[], AbstractContextManager[object]] = nullcontext  # while the world runs


SOUND = Parts()


@contextmanager
def bounds(*, small: bool) -> Iterator[None]:
    """Reads and frames so *small* that a few operations need several, or as they are."""
    kept = limits.READ_PAGES_BYTES_MAX, limits.FRAME_BYTES_MAX
    if small:
        limits.READ_PAGES_BYTES_MAX, limits.FRAME_BYTES_MAX = 1_200, 500
    try:
        yield
    finally:
        limits.READ_PAGES_BYTES_MAX, limits.FRAME_BYTES_MAX = kept

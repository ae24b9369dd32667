"""Which code a world runs: the core, or the core with one part replaced by a broken one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from tests.fakes import MemoryConnections, MemoryFollowers, MemoryState
from tests.simulation.stores import WatchedLog
from tidings.client.listener import MemoryBuffer
from tidings.core import limits
from tidings.core.archive.writer import Archiver
from tidings.core.catchup.catchup import CatchUp
from tidings.core.consumers.log_view import LogView
from tidings.core.consumers.service import Consumers
from tidings.core.log.append import Appender
from tidings.core.log.reader import Reader
from tidings.core.maintenance.retention import Trimmer
from tidings.core.state.projector import Projector
from tidings.core.state.removed_parents import RemovedParentsReader
from tidings.core.sync.apply import Corrector
from tidings.core.websocket.push import Pusher
from tidings.core.websocket.receive import Registrar

RETENTION_MS = limits.RETENTION_MS_MIN
Around = Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True)
class Parts:
    appender: type[Appender] = Appender
    reader: type[Reader] = Reader
    catch_up: type[CatchUp] = CatchUp
    corrector: type[Corrector] = Corrector
    departures: type[RemovedParentsReader] = RemovedParentsReader
    projector: type[Projector] = Projector
    archiver: type[Archiver] = Archiver
    pusher: type[Pusher] = Pusher
    followers: type[MemoryFollowers] = MemoryFollowers
    state: type[MemoryState] = MemoryState
    connections: type[MemoryConnections] = MemoryConnections
    registrar: type[Registrar] = Registrar
    buffer: type[MemoryBuffer] = MemoryBuffer
    log: type[WatchedLog] = WatchedLog
    consumers: type[Consumers] = Consumers
    view: type[LogView] = LogView
    trimmer: type[Trimmer] = Trimmer
    page_ms: int | None = None  # how long pages stay, instead of what the settings ask for
    around: Around = nullcontext  # while the world runs


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
    """
    Reads and frames so *small* that a few operations need several, or as they are.

    With *few_buckets* a bucket holds many rows, more than one step of a copy where that is
    *small* too. *others* are bounds of what a plan adds.
    """
    changed: dict[str, int] = dict(others or {})
    if small:
        changed |= {"READ_PAGES_BYTES_MAX": 1_200, "FRAME_BYTES_MAX": 500, "COPY_STEP_ROWS": 7}
        changed |= {"FEW_WATCHES": 1}  # of two or more each key is looked up
        changed |= {"CORRECT_SECTION": 4, "CORRECT_BATCH_BYTES": 400}
        changed |= {"ARCHIVE_PART_BYTES": 3_000, "ARCHIVE_STEP_BYTES": 600, "ARCHIVE_LISTED": 3}
    if few_buckets:
        changed |= {"BUCKETS": 5}
    return limited(changed)


def instead(owner: Any, name: str, other: object) -> Around:
    """While the world runs, *other* stands for the attribute."""

    @contextmanager
    def around() -> Iterator[None]:
        kept = getattr(owner, name)
        setattr(owner, name, other)
        try:
            yield
        finally:
            setattr(owner, name, kept)

    return around

"""Measure the lag of the tables of a feed, without Spark."""

from __future__ import annotations

from dataclasses import dataclass

from tidings.core.model import cursors
from tidings.core.model.cursors import Place
from tidings.lake import metadata
from tidings.lake.metadata import TableMetadata
from tidings.lake.warehouse import Warehouse, kind_of
from tidings.spark.backends.backend import Backend, within
from tidings.spark.offsets import Log

COUNTED_MAX = 100_000  # maximum number of operations to count: reading takes a few seconds


@dataclass(frozen=True, slots=True)
class Lag:
    """
    The part of the log that is not in a table: *pages* and their *operations*.

    *seconds* is the time since the first of them was committed. With *more*, *operations* is a
    lower bound.
    """

    pages: int
    operations: int
    seconds: float
    more: bool = False


@dataclass(frozen=True, slots=True)
class TableStatus:
    """The status of a table. *page* and *lag* are None if its place is unknown."""

    table: str
    type: str | None
    page: int | None
    lag: Lag | None
    rows: int
    files: int
    bytes: int


def status(
    warehouse: Warehouse, feed: str, backend: Backend, now_ms: int
) -> tuple[Place, list[TableStatus]]:
    """Return the current end of *feed*, and the status of each of its tables."""
    end, known = backend.ends().frontier, dict[Place, Lag]()
    made = []
    for name in metadata.names(warehouse):
        if kind_of(feed, name) is None or (found := metadata.read(warehouse, name)) is None:
            continue
        place = _place(found)
        if place is not None and place not in known:
            known[place] = lag(backend, place, end, now_ms)
        made.append(
            TableStatus(
                name,
                found.type,
                None if place is None else place.page,
                None if place is None else known[place],
                found.records,
                found.files,
                found.bytes,
            )
        )
    return end, made


def _place(found: TableMetadata) -> Place | None:
    place = cursors.parse(found.through) if found.through else None
    return place if isinstance(place, Place) else None


def lag(backend: Backend, place: Place, end: Place, now_ms: int) -> Lag:
    """Return the lag of *place*: the log after it, up to *end*."""
    operations, first_ms = 0, now_ms
    stretch = Log(place, end)
    for piece in within(backend.log(place, end), stretch) if place < end else ():
        if not operations and piece.at_ms:
            first_ms = piece.at_ms[0]
        operations += len(piece.lines)
        if operations >= COUNTED_MAX:
            break
    pages, seconds = max(0, end.page - place.page), max(0, now_ms - first_ms) / 1000
    return Lag(pages, min(operations, COUNTED_MAX), seconds, more=operations >= COUNTED_MAX)

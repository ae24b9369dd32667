"""The columns of a read, and the conversion of log lines to batches.

Only requested columns are built. Most columns are parsed by Arrow's own JSON reader, so that no
operation becomes a Python object. The columns with the position of an operation (cursor, page, slot
and at) need no parsing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyarrow import json as arrow_json
from pyspark.sql.types import (
    ArrayType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from tidings.core import limits
from tidings.core.model.cursors import prefix
from tidings.core.model.filters import Filter
from tidings.core.model.operations import MARKED, is_erasure
from tidings.core.model.pages import Page
from tidings.spark.options import WrongColumn
from tidings.sync.engine import OPERATIONS

BATCH_LINES = 10_000  # a batch ends when it has this many lines, Spark's default for Arrow batches
# A batch ends when it has this many characters, because a line may have 64 KB.
BATCH_CHARS = 8 * 1024 * 1024
RESET = "reset"
# This text cannot occur within a JSON string, where quotes are escaped. `data` is the last key of a
# line, and only the mark of a change (PROTOCOL 12) or of an erasure may follow its value.
_DATA = ',"data":'
# The position of the event's name in a line; the name has six letters (`operations.event_of`).
_EVENT = (len('{"event":"'), len('{"event":"insert'))
_SLOTS = [f"{slot:06x}" for slot in range(limits.REQUEST_OPERATIONS_MAX)]
_TEXT, _TEXTS = StringType(), ArrayType(StringType())
_MOMENT = pa.timestamp("us", tz="UTC")

SCHEMA = OPERATIONS
_KINDS: dict[DataType, Any] = {
    _TEXT: pa.string(),
    LongType(): pa.int64(),
    IntegerType(): pa.int32(),
    TimestampType(): _MOMENT,
    _TEXTS: pa.list_(pa.string()),
}
# The columns that need parsing. A timestamp is parsed as text, and cast only if it is requested.
_PARSED = {name: pa.string() for name in ("type", "id", "timestamp")} | {
    name: pa.list_(pa.string()) for name in ("parents", "tags", "changed")
}


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive lines, with the page, the slot and the time of each line.

    *pages*, *slots* and *at_ms* are None if the lines are rows of the state that were read over
    HTTP, which sends rows without their positions.
    """

    lines: Sequence[str]
    pages: Sequence[int] | None = None
    slots: Sequence[int] | None = None
    at_ms: Sequence[int] | None = None


def of_page(page: Page) -> Piece:
    count = len(page.lines)
    slots = range(count) if page.slots is None else page.slots
    return Piece(page.lines, [page.number] * count, slots, [page.at_ms] * count)


def subset(names: Iterable[str]) -> StructType:
    """Return the columns *names*.

    Raises:
        WrongColumn: a column is unknown, or *names* is empty.
    """
    wanted = list(names)
    unknown = [name for name in wanted if name not in SCHEMA.names]
    if unknown or not wanted:
        reason = f"no column {unknown[0]!r}" if unknown else "no column is requested"
        raise WrongColumn(f"{reason}; the columns are {', '.join(SCHEMA.names)}")
    return StructType([SCHEMA[name] for name in wanted])


def check_schema(schema: StructType) -> list[str]:
    """Return the column names of a schema that the user gave.

    Raises:
        WrongColumn: a column is unknown, or has another type.
    """
    for given, ours in zip(schema, subset(schema.names), strict=True):
        if given.dataType != ours.dataType:
            raise WrongColumn(
                f"column {given.name} is {ours.dataType.simpleString()},"
                f" not {given.dataType.simpleString()}"
            )
    return list(schema.names)


def batches(
    pieces: Iterable[Piece], names: Sequence[str], wanted: Filter
) -> Iterator[pa.RecordBatch]:
    """Yield *pieces* in batches of the columns *names*, filtered by *wanted*."""
    block = Block(wanted)
    for piece in pieces:
        block.add(piece)
        if block.full:
            yield block.batch(names)
            block = Block(wanted)
    if block.lines:
        yield block.batch(names)


def reset_row(names: Sequence[str]) -> pa.RecordBatch:
    """Return the row `reset`. When readers receive it, they discard all earlier rows.

    The rows of a copy of the state follow this row.
    """
    kinds = {name: _KINDS[SCHEMA[name].dataType] for name in names}
    arrays = [pa.array([RESET if name == "event" else None], kinds[name]) for name in names]
    return pa.RecordBatch.from_arrays(arrays, names=list(names))


@dataclass
class Block:
    """The input of one batch."""

    wanted: Filter
    lines: list[str] = field(default_factory=list)
    pages: list[int | None] = field(default_factory=list)
    slots: list[int | None] = field(default_factory=list)
    at_ms: list[int | None] = field(default_factory=list)
    _chars: int = 0

    @property
    def full(self) -> bool:
        return len(self.lines) >= BATCH_LINES or self._chars >= BATCH_CHARS

    def add(self, piece: Piece) -> None:
        none: list[int | None] = [None] * (len(piece.lines) if piece.pages is None else 0)
        self.lines += piece.lines
        self._chars += sum(map(len, piece.lines))
        self.pages += none if piece.pages is None else piece.pages
        self.slots += none if piece.slots is None else piece.slots
        self.at_ms += none if piece.at_ms is None else piece.at_ms

    def batch(self, names: Sequence[str]) -> pa.RecordBatch:
        arrays = [_MADE[name](self) for name in names]
        made = pa.RecordBatch.from_arrays(arrays, names=list(names))
        return made if self.wanted.is_everything else made.filter(self._matching())

    @cached_property
    def text(self) -> pa.Array:
        return pa.array(self.lines, pa.string())

    @cached_property
    def parsed(self) -> pa.Table:
        # Leave out `data`, because Arrow rejects numbers that are outside the range of a double.
        raw = "\n".join(map(_head_of, self.lines)).encode()
        table = arrow_json.read_json(
            pa.BufferReader(raw),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(raw) + 1),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=pa.schema(list(_PARSED.items())), unexpected_field_behavior="ignore"
            ),
        )
        assert table.num_rows == len(self.lines), "a line of the log is one line of JSON"
        return table

    def column(self, name: str) -> pa.Array:
        return self.parsed[name].combine_chunks()

    def _matching(self) -> pa.Array:
        """Return the mask of rows that match, by the same rules as `Filter.matches`."""
        mask = pa.array([True] * len(self.lines))
        if self.wanted.types is not None:
            mask = pc.is_in(self.column("type"), _values(self.wanted.types))
        if self.wanted.parents is not None:
            parents = self.column("parents")
            hits = pc.is_in(pc.list_flatten(parents), _values(self.wanted.parents))
            rows = pc.list_parent_indices(parents).filter(hits)
            mask = pc.and_(mask, pc.is_in(pa.array(range(len(self.lines)), rows.type), rows))
        return mask

    def cursors(self) -> pa.Array:
        if self.pages and self.pages[0] is None:
            return pa.nulls(len(self.lines), pa.string())
        texts, known, begin = [], None, ""
        for page, at_ms, slot in zip(self.pages, self.at_ms, self.slots, strict=True):
            assert page is not None and at_ms is not None and slot is not None
            if page != known:
                known, begin = page, prefix(page, at_ms // 1000)
            texts.append(begin + _SLOTS[slot])
        return pa.array(texts, pa.string())

    def data(self) -> pa.Array:
        if not any(_DATA in line for line in self.lines):
            return pa.nulls(len(self.lines), pa.string())
        return pa.array(list(map(_data_of, self.lines)), pa.string())


def _values(values: frozenset[str]) -> pa.Array:
    return pa.array(sorted(values), pa.string())


def _head_of(line: str) -> str:
    head, separator, _ = line.partition(_DATA)
    return f"{head}}}" if separator else line


def _data_of(line: str) -> str | None:
    """Return the `data` of an operation as JSON; None if it has no data.

    The data of an erasure entry describe the erasure, not the object, so they are left out.
    """
    _, separator, data = line.partition(_DATA)
    if not separator or is_erasure(line):
        return None
    return data[: -len(MARKED)] if data.endswith(MARKED) else data[:-1]


_MADE: dict[str, Callable[[Block], pa.Array]] = {
    "cursor": Block.cursors,
    "page": lambda block: pa.array(block.pages, pa.int64()),
    "slot": lambda block: pa.array(block.slots, pa.int32()),
    "at": lambda block: pa.array(block.at_ms, pa.timestamp("ms", tz="UTC")).cast(_MOMENT),
    "event": lambda block: pc.utf8_slice_codeunits(block.text, *_EVENT),
    "timestamp": lambda block: block.column("timestamp").cast(_MOMENT),
    "data": Block.data,
    "line": lambda block: block.text,
    **{
        name: partial(Block.column, name=name)
        for name in ("type", "id", "parents", "tags", "changed")
    },
}

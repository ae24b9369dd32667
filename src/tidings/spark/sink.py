"""Convert Arrow batches to lines of JSON, and post them one page at a time.

Each column is encoded separately, so that no row becomes a Python object. The Idempotency-Key of a
page is a hash of the job, the batch, the partition, and the number of the page in the partition. A
retry of a task or a batch therefore appends nothing twice. The feed compares the bytes of a
repeated page with those of the first request. So a retry must encode the rows in the same way.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import ArrayType, DataType, StringType, StructType, TimestampType

from tidings.client.errors import Refused
from tidings.client.poster import BATCH_BYTES_MAX, BATCH_LINES_MAX, Poster
from tidings.core.model.operations import decode, to_ascii_json
from tidings.spark.columns import SCHEMA
from tidings.spark.options import NotAppended, Options, WrongColumn, WrongOption

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"  # Spark's own property names
_TEXT, _TEXTS = (StringType(),), (ArrayType(StringType()), ArrayType(StringType(), False))
_ACCEPTED: dict[str, tuple[DataType, ...]] = {
    "event": _TEXT,
    "type": _TEXT,
    "id": _TEXT,
    "parents": _TEXTS,
    "timestamp": (TimestampType(), StringType()),
    "tags": _TEXTS,
    "changed": _TEXTS,
    "data": _TEXT,
}
_NEEDED = ("event", "type", "id")
# The columns of a read that a write ignores: cursor, page, slot, at and line.
_LEFT_OUT = frozenset(SCHEMA.names) - frozenset(_ACCEPTED)
# The feed's message about an invalid line of a request; the number of the first line is 1.
_LINE = re.compile(r"line (\d+): (.*)", re.DOTALL)
_REUSED = "idempotency_key_reused"


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    operations: int


class _Sink:
    """The common part of the writers of a batch and of a stream.

    The option *job* is a permanent name of the job. Without this option, a batch uses a random
    name, and a stream uses the query id in its checkpoint.
    """

    def __init__(self, options: Options, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise WrongOption("mode", "must be append, because a log cannot be overwritten")
        if not options.where.url:
            raise WrongOption("url", "is required to write, because only the feed appends pages")
        self._names = check_schema(schema)
        self._where = options.where
        self._job = options.job

    def _post(self, batches: Iterable[pa.RecordBatch], job: str, batch: str) -> Written:
        context = TaskContext.get()
        partition = context.partitionId() if context else 0
        where, count = self._where, 0
        with Poster(where.url, where.feed, password=where.password) as poster:
            for number, (first, lines) in enumerate(pages(batches, self._names)):
                key = _key(job, batch, partition, number)
                try:
                    poster.post_lines(lines, key=key)
                except Refused as refused:
                    raise _not_appended(refused, partition, first) from None
                count += len(lines)
        return Written(count)


class Writer(_Sink, DataSourceArrowWriter):
    def __init__(self, options: Options, schema: StructType, *, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite=overwrite)
        # The random name is created once, and Spark sends it to every task.
        self._job = self._job or secrets.token_hex(16)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self._post(iterator, self._job, "")


class StreamWriter(_Sink, DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY) if context else None
        batch = context.getLocalProperty(_BATCH) if context else None
        if not (query and batch):
            raise NotAppended("Spark does not report the number of this batch")
        return self._post(iterator, self._job or query, batch)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing, because posted pages are already appended."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing. Appended pages remain, and a retry of the batch does not repeat them."""


def check_schema(schema: StructType) -> list[str]:
    """Return the columns that become fields of an operation.

    Raises:
        WrongColumn: a column is missing, repeated, unknown, or has another type.
    """
    _check_names(schema.names)
    for each in schema:
        if each.name in _LEFT_OUT:
            continue
        kinds = _ACCEPTED.get(each.name)
        if kinds is None:
            raise WrongColumn(
                f"column {each.name} is unknown; the columns are {', '.join(_ACCEPTED)}"
            )
        if each.dataType not in kinds:
            rule = " or ".join(kind.simpleString() for kind in dict.fromkeys(kinds))
            hint = "; `to_json` converts it to text" if each.name == "data" else ""
            raise WrongColumn(
                f"column {each.name} is {each.dataType.simpleString()}, must be {rule}{hint}"
            )
    return [name for name in schema.names if name not in _LEFT_OUT]


def _check_names(names: Sequence[str]) -> None:
    for name in _NEEDED:
        if name not in names:
            raise WrongColumn(f"column {name} is missing; an operation needs event, type and id")
    for name in _ACCEPTED:
        if names.count(name) > 1:
            raise WrongColumn(f"column {name} occurs more than once")


def pages(
    batches: Iterable[pa.RecordBatch], names: Sequence[str]
) -> Iterator[tuple[int, list[bytes]]]:
    """Yield for each request the number of its first row in the partition, and its lines.

    Raises:
        NotAppended: a row cannot be encoded as an operation.
    """
    first, lines, size = 0, list[bytes](), 0
    for number, line in enumerate(_lines(batches, names)):
        if lines and (len(lines) == BATCH_LINES_MAX or size + len(line) > BATCH_BYTES_MAX):
            yield first, lines
            first, lines, size = number, [], 0
        lines.append(line)
        size += len(line) + 1
    if lines:
        yield first, lines


def _lines(batches: Iterable[pa.RecordBatch], names: Sequence[str]) -> Iterator[bytes]:
    """Yield each row, encoded as by `client.poster.encode`, without its null values."""
    first = 0
    for batch in batches:
        members = [_members(name, batch.column(name), first) for name in names]
        for row in zip(*members, strict=True):
            yield ("{" + "".join(row)[1:] + "}").encode()
        first += batch.num_rows


def _members(name: str, column: pa.Array, first: int) -> Iterator[str]:
    """Yield the field *name* of each row as a member of a JSON object, with a leading comma."""
    begin = f',"{name}":'
    for text in _spelt(name, column, first):
        yield "" if text is None else begin + text


def _spelt(name: str, column: pa.Array, first: int) -> Iterable[str | None]:
    if name == "data":
        return _data(column, first)
    if pa.types.is_timestamp(column.type):
        return _moments(column)
    return _arrays(column) if pa.types.is_list(column.type) else _texts(column)


def _texts(column: pa.Array) -> list[str | None]:
    return [None if text is None else encode_basestring_ascii(text) for text in column.to_pylist()]


def _arrays(column: pa.Array) -> Iterator[str | None]:
    """Yield each array as JSON. Encode all texts together, without a Python list per array."""
    texts = ["null" if text is None else text for text in _texts(pc.list_flatten(column))]
    at = 0
    for count in pc.list_value_length(column).to_pylist():
        yield None if count is None else f"[{','.join(texts[at : at + count])}]"
        at += count or 0


def _moments(column: pa.Array) -> Iterator[str | None]:
    """Yield times as JSON strings, rounded from microseconds to milliseconds.

    The strings are those of `timestamps.from_ms`. Arrow formats all times in one call, which takes
    a quarter of the time of `from_ms`.
    """
    micros = column.cast(pa.int64()).to_pylist()
    rounded = [None if each is None else round(each / 1_000_000 * 1000) for each in micros]
    for text in pa.array(rounded, pa.timestamp("ms")).cast(pa.string()).to_pylist():
        if text is None:
            yield None
        else:
            # 12:00:00.500 becomes 12:00:00.5, and 12:00:00.000 becomes 12:00:00.
            time = text[11:].rstrip("0").rstrip(".")
            yield f'"{text[:10]}T{time}Z"'


def _data(column: pa.Array, first: int) -> Iterator[str | None]:
    for number, text in enumerate(column.to_pylist(), first):
        try:
            value = decode(text or "null")
            yield None if text is None else to_ascii_json(value)
        except ValueError:
            raise NotAppended(f"row {number}: data is not JSON") from None


def _key(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _not_appended(refused: Refused, partition: int, first: int) -> NotAppended:
    if refused.code == _REUSED:
        rule = "was already posted with other rows; a repeated batch must have the same rows"
        return NotAppended(f"partition {partition}: the page from row {first} on {rule}")
    line = _LINE.match(refused.message)
    if line is None:
        return NotAppended(f"partition {partition}, from row {first} on: {refused}")
    row = first + int(line[1]) - 1
    return NotAppended(
        f"partition {partition}, row {row}: {line[2]}; nothing of its page was appended"
    )

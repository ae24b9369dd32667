"""
The sink: rows become operations and are posted a page at a time.

A page's Idempotency-Key is made of the job, the batch, the partition and its number in there,
so that a task that is tried again, or a batch that is, appends nothing twice.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, DataType, Row, StringType, StructType, TimestampType
from tidings.client.errors import Refused
from tidings.client.produce.batches import BATCH_BYTES_MAX, BATCH_LINES_MAX
from tidings.client.produce.post import Poster, encode
from tidings.core.model import timestamps
from tidings.spark.columns import SCHEMA
from tidings.spark.errors import NotAppended, WrongColumn, WrongOption
from tidings.spark.options import Options

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"  # Spark's own names for them
_TEXT, _TEXTS = (StringType(),), (ArrayType(StringType()), ArrayType(StringType(), False))
_TAKEN: dict[str, tuple[DataType, ...]] = {
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
_LEFT_OUT = frozenset(SCHEMA.names) - frozenset(_TAKEN)  # of a read: the place in another feed
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LINE = re.compile(r"line (\d+): (.*)", re.DOTALL)  # as the feed names one of a page, from 1 on
_REUSED = "idempotency_key_reused"


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    operations: int


class _Sink:
    """
    What a batch and a stream have in common.

    *job* of the options names the job for ever; without it a batch is known while it runs, and
    a stream by the id that its checkpoint keeps.
    """

    def __init__(self, options: Options, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise WrongOption("mode", "must be append: a log is not overwritten")
        if not options.where.url:
            raise WrongOption("url", "is needed to write: pages are appended by the feed itself")
        self._names = checked(schema)
        self._where = options.where
        self._job = options.job

    def _post(self, rows: Iterable[Row], job: str, batch: str) -> Written:
        context = TaskContext.get()
        partition = context.partitionId() if context else 0
        where, count = self._where, 0
        with Poster(where.url, where.feed, password=where.password) as poster:
            for number, (first, lines) in enumerate(pages(rows, self._names)):
                key = _key(job, batch, partition, number)
                try:
                    poster.post_lines(lines, key=key)
                except Refused as refused:
                    raise _not_appended(refused, partition, first) from None
                count += len(lines)
        return Written(count)


class Writer(_Sink, DataSourceWriter):
    def __init__(self, options: Options, schema: StructType, *, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite=overwrite)
        self._job = self._job or secrets.token_hex(16)  # made once, and sent to every task

    def write(self, iterator: Iterator[Row]) -> Written:
        return self._post(iterator, self._job, "")


class StreamWriter(_Sink, DataSourceStreamWriter):
    def write(self, iterator: Iterator[Row]) -> Written:
        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY) if context else None
        batch = context.getLocalProperty(_BATCH) if context else None
        if not (query and batch):
            raise NotAppended("Spark does not tell which batch this is")
        return self._post(iterator, self._job or query, batch)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What is posted is appended."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What was appended stays; the batch that comes again does not append it twice."""


def checked(schema: StructType) -> list[str]:
    """
    The columns that make an operation.

    Raises:
        WrongColumn: one is missing, unknown, or of another type.
    """
    for name in _NEEDED:
        if name not in schema.names:
            raise WrongColumn(f"column {name} is missing; an operation has event, type and id")
    for each in schema:
        if each.name in _LEFT_OUT:
            continue
        kinds = _TAKEN.get(each.name)
        if kinds is None:
            raise WrongColumn(f"column {each.name} is none of {', '.join(_TAKEN)}")
        if each.dataType not in kinds:
            rule = " or ".join(kind.simpleString() for kind in dict.fromkeys(kinds))
            hint = "; `to_json` makes text of it" if each.name == "data" else ""
            raise WrongColumn(
                f"column {each.name} is {each.dataType.simpleString()}, must be {rule}{hint}"
            )
    return [name for name in schema.names if name not in _LEFT_OUT]


def pages(rows: Iterable[Row], names: list[str]) -> Iterator[tuple[int, list[bytes]]]:
    """
    The lines of one request after another, each with the number of its first row.

    Raises:
        NotAppended: a row cannot be told as an operation.
    """
    first, lines, size = 0, list[bytes](), 0
    for number, row in enumerate(rows):
        line = _line(row, names, number)
        if lines and (len(lines) == BATCH_LINES_MAX or size + len(line) > BATCH_BYTES_MAX):
            yield first, lines
            first, lines, size = number, [], 0
        lines.append(line)
        size += len(line) + 1
    if lines:
        yield first, lines


def _line(row: Row, names: list[str], number: int) -> bytes:
    operation = {name: row[name] for name in names if row[name] is not None}
    if isinstance(moment := operation.get("timestamp"), datetime):
        operation["timestamp"] = timestamps.from_ms(_ms(moment))
    if "data" in operation:
        try:
            operation["data"] = json.loads(operation["data"])
        except ValueError:
            raise NotAppended(f"row {number}: data is not JSON") from None
    return encode(operation)


def _ms(moment: datetime) -> int:
    """Spark hands a timestamp over as the local time of the process, without saying so."""
    known = moment if moment.tzinfo else moment.astimezone()
    return round((known - _EPOCH).total_seconds() * 1000)


def _key(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _not_appended(refused: Refused, partition: int, first: int) -> NotAppended:
    if refused.code == _REUSED:
        rule = "came before with other rows; a batch must be the same when it comes again"
        return NotAppended(f"partition {partition}: the page from row {first} on {rule}")
    line = _LINE.match(refused.message)
    if line is None:
        return NotAppended(f"partition {partition}, from row {first} on: {refused}")
    row = first + int(line[1]) - 1
    return NotAppended(
        f"partition {partition}, row {row}: {line[2]}; nothing of its page was appended"
    )

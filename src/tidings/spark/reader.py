"""The data source `tidings`, which Spark looks up by name, and its readers.

A batch read returns the log or the state as of the time of planning. A stream first returns a copy
of the state in several batches, if requested, and then the log in bounded batches.

The content of a batch follows from its two offsets alone, because each offset also has the place
where its stream began. Spark calls, as traced with 4.1 for every trigger (e is the logged end of
the last batch, s its start, i the initial offset):

    first start                  latestOffset, initialOffset, partitions(i, e)
    after a failed first batch   partitions(e, e), initialOffset, partitions(i, e)
    after another failed batch   partitions(e, e), partitions(s, e)
    after a completed batch      partitions(e, e), latestOffset, partitions(e, e2)

Spark 4.1 requests the end of a batch without its start, so the reader keeps the end of the batch
that was planned last. Spark 4.2 passes the start.

With `availableNow`, Spark 4.1 reads only one batch from a Python source, and it supports no metrics
of Python sources. So `drain` reads all batches, and `lag` measures the lag. Both use the offsets of
the query's batches.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from tidings.core import limits
from tidings.core.errors import InvalidCursor
from tidings.core.model import cursors
from tidings.core.model.cursors import PAGE_END, START, Place, Replication, Since
from tidings.core.model.filters import Filter
from tidings.spark import columns
from tidings.spark.backends import ArchiveBackend, Backend, Ends, within
from tidings.spark.columns import Piece
from tidings.spark.options import (
    COPY,
    CURSOR,
    NOW,
    OLDEST,
    STATE,
    At,
    Gone,
    Lagging,
    Log,
    NotSpark,
    Offset,
    Options,
    Rows,
    Where,
    WrongOption,
    between,
    copying,
    in_log,
    offset_from,
    parse,
)
from tidings.sync.feed import NotFollowing, wait_for_state

Task = Log | Rows


@dataclass(frozen=True, slots=True)
class Work:
    """The parameters that all tasks of a read share."""

    backend: Backend
    names: tuple[str, ...]
    wanted: Filter

    def do(self, task: Task) -> Iterator[pa.RecordBatch]:
        if isinstance(task, Rows) and task.resets:
            yield columns.reset_row(self.names)
        yield from columns.batches(self._pieces(task), self.names, self.wanted)

    def _pieces(self, task: Task) -> Iterator[Piece]:
        if isinstance(task, Log):
            yield from within(self.backend.log(task.after, task.last), task)
            return
        yield from self.backend.rows(task.copy, task.end)


def rows_in_tasks(copy: Replication, end: int, count: int, *, resets: bool = False) -> list[Rows]:
    """Divide the buckets from `copy.bucket` up to, but not including, *end* into *count* tasks."""
    buckets = end - copy.bucket
    pieces = min(count, buckets)
    cuts = (
        [copy.bucket + buckets * piece // pieces for piece in range(pieces + 1)] if pieces else []
    )
    return [
        Rows(replace(copy, bucket=first), last, resets and first == copy.bucket)
        for first, last in pairwise(cuts)
    ]


class Reader(DataSourceReader):
    """A reader of one range, which the planner of a read creates and sends to the tasks."""

    def __init__(self, options: Options, backend: Backend, work: Work) -> None:
        self._options, self._backend, self._work = options, backend, work
        if options.what == STATE and options.until:
            raise WrongOption(
                "until",
                "is not valid for the state, of which only the present version exists; read the log"
                " up to the cursor and apply `tidings.spark.latest` to it",
            )

    def partitions(self) -> list[InputPartition]:
        ends, options = self._backend.ends(), self._options
        if options.what == STATE:
            everything = Replication(0, self._state_checkpoint(ends), 0, tombstones=False)
            return list(rows_in_tasks(everything, limits.BUCKETS, options.partitions))
        after, last = self._since(ends), self._until(ends)
        return list(self._backend.stretches(after, last, options.partitions))

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Read one partition. If the plan is empty, Spark calls this with None."""
        if partition is None:
            return iter(())
        assert isinstance(partition, Log | Rows)
        return self._work.do(partition)

    def _since(self, ends: Ends) -> Place:
        if self._options.since == OLDEST:
            return before(ends.floor)
        place = place_of("since", self._options.since)
        if place.page + 1 < ends.floor or not is_ours(self._backend, place, ends):
            raise Gone(
                f"the log does not continue after {self._options.since}; it begins with page"
                f" {ends.floor}. Read it with since=oldest, or read the state with what=state"
            )
        return place

    def _until(self, ends: Ends) -> Place:
        if self._options.until in ("", NOW):
            return ends.frontier
        return _up_to("until", self._options.until, ends)

    def _state_checkpoint(self, ends: Ends) -> int:
        """Return the checkpoint of the state as soon as the state includes the requested page."""
        at_least = self._options.at_least
        if at_least == OLDEST:
            return ends.projected
        place = ends.frontier if at_least == NOW else _up_to("atLeast", at_least, ends)
        feed, backend = self._options.where.feed, self._backend
        try:
            return wait_for_state(feed, place.page, lambda: backend.ends().projected)
        except NotFollowing as error:
            rule = f"atLeast={OLDEST} reads the state as it is"
            raise Lagging(f"{error}; {rule}") from None


def _up_to(option: str, text: str, ends: Ends) -> Place:
    place = place_of(option, text)
    if place.page > ends.frontier.page:
        rule = f"must not be after the end of the feed, {ends.frontier.encode()}"
        raise WrongOption(option, rule, text)
    return place


def before(page: int) -> Place:
    """Return the place after which to read to get *page* and all later pages."""
    return START if page <= 1 else Place(page - 1, PAGE_END, 0)


def place_of(option: str, text: str) -> Place:
    """Return the place in *text*.

    Raises:
        WrongOption: *text* is not a place of the log.
    """
    try:
        cursor = cursors.parse(text)
    except InvalidCursor:
        cursor = None
    if not isinstance(cursor, Place):
        raise WrongOption(option, "must be the id of an event, 24 hex digits", text)
    return cursor


def is_ours(backend: Backend, place: Place, ends: Ends) -> bool:
    """Return True if *place* is a place of this log.

    Return False if the page of *place* was lost, or was committed at another second.
    """
    if place == START or place.page + 1 == ends.floor or place == ends.frontier:
        return True
    if place.page > ends.frontier.page:
        return False
    end = backend.end_of(place.page)
    if end is None or end.page != place.page:
        return not backend.is_lost(place)
    return end.seconds == place.seconds


class StreamReader(DataSourceStreamReader):
    def __init__(self, options: Options, backend: Backend, work: Work) -> None:
        self._options, self._backend, self._work = options, backend, work
        self._current: Offset | None = None
        self._latest: dict[str, str] | None = None  # the last result of `latestOffset`

    def initialOffset(self) -> dict[str, str]:
        """Return the place where the stream began.

        Take this place from the logged end of the first batch if that batch failed. Before that,
        `start=now` must give the same place at each call.
        """
        begun = self._current_offset().begun
        return Offset(begun, begun).as_json()

    def latestOffset(
        self, start: dict[str, str] | None = None, limit: object = None
    ) -> dict[str, str]:
        """Return the end of the next batch; *start* is its start, which Spark passes since 4.2."""
        current = self._current_offset() if start is None else offset_from(start)
        self._latest = replace(current, at=self._next(current.at)).as_json()
        return self._latest

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        self._current = offset_from(end)
        return self._plan(between(offset_from(start), self._current), repeats=end != self._latest)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Log | Rows)
        return self._work.do(partition)

    def commit(self, end: dict[str, str]) -> None:
        """Do nothing, because Spark stores the position."""

    def stop(self) -> None:
        """Do nothing, because the reader has no connection."""

    def _current_offset(self) -> Offset:
        if self._current is None:
            at = self._begin()
            self._current = Offset(at, at)
        return self._current

    def _begin(self) -> At:
        start, ends = self._options.start, self._backend.ends()
        if start == OLDEST:
            return before(ends.floor)
        if start == NOW:
            return ends.frontier
        try:
            cursor = Since(0) if start == COPY else cursors.parse(start)
        except InvalidCursor:
            cursor = None
        if isinstance(cursor, Replication):
            return replace(cursor, part=0)  # a bucket is read from its beginning
        if isinstance(cursor, Place):
            return cursor
        if isinstance(cursor, Since):
            return Replication(max(0, cursor.ms) // 1000, ends.projected, 0, tombstones=False)
        raise WrongOption("start", "must be copy, oldest, now or the id of an event", start)

    def _next(self, at: At) -> At:
        """Return the end of the batch that begins at *at*, or *at* if nothing follows."""
        ends = self._backend.ends()
        if copying(at) and isinstance(at, Replication) and self._lasts(at, ends):
            return self._copied_on(at)
        place = in_log(at)
        if copying(at) or self._is_lost(at, place, ends):
            copy = self._place_or_copy(place)
            if isinstance(copy, Replication):
                return self._copied_on(copy)
        if place.page >= ends.frontier.page:
            return at
        page = min(ends.frontier.page, place.page + self._options.max_pages)
        if page == ends.frontier.page:
            return ends.frontier
        return self._backend.end_of(page) or ends.frontier

    def _copied_on(self, copy: Replication) -> Replication:
        bucket = min(limits.BUCKETS, copy.bucket + self._options.max_buckets)
        return replace(copy, bucket=bucket)

    def _lasts(self, copy: Replication, ends: Ends) -> bool:
        """Return True if the copy can continue.

        The feed must still have all pages since the start of the copy. If the copy contains
        tombstones, the state must still have all tombstones since `copy.since_s`.
        """
        if copy.page + 1 < ends.floor or self._backend.is_lost(copy):
            return False
        if not copy.tombstones:
            return True
        copied = self._backend.place_or_copy(Place(copy.page, 0, copy.since_s))
        return isinstance(copied, Replication) and copied.since_s > 0

    def _is_lost(self, at: At, place: Place, ends: Ends) -> bool:
        """Return True if *at* was lost, or the log after it was trimmed.

        *ends* may be slightly old. So a place after `ends.frontier` is not necessarily lost, and
        this method asks the backend.
        """
        if place.page + 1 < ends.floor:
            return True
        if isinstance(at, Place) and place.page <= ends.frontier.page:
            return not is_ours(self._backend, place, ends)
        return place.page != ends.frontier.page and self._backend.is_lost(at)

    def _place_or_copy(self, place: Place) -> At:
        """Return *place*, or the copy of the state to read if pages after *place* were removed."""
        copy = self._backend.place_or_copy(place)
        if self._options.fails and isinstance(copy, Replication):
            raise Gone(f"the log does not continue after {place.encode()}: pages were removed")
        return copy

    def _plan(self, batch: Log | Rows | None, *, repeats: bool) -> list[Task]:
        """Return the tasks of *batch*, which Spark *repeats* after a failure or a restart.

        If the feed lost its end in the meantime, for example in a restore, it has no tasks: the
        next batch, which begins at that end, begins a new copy.
        """
        count = self._options.partitions
        if batch is None:
            return []
        ends = self._backend.ends() if repeats else None
        if isinstance(batch, Rows):
            if ends and not self._lasts(batch.copy, ends):
                return []
            return list(rows_in_tasks(batch.copy, batch.end, count, resets=batch.resets))
        if ends and batch.after.page + 1 < ends.floor:
            copy = self._place_or_copy(batch.after)
            if isinstance(copy, Replication):
                resets = copy.since_s == 0
                return list(rows_in_tasks(copy, limits.BUCKETS, count, resets=resets))
        if ends and self._is_lost(batch.last, batch.last, ends):
            return []
        return list(self._backend.stretches(batch.after, batch.last, count))


NAME = "tidings"


class TidingsSource(DataSource):
    """The data source. The planner creates an instance for each read and each write."""

    @classmethod
    def name(cls) -> str:
        return NAME

    @cached_property
    def _options(self) -> Options:
        return parse(self.options)

    def schema(self) -> StructType:
        return columns.subset(self._options.columns or columns.SCHEMA.names)

    def reader(self, schema: StructType) -> DataSourceReader:
        backend = open_backend(self._options.where, self._options.wanted)
        return Reader(self._options, backend, self._work(backend, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        if self._options.what == STATE:
            rule = "must be log in a stream, which begins with the state if start=copy"
            raise WrongOption("what", rule, STATE)
        backend = open_backend(self._options.where, self._options.wanted)
        return StreamReader(self._options, backend, self._work(backend, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        # The module `sink` imports the HTTP client, which reads of tables do not need.
        from tidings.spark.sink import Writer

        return Writer(self._options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from tidings.spark.sink import StreamWriter

        return StreamWriter(self._options, schema, overwrite=overwrite)

    def _work(self, backend: Backend, schema: StructType) -> Work:
        if not isinstance(schema, StructType):  # Sail passes a schema of Arrow
            raise NotSpark
        return Work(backend, tuple(columns.check_schema(schema)), self._options.wanted)


Write = Callable[[DataFrame], DataStreamWriter]


def drain(spark: SparkSession, options: Mapping[str, str], write: Write) -> int:
    """Read everything that the feed of *options* has now, in batches; return the number of batches.

    *write* returns the writer of a stream, with a `checkpointLocation` and without a trigger. The
    last batch reaches the place that was the frontier when `drain` was called. This batch may also
    contain operations that were appended later.

    Raises:
        StreamingQueryException: a batch failed; the checkpoint keeps the batches before it.
    """
    end, batches = _frontier(options), 0
    while True:
        frame = spark.readStream.format("tidings").options(**options).load()
        query = write(frame).trigger(availableNow=True).start()
        query.awaitTermination()
        started, at = _last_batch(query)
        if at == started:
            return batches
        batches += 1
        if isinstance(at, Place) and at.page >= end.page:
            return batches


def lag(query: StreamingQuery, options: Mapping[str, str]) -> int | None:
    """Return how many pages *query* is late, or None before its first batch.

    *options* are those of the stream that *query* reads. During a copy, the lag is counted from the
    page of the copy.
    """
    _, at = _last_batch(query)
    return None if at is None else max(0, _frontier(options).page - in_log(at).page)


def _frontier(options: Mapping[str, str]) -> Place:
    parsed = parse({name.lower(): value for name, value in options.items()})
    return open_backend(parsed.where, parsed.wanted).ends().frontier


def _last_batch(query: StreamingQuery) -> tuple[At | None, At | None]:
    """Return the start and the end of the last batch of *query*; None and None before the first."""
    progress = query.lastProgress
    batch = json.loads(progress.json) if progress is not None else {"sources": []}
    for source in batch["sources"]:
        start, end = _offset(source["startOffset"]), _offset(source["endOffset"])
        if end is not None:
            return start, end
    return None, None


def _offset(offset: Any) -> At | None:
    """Return the position in *offset*; None if it is missing or belongs to another source."""
    is_ours = isinstance(offset, dict) and CURSOR in offset
    return offset_from(offset).at if is_ours else None


def open_backend(where: Where, wanted: Filter) -> Backend:
    """Return the backend that the options name.

    *wanted* is the filter that an HTTP server applies.

    Raises:
        WrongOption: the feed, stage or archive does not exist.
    """
    if where.url:
        from tidings.spark.http_backend import HttpBackend

        return HttpBackend(where, wanted)
    if where.stage or where.tables or where.endpoint:
        from tidings.spark.dynamodb_backend import DynamoDBBackend, tables_of

        dynamodb = tables_of(where)
        return DynamoDBBackend(dynamodb, replace(where, feed=dynamodb.feed))
    return ArchiveBackend(where)

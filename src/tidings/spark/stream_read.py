"""
Read a stream: a copy of the state in pieces, if requested, then the log in bounded batches.

Spark 4.0 does not pass the start of a batch when it requests the end. But it plans every batch here
before it requests the next one, and after a restart it first plans an empty batch at the last
offset. The next batch therefore starts at the end of the last planned one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from tidings.core import limits
from tidings.core.errors import InvalidCursor
from tidings.core.model import cursors
from tidings.core.model.cursors import Place, Replication, Since
from tidings.spark import offsets, tasks
from tidings.spark.backends.backend import Backend, Ends
from tidings.spark.batch_read import before, is_ours
from tidings.spark.errors import Gone, WrongOption
from tidings.spark.offsets import At, Log, Offset, Rows
from tidings.spark.options import COPY, NOW, OLDEST, Options
from tidings.spark.tasks import Task, Work


class StreamReader(DataSourceStreamReader):
    def __init__(self, options: Options, backend: Backend, work: Work) -> None:
        self._options, self._backend, self._work = options, backend, work
        self._stands: Offset | None = None

    def initialOffset(self) -> dict[str, str]:
        """
        Return the initial offset. Spark may call this several times; `now` must not move in
        between.
        """
        return self._standing().as_json()

    def latestOffset(self) -> dict[str, str]:
        stands = self._standing()
        return replace(stands, at=self._next(stands.at)).as_json()

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        self._stands = offsets.offset_from(end)
        return self._planned(offsets.between(offsets.offset_from(start), self._stands))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Log | Rows)
        return self._work.do(partition)

    def commit(self, end: dict[str, str]) -> None:
        """Do nothing: Spark stores the position itself."""

    def stop(self) -> None:
        """Do nothing: the reader has no connection."""

    def _standing(self) -> Offset:
        if self._stands is None:
            at = self._begin()
            self._stands = Offset(at, at)
        return self._stands

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
            return replace(cursor, part=0)  # a bucket is read completely
        if isinstance(cursor, Place):
            return cursor
        if isinstance(cursor, Since):
            return Replication(max(0, cursor.ms) // 1000, ends.projected, 0, tombstones=False)
        raise WrongOption("start", "must be copy, oldest, now or the id of an event", start)

    def _next(self, at: At) -> At:
        """Return the end of a batch that begins at *at*; *at* if nothing follows."""
        ends = self._backend.ends()
        if offsets.copying(at) and isinstance(at, Replication) and self._lasts(at, ends):
            return self._copied_on(at)
        place = offsets.in_log(at)
        if offsets.copying(at) or self._lost(at, place, ends):
            copy = self._fallen(place)
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
        """
        Return True if the log since the start of the copy is complete, and tombstones are kept.
        """
        if copy.page + 1 < ends.floor or self._backend.lost(copy):
            return False
        if not copy.tombstones:
            return True
        copied = self._backend.fallen(Place(copy.page, 0, copy.since_s))
        return isinstance(copied, Replication) and copied.since_s > 0

    def _lost(self, at: At, place: Place, ends: Ends) -> bool:
        """
        Return True if *at* was lost. The ends may be slightly old, so a later place is not lost by
        itself.
        """
        if place.page + 1 < ends.floor:
            return True
        if isinstance(at, Place) and place.page <= ends.frontier.page:
            return not is_ours(self._backend, place, ends)
        return place.page != ends.frontier.page and self._backend.lost(at)

    def _fallen(self, place: Place) -> At:
        """
        Return the copy to read if the log was trimmed after *place*; else *place*.

        Raises:
            Gone: a copy is necessary, but the option `fellOff` is `fail`.
        """
        copy = self._backend.fallen(place)
        if self._options.fails and isinstance(copy, Replication):
            raise Gone(f"the log does not go on behind {place.encode()}: it was given up")
        return copy

    def _planned(self, batch: Log | Rows | None) -> list[Task]:
        count = self._options.partitions
        if batch is None:
            return []
        if isinstance(batch, Rows):
            return list(tasks.of_rows(batch.copy, batch.end, count, resets=batch.resets))
        if batch.after.page + 1 < self._backend.ends().floor:  # for a batch that is read again
            copy = self._fallen(batch.after)
            if isinstance(copy, Replication):
                resets = copy.since_s == 0
                return list(tasks.of_rows(copy, limits.BUCKETS, count, resets=resets))
        return list(self._backend.stretches(batch.after, batch.last, count))

"""Keep the tables of a feed up to date, by writing one batch of the log at a time to all of them.

A run starts at the place of the tables, which is the cursor up to which they contain the log. The
checkpoint of the run's streaming query is in a temporary folder of the driver. The checkpoint is
deleted after the run, because the tables store the place, and a checkpoint could differ from the
stored place.
"""

from __future__ import annotations

import json
import math
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from tidings.core.model.cursors import Place
from tidings.core.model.operations import ERASURE_MARK
from tidings.lake.feed_tables import FeedTables
from tidings.lake.warehouse import LakeError, Stopped, TypesFailed
from tidings.spark import register
from tidings.spark.backends import Backend, Ends
from tidings.spark.options import OLDEST, Gone, in_log, offset_from, parse
from tidings.spark.reader import before, open_backend
from tidings.sync.spark_session import SPARK_ERRORS, errors_of_tasks

LOOK_S = 1  # the time between two checks of whether a run is done
MAINTAIN_BATCHES = 30  # batches between two maintenances: half an hour at one batch per minute


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch that was written to the tables.

    *number* is the index of the batch in the run, and *operations* the number of its operations.
    *through* is the cursor up to which the tables are complete, and *page* the page of this cursor.
    *left* has, by type, the number of objects with data that do not fit the columns. *failed* has,
    by type, the reason why the type is left out.
    """

    number: int
    operations: int
    through: str
    page: int
    seconds: float
    left: dict[str, int]
    failed: dict[str, str]


@dataclass(frozen=True, slots=True)
class Source:
    """The feed to follow, as *options* of the data source `tidings`."""

    options: Mapping[str, str]

    def backend(self) -> Backend:
        parsed = parse(self.options)
        return open_backend(parsed.where, parsed.wanted)

    @property
    def has_state(self) -> bool:
        return any(name in self.options for name in ("url", "stage", "endpoint", "stateTable"))


@dataclass
class Follower:
    """The loop that follows a feed.

    *every_s* is the interval between batches. If *gaps*, rows of the state replace pages that the
    log no longer has, and compacted parts of the archive are accepted. *on_batch* is called with
    each batch.
    """

    tables: FeedTables
    source: Source
    every_s: int
    gaps: bool
    on_batch: Callable[[Batch], None]
    _error: LakeError | None = None
    _offsets: Path = Path()
    _stopping: threading.Event = field(default_factory=threading.Event)
    _ended: bool = False
    _taking: threading.Lock = field(default_factory=threading.Lock)  # held while a batch is written

    def stop(self) -> None:
        """Stop after the current batch. A signal handler may call this method."""
        self._stopping.set()

    def run(self, *, once: bool = False, for_s: float | None = None) -> Place:
        """Follow the feed until `stop` is called.

        If *once*, end when the tables reach the end that the feed has at the start. Otherwise end
        after *for_s* seconds, unless *for_s* is None.

        Raises:
            Stopped: the log no longer has the next pages, or is not the log of the tables.
            Raced: another run writes these tables.
            TypesFailed: Spark failed for the tables of some types; the other tables are complete.
        """
        with errors_of_tasks(Gone, _stop_error):
            ends = self.source.backend().ends()
            self._begin(ends)
            end_s = math.inf if for_s is None else time.monotonic() + for_s

            def going() -> bool:
                if self._stopping.is_set():
                    return False
                if once:
                    return self.tables.place.page < ends.frontier.page
                return time.monotonic() < end_s

            if going():
                self._stream(going)
        self.tables.maintain()
        if self.tables.failed:
            raise TypesFailed(self.tables.failed)
        return self.tables.place

    def _begin(self, ends: Ends) -> None:
        self.tables.begin("looking")
        self.tables.create()
        begun, place = self.tables.catch_up(), self.tables.place
        if place.page > ends.frontier.page:
            raise Stopped(
                f"the tables contain page {place.page:,}, but the feed ends with page"
                f" {ends.frontier.page:,}; the tables are of another feed, or the feed was restored"
            )
        end = self.source.backend().end_of(place.page) if begun else None
        is_same_page = end is not None and end.page == place.page
        if end is not None and is_same_page and place.seconds not in (0, end.seconds):
            raise Stopped(
                f"page {place.page:,} of the feed is not the last page of the tables: it was"
                " committed at another time, so the tables are of another feed; name another folder"
            )
        if place.page + 1 >= ends.floor:
            return
        if not (begun or self.source.has_state):
            # The source is only an archive, which may not have the first pages of the feed. The
            # tables begin with the first page of the archive.
            self.tables.place = before(ends.floor)
            return
        if begun and not (self.gaps and self.source.has_state):
            raise Stopped(
                f"the log begins with page {ends.floor:,}, but the tables end with page"
                f" {place.page:,}; --allow-gaps uses the state in place of the missing pages"
            )
        self._copy(ends)

    def _copy(self, ends: Ends) -> None:
        """Copy the state to the tables, which can then continue with the first page of the log."""
        self.tables.begin("copying the state")
        options = {**self.source.options, "what": "state", "atLeast": OLDEST}
        state = self._session().read.format("tidings").options(**options).load()
        self.tables.begin_with(state, before(ends.floor))

    def _stream(self, going: Callable[[], bool]) -> None:
        options = {
            **self.source.options,
            "start": self.tables.place.encode(),
            "fellOff": "fail",
            "compacted": "take" if self.gaps else "fail",
        }
        stream = self._session().readStream.format("tidings").options(**options).load()
        with tempfile.TemporaryDirectory(prefix="tidings-checkpoint-") as folder:
            self._offsets = Path(folder, "offsets")
            writer = stream.writeStream.foreachBatch(self._take)
            writer = writer.option("checkpointLocation", Path(folder).as_uri())
            query = writer.trigger(processingTime=f"{self.every_s} seconds").start()
            try:
                self._wait(query, going)
            finally:
                with self._taking:
                    # From now on, a batch does nothing. So `query.stop`, which waits for the
                    # current batch, returns soon.
                    self._ended = True
                query.stop()

    def _wait(self, query: StreamingQuery, going: Callable[[], bool]) -> None:
        try:
            while going() and not query.awaitTermination(LOOK_S):
                """Continue."""
        except SPARK_ERRORS:
            if self._error is not None:
                raise self._error from None
            raise

    def _take(self, frame: DataFrame, number: int) -> None:
        """Write a batch to the tables. The thread of the query calls this method."""
        with self._taking:
            if self._ended:
                return
            try:
                self._took(frame, number)
            except LakeError as error:
                self._error = error
                raise

    def _took(self, frame: DataFrame, number: int) -> None:
        begun = time.monotonic()
        written = (self._offsets / str(number)).read_text().splitlines()
        through = in_log(offset_from(json.loads(written[-1])).at)
        rows = frame.persist()
        try:
            is_erasure = (F.col("event") == "delete") & F.endswith("line", F.lit(ERASURE_MARK))
            first = F.min(F.when(is_erasure, F.col("page")))
            operations, erasures = rows.agg(F.count("*"), first).collect()[0]
            misfits = self.tables.take(rows, through, erasures or 0)
        finally:
            rows.unpersist()
        seconds = round(time.monotonic() - begun, 3)
        end = through.encode()
        failed = dict(self.tables.failed)
        self.on_batch(
            Batch(
                number=number,
                operations=operations,
                through=end,
                page=through.page,
                seconds=seconds,
                left=misfits,
                failed=failed,
            )
        )
        if number % MAINTAIN_BATCHES == MAINTAIN_BATCHES - 1:
            self.tables.maintain()

    def _session(self) -> SparkSession:
        register(self.tables.session)
        return self.tables.session


def _stop_error(gone: str) -> Stopped:
    return Stopped(f"{gone}; --allow-gaps continues without the missing operations")

"""
Keep tables up to date with their feed, by writing one batch of its log at a time to all of them.

A run starts at the position of the tables. The checkpoint of its query is in a folder of the driver
and deleted after the run, because a checkpoint that differs from the tables cannot be used.
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
from pyspark.sql.streaming.query import StreamingQuery

from tidings.core.model.cursors import Place
from tidings.lake.feed_tables import FeedTables
from tidings.lake.warehouse import LakeError, Stopped, TypesFailed
from tidings.spark import register
from tidings.spark.backends import Backend, Ends
from tidings.spark.options import OLDEST, Gone, in_log, offset_from, parse
from tidings.spark.reader import before, open_backend
from tidings.sync.spark_session import SPARK_ERRORS, errors_of_tasks

LOOK_S = 1  # how often to check if a run is done
MAINTAIN_BATCHES = 30  # at one batch per minute, twice an hour


@dataclass(frozen=True, slots=True)
class Batch:
    """
    A batch that was written to the tables.

    *number* is the number of the batch in the run, and *operations* the number of its operations.
    *through* is the cursor up to which the tables are complete, and *page* its page. *left* counts,
    by type, the objects that their columns do not represent completely. *failed* has, by type, the
    reason why the type was left out.
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
    """The feed that the *options* of the data source `tidings` name."""

    options: Mapping[str, str]

    def backend(self) -> Backend:
        parsed = parse(self.options)
        return open_backend(parsed.where, parsed.wanted)

    @property
    def has_state(self) -> bool:
        return any(name in self.options for name in ("url", "stage", "endpoint", "stateTable"))


@dataclass
class Follower:
    """
    The loop that follows a feed.

    *every_s* is the time in which a batch collects. With *gaps*, pages that the log lost are
    replaced by the state, and compacted parts of the archive are accepted. *told* is called with
    each batch.
    """

    tables: FeedTables
    source: Source
    every_s: int
    gaps: bool
    told: Callable[[Batch], None]
    _error: LakeError | None = None
    _offsets: Path = Path()
    _stopping: threading.Event = field(default_factory=threading.Event)
    _ended: bool = False
    _taking: threading.Lock = field(default_factory=threading.Lock)  # held while a batch is written

    def stop(self) -> None:
        """Stop after the current batch. A signal handler may call this."""
        self._stopping.set()

    def run(self, *, once: bool = False, for_s: float | None = None) -> Place:
        """
        Follow the feed until `stop` is called, for *for_s* seconds, or *once* to its current end.

        Raises:
            Stopped: the log lost the next pages, or is not the log of the tables.
            Raced: another run writes these tables.
            TypesFailed: Spark failed for the tables of some types; the other tables are complete.
        """
        with errors_of_tasks(Gone, _stopped):
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
                f"the tables hold page {place.page:,}, and the feed ends with page"
                f" {ends.frontier.page:,}: they are another feed's, or it was put back"
            )
        if place.page + 1 >= ends.floor:
            return
        if not (begun or self.source.has_state):  # only an archive, which may have been begun late
            self.tables.place = before(ends.floor)
            return
        if begun and not (self.gaps and self.source.has_state):
            raise Stopped(
                f"the log begins with page {ends.floor:,}, and the tables end with {place.page:,};"
                " --allow-gaps continues with the state instead of the missing pages"
            )
        self._copy(ends)

    def _copy(self, ends: Ends) -> None:
        """Copy the state to the tables, so that the log is read from its floor."""
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
                    self._ended = True  # a later batch does nothing, as Spark waits for it
                query.stop()

    def _wait(self, query: StreamingQuery, going: Callable[[], bool]) -> None:
        """
        Wait until the run ends.

        Raises:
            LakeError: the error that `_take` raised.
        """
        try:
            while going() and not query.awaitTermination(LOOK_S):
                """It goes on."""
        except SPARK_ERRORS:
            if self._error is not None:
                raise self._error from None
            raise

    def _take(self, frame: DataFrame, number: int) -> None:
        """Write a batch, in the thread of the query."""
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
        through = self._end_of(number)
        rows = frame.persist()
        try:
            operations = rows.count()
            left = self.tables.take(rows, through)
        finally:
            rows.unpersist()
        seconds = round(time.monotonic() - begun, 3)
        end = through.encode()
        failed = dict(self.tables.failed)
        self.told(
            Batch(
                number=number,
                operations=operations,
                through=end,
                page=through.page,
                seconds=seconds,
                left=left,
                failed=failed,
            )
        )
        if number % MAINTAIN_BATCHES == MAINTAIN_BATCHES - 1:
            self.tables.maintain()

    def _end_of(self, number: int) -> Place:
        """Return the end of the batch, which Spark wrote before the batch began."""
        written = (self._offsets / str(number)).read_text().splitlines()
        return in_log(offset_from(json.loads(written[-1])).at)

    def _session(self) -> SparkSession:
        register(self.tables.session)
        return self.tables.session


def _stopped(gone: str) -> Stopped:
    return Stopped(f"{gone}; --allow-gaps continues without the missing operations")

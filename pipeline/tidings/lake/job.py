"""
A run: closed parts go into the tables, and then the parts that everybody has read are compacted.

Never the other way round: what a part loses is in `history` before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from pyspark.sql import SparkSession
from tidings.core.archive.compaction import below, closed, older
from tidings.core.archive.segments import Span
from tidings.lake.compaction import Compaction
from tidings.lake.errors import Stopped
from tidings.lake.loading import Loader
from tidings.lake.parts import Archive
from tidings.lake.tables import HISTORY
from tidings.lake.warehouse import Warehouse

PARTS_PER_PARTITION = 8  # of a shuffle: at most 64 MB of text


@dataclass(frozen=True, slots=True)
class Wishes:
    """
    *page*: what is compacted ends here or before; *before_ms*: and was committed until then.

    *keep_parts*: only the tables are brought up to date. See `Loader` and `Compaction`.
    """

    page: int | None = None
    before_ms: int | None = None
    keep_parts: bool = False
    changes: bool = True
    allow_gaps: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """
    *loaded* operations went into `history`, which reaches *through*. Of *operations* in the parts
    up to page *bound* are *left*; *parts* are all that there were.
    """

    feed: str
    parts: int
    loaded: int
    through: int
    bound: int
    operations: int
    left: int
    written: int
    removed: int


@dataclass(frozen=True, slots=True)
class Job:
    spark: SparkSession
    archive: Archive
    warehouse: Warehouse
    wishes: Wishes
    begin: Callable[[str], None]

    def run(self) -> Report:
        """
        Raises:
            Stopped: a guard objects; the tables may have got something by then.
            LakeError: see its kinds.
        """
        self.begin("finding the parts")
        spans = self.archive.spans()
        done = closed(spans)
        session = self.warehouse.session(self.spark)
        _divide(session, len(done))
        loader = Loader(session, self.archive, self.warehouse, self.wishes.allow_gaps, self.begin)
        loaded = loader.planned(done) if self.wishes.dry_run else loader.load(done)
        chosen = self._chosen(done)
        if chosen and not self.wishes.dry_run:
            _check(loader.table(HISTORY).standing().through, chosen)
        compaction = Compaction(
            session, self.archive, self.wishes.changes, self.wishes.dry_run, self.begin
        )
        compacted = compaction.run(chosen)
        return Report(
            self.archive.feed,
            len(spans),
            loaded.operations,
            loaded.through,
            max((span.last for span in chosen), default=0),
            **asdict(compacted),
        )

    def _chosen(self, done: Sequence[Span]) -> list[Span]:
        if self.wishes.keep_parts:
            return []
        page, before_ms = self.wishes.page, self.wishes.before_ms
        spans = list(done) if page is None else below(done, page)
        return (
            spans
            if before_ms is None
            else older(spans, lambda span: self.archive.pages(span)[-1].at_ms, before_ms)
        )


def _divide(session: SparkSession, parts: int) -> None:
    """So many partitions that what a task holds fits into memory, and few for few parts."""
    cores = session.sparkContext.defaultParallelism
    session.conf.set("spark.sql.shuffle.partitions", max(cores, parts // PARTS_PER_PARTITION))


def _check(through: int, chosen: Sequence[Span]) -> None:
    """A part that the history does not hold whole keeps its operations."""
    last = max(span.last for span in chosen)
    if through < last:
        raise Stopped(f"history ends at page {through:,}, and page {last:,} was to be compacted")

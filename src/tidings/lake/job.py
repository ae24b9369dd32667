"""
Compact the parts that all readers, including the table `history`, have handled.

Operations that a part loses are in `history` first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from pyspark.sql import SparkSession

from tidings.core.archive.compaction import below, closed, older
from tidings.core.archive.segments import Span
from tidings.lake import tables
from tidings.lake.compaction import Compaction
from tidings.lake.parts import Archive
from tidings.lake.warehouse import HISTORY, Warehouse

PARTS_PER_PARTITION = 8  # of a shuffle: at most 64 MB of text
PARTITIONS_MIN = 2  # the number of cores of a small machine


@dataclass(frozen=True, slots=True)
class Wishes:
    """
    The options of a run, which compacts parts up to *page*, committed by *before_ms*.

    For the others see `Compaction`.
    """

    page: int | None = None
    before_ms: int | None = None
    changes: bool = True
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """
    The result of a run. Of *operations* in the parts up to page *bound*, *left* remain.

    *parts* counts all parts, and `history` reaches the page *through*.
    """

    feed: str
    parts: int
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
        Compact the archive.

        Raises:
            LakeError: see its subclasses.
        """
        self.begin("finding the parts")
        spans = self.archive.spans()
        done = closed(spans)
        session = self.warehouse.session(self.spark)
        partitions = max(PARTITIONS_MIN, len(done) // PARTS_PER_PARTITION)
        session.conf.set("spark.sql.shuffle.partitions", partitions)
        history = tables.of_feed(session, self.warehouse, self.archive.feed, HISTORY)
        place = history.through()
        through = place.page if place is not None else 0
        chosen = self._chosen(done, through)
        wishes = self.wishes
        compaction = Compaction(session, self.archive, wishes.changes, wishes.dry_run, self.begin)
        compacted = compaction.run(chosen)
        return Report(
            self.archive.feed,
            len(spans),
            through,
            max((span.last for span in chosen), default=0),
            **asdict(compacted),
        )

    def _chosen(self, done: Sequence[Span], through: int) -> list[Span]:
        page, before_ms = self.wishes.page, self.wishes.before_ms
        spans = below(done, through if page is None else min(page, through))
        return (
            spans
            if before_ms is None
            else older(spans, lambda span: self.archive.pages(span)[-1].at_ms, before_ms)
        )

"""
Compact with Spark: select the entries to keep in closed parts, and rewrite the parts.

First the tasks write each merged part. Then the driver removes the parts that it covers, in the
order of `core.compacting.covered`. A crash in between leaves parts that overlap. Readers ignore the
overlap, and the next run removes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from tidings.core.archive import compaction
from tidings.core.archive.compaction import Weighed
from tidings.core.archive.segments import Span
from tidings.lake import parts
from tidings.lake.errors import PartGone
from tidings.lake.parts import Archive
from tidings.sync.engines.spark_session import errors_of_tasks

# In a JSON string quotes are escaped, and `data` is the last key, except for the mark of a change.
# The first occurrence is therefore the start of the data, and the text before it is parsed without
# them.
_DATA = ',"data":'
_MARK = ',"change":true}'


@dataclass(frozen=True, slots=True)
class Compacted:
    """
    The result: *operations* in the parts, *left* after compaction, parts *written* and *removed*.

    If nothing had to be done, *written* and *removed* are 0.
    """

    operations: int = 0
    left: int = 0
    written: int = 0
    removed: int = 0


@dataclass(frozen=True, slots=True)
class Compaction:
    """
    One compaction. With *changes*, changes are kept; they have no object. A *dry_run* only counts.
    """

    session: SparkSession
    archive: Archive
    changes: bool
    dry_run: bool
    begin: Callable[[str], None]

    def run(self, spans: Sequence[Span]) -> Compacted:
        """
        Compact *spans*, which must be closed, below the bound, and in the history.

        Raises:
            PartGone: another process compacts at the same time.
        """
        if not spans:
            return Compacted()
        self.begin("comparing")
        left_behind = set(self._remove(spans))  # by a run that crashed
        clean = [span for span in spans if span not in left_behind]
        done = self._compacted(clean)
        return replace(done, removed=done.removed + len(left_behind))

    def _compacted(self, spans: Sequence[Span]) -> Compacted:
        entries = self.archive.entries(self.session, spans)
        kept = flagged(entries, changes=self.changes)
        kept = kept.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            return self._run(spans, kept)
        finally:
            kept.unpersist()

    def _run(self, spans: Sequence[Span], flagged: DataFrame) -> Compacted:
        with errors_of_tasks(PartGone, PartGone):
            weighed = _weighed(spans, flagged)
        groups = compaction.groups(weighed)
        if not self.dry_run:
            self.begin("writing parts")
            with errors_of_tasks(PartGone, PartGone):
                self._write(spans, groups, flagged)
            self.begin("removing parts")
        return Compacted(
            sum(each.entries for each in weighed),
            sum(each.left for each in weighed),
            len(groups),
            len(self._remove({*spans, *map(_merged, groups)})),
        )

    def _write(
        self, spans: Sequence[Span], groups: Sequence[list[Span]], flagged: DataFrame
    ) -> None:
        if not groups:
            return
        of_part = list(_numbers(spans, groups))
        known = self.session.createDataFrame(of_part, "part LONG, group LONG")
        left = flagged.where("left").join(F.broadcast(known), "part")
        at = F.collect_set(F.struct("page", "slot")).alias("at")
        # A group without remaining entries is written, too, because its pages remain.
        every = known.select("group").distinct()
        work = every.join(left.groupBy("group").agg(at), "group", "left")
        self.archive.rewrite_all(groups, work.repartition(parts.tasks(len(groups)), "group"))

    def _remove(self, spans: Iterable[Span]) -> Sequence[Span]:
        """Remove the parts that others cover, and return them."""
        covered = compaction.covered(spans)
        if not self.dry_run:
            store = self.archive.opens()
            for span in covered:
                store.remove(self.archive.feed, span)
        return covered


def _merged(group: Sequence[Span]) -> Span:
    return Span(last=max(span.last for span in group), first=min(span.first for span in group))


def _weighed(spans: Sequence[Span], flagged: DataFrame) -> list[Weighed]:
    left = F.when(F.col("left"), 1).otherwise(0)
    size = F.when(F.col("left"), F.col("size")).otherwise(0)
    counts = flagged.groupBy("part").agg(F.count("*"), F.sum(left), F.sum(size))
    by_part = {row[0]: tuple(row)[1:] for row in counts.collect()}
    return [Weighed(span, *by_part.get(number, (0, 0, 0))) for number, span in enumerate(spans)]


def _numbers(spans: Sequence[Span], groups: Sequence[Sequence[Span]]) -> Iterator[tuple[int, int]]:
    """Yield the number of each part to rewrite, and the number of its group."""
    group_of = {span: number for number, group in enumerate(groups) for span in group}
    return ((at, group_of[span]) for at, span in enumerate(spans) if span in group_of)


def flagged(entries: DataFrame, *, changes: bool) -> DataFrame:
    """
    Return part, page, slot and size of each entry, and *left*: True for the last one of an object.

    With *changes*, *left* is also True for changes. The parts of *entries* may overlap.
    """
    head = F.from_json(_head(), "type STRING, id STRING")
    read = entries.select(
        "part",
        "page",
        "slot",
        F.octet_length("line").alias("size"),
        F.col("line").endswith(_MARK).alias("change"),
        head["type"].alias("type"),
        head["id"].alias("id"),
    )
    at = F.struct("page", "slot")
    last = at == F.max(at).over(Window.partitionBy("change", "type", "id"))
    # An unreadable entry has an unknown object, so it is never superseded.
    unread = F.col("id").isNull() | F.col("type").isNull()
    left = F.when(F.col("change"), F.lit(changes)).otherwise(unread | last)
    return read.select("part", "page", "slot", "size", left.alias("left"))


def _head() -> Column:
    begins = F.instr("line", _DATA)
    cut = F.concat(F.col("line").substr(F.lit(1), begins - 1), F.lit("}"))
    return F.when(begins > 0, cut).otherwise(F.col("line"))

"""Compact archived parts that all readers have handled and the table `history` contains.

An operation is removed from a part only if it is in `history`. Spark selects the entries to keep,
and its tasks write merged parts. Then the driver removes the parts that were merged, in the order
of `core.archive.compaction.covered_parts`. A crash before the removal leaves parts that overlap.
Readers ignore the overlap, and the next run removes it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType
from pyspark.sql.window import Window

from tidings.aws.archives import open_archive
from tidings.core.archive import compaction
from tidings.core.archive.compaction import Weighed, below, closed_parts, join_parts, older
from tidings.core.archive.reader import all_spans
from tidings.core.archive.segments import ArchiveStore, Span, decode, encode, keep_entries
from tidings.core.model.operations import ERASED_MARK, ERASURE_MARK, MARKED
from tidings.core.model.pages import Page
from tidings.lake.tables import of_feed
from tidings.lake.warehouse import HISTORY, PartGone, Warehouse
from tidings.sync.engine import INT, LONG, TEXT, columns
from tidings.sync.files import s3_client
from tidings.sync.spark_session import errors_of_tasks

# A function that opens the archive in a task, because a client cannot be sent to another process.
Opens = Callable[[], ArchiveStore]

# The columns of an entry, which is an operation or a change in a part. `part` is the index of the
# entry's part in the list of parts that the run reads.
ENTRIES = columns(part=LONG, page=LONG, slot=INT, line=TEXT)
_ARROW = pa.schema(
    [("part", pa.int64()), ("page", pa.int64()), ("slot", pa.int32()), ("line", pa.string())]
)
_NUMBERS = itertools.count()  # numbers the reads and writes of this process
# The least number of tasks for eight or more parts, so that several cores are used. A task costs a
# fifth of a second.
TASKS_MIN = 8
# The number of parts per task if there are many parts. A task then reads about half a gigabyte of
# text.
PARTS_PER_TASK = 64


@dataclass(frozen=True, slots=True)
class Archive:
    """The archive of *feed*. The function *opens* opens it. Tasks receive a copy of this object."""

    feed: str
    opens: Opens

    def spans(self) -> list[Span]:
        """Return all parts, in the order of their pages."""
        return list(all_spans(self.opens(), self.feed))

    def entries(self, spark: SparkSession, spans: Sequence[Span]) -> DataFrame:
        """Return the entries of *spans* as `ENTRIES`; the column `part` is an index of *spans*."""
        name = _register(spark, self, [[each] for each in spans])
        return spark.read.format(name).load()

    def rewrite_all(self, groups: Sequence[Sequence[Span]], kept: DataFrame) -> None:
        """Write one part for each group of parts, with the remaining entries of the group.

        *kept* has a row for each group. In this row, `group` is the index of the group, and `at`
        has the page and the slot of each remaining entry.
        """
        name = _register(kept.sparkSession, self, groups)
        kept.write.format(name).mode("append").save()

    def pages(self, span: Span, store: ArchiveStore | None = None) -> list[Page]:
        """Return the pages of a part.

        Raises:
            PartGone: the part was removed in the meantime.
            BrokenPart: the part is truncated, or another program wrote it.
        """
        return decode(self._body(span, store or self.opens()))

    def rewrite(self, spans: Sequence[Span], wanted: Iterable[tuple[int, int]]) -> int:
        """Merge *spans* into one part with some of their entries; return its size in bytes.

        *wanted* has the page and the slot of each entry to keep. An erasure may remove content of
        *spans* at the same time. So the parts are read again just before and after the new part is
        written, and if they have changed, the new part is written again.

        Raises:
            PartGone, BrokenPart: see `pages`.
        """
        store, positions = self.opens(), set(wanted)
        bodies = self._bodies(spans, store)
        while True:
            pages = keep_entries(join_parts(map(decode, bodies.values())), positions)
            span, body = encode(pages, spans[0].generation)
            expected = bodies
            if (bodies := self._bodies(spans, store)) != expected:
                continue
            store.put(self.feed, span, body)
            # If *spans* is one part, the new part has replaced it.
            expected = bodies | ({span: body} if span in bodies else {})
            if (bodies := self._bodies(spans, store)) == expected:
                return len(body)

    def _bodies(self, spans: Sequence[Span], store: ArchiveStore) -> dict[Span, bytes]:
        return {span: self._body(span, store) for span in spans}

    def _body(self, span: Span, store: ArchiveStore) -> bytes:
        body = store.get(self.feed, span)
        if body is None:
            raise PartGone(f"the part {span.name} was removed during the compaction; run again")
        return body


def tasks(parts: int) -> int:
    """Return the number of tasks that read or write *parts* parts."""
    return max(1, min(parts, max(TASKS_MIN, parts // PARTS_PER_TASK)))


def opener(url: str) -> Opens:
    """Return a function that opens the archive at *url*.

    Raises:
        WrongArchive: *url* is not an archive.
    """
    open_archive(url, lambda: None)  # type: ignore[arg-type, return-value]
    return partial(open_archive, url, s3_client)


def _register(spark: SparkSession, archive: Archive, groups: Sequence[Sequence[Span]]) -> str:
    """Register a data source that reads or writes the parts of *groups*, and return its name.

    For a read, each group must have exactly one part.
    """
    # The name is new each time, because a session may read several times, and Spark rejects the
    # name of a data source that was already registered in the session.
    named = f"tidings_parts_{next(_NUMBERS)}"

    class Parts(DataSource):
        @classmethod
        def name(cls) -> str:
            return named

        def schema(self) -> StructType:
            return ENTRIES

        def reader(self, schema: StructType) -> DataSourceReader:
            return _Reader(archive, groups)

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
            return _Writer(archive, groups)

    spark.dataSource.register(Parts)
    return named


@dataclass(frozen=True)
class _Numbers(InputPartition):
    """The indexes of the parts that a task reads."""

    all: range


@dataclass
class _Reader(DataSourceReader):
    archive: Archive
    groups: Sequence[Sequence[Span]]

    def partitions(self) -> Sequence[InputPartition]:
        count = len(self.groups)
        return [_Numbers(range(first, count, tasks(count))) for first in range(tasks(count))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a batch for each part."""
        assert isinstance(partition, _Numbers)
        store = self.archive.opens()
        for number in partition.all:
            (span,) = self.groups[number]
            entries = [
                (number, page.number, slot, line)
                for page in self.archive.pages(span, store)
                for slot, line in page.entries()
            ]
            by_column = zip(*entries, strict=True) if entries else [()] * len(_ARROW)
            yield pa.RecordBatch.from_arrays(
                [pa.array(values, of.type) for values, of in zip(by_column, _ARROW, strict=True)],
                schema=_ARROW,
            )


@dataclass
class _Writer(DataSourceWriter):
    archive: Archive
    groups: Sequence[Sequence[Span]]

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        for row in iterator:
            wanted = ((at["page"], at["slot"]) for at in row["at"] or ())
            self.archive.rewrite(self.groups[row["group"]], wanted)
        return WriterCommitMessage()


# The data of a line begin at the first occurrence of `_DATA`, because quotes are escaped in a JSON
# string. `data` is the last key, which only a mark may follow. So it is sufficient to parse the
# text before `_DATA`.
_DATA = ',"data":'


@dataclass(frozen=True, slots=True)
class Compacted:
    """The result of a compaction.

    *operations* is the number of operations before the compaction, and *left* the number after it.
    *written* and *removed* are numbers of parts. Both are 0 if nothing had to be done.
    """

    operations: int = 0
    left: int = 0
    written: int = 0
    removed: int = 0


@dataclass(frozen=True, slots=True)
class Compaction:
    """One compaction.

    If *changes*, the compaction keeps changes, which have no object. If *dry_run*, it only counts.
    *begin* is called with the name of each phase.
    """

    session: SparkSession
    archive: Archive
    changes: bool
    dry_run: bool
    begin: Callable[[str], None]

    def run(self, spans: Sequence[Span]) -> Compacted:
        """Compact *spans*.

        *spans* must be closed parts, to which no pages are added any more. All readers and the
        table `history` must have handled their pages.

        Raises:
            PartGone: another process compacts the archive at the same time, and has removed a part.
        """
        if not spans:
            return Compacted()
        self.begin("comparing")
        leftover = set(self._remove(spans))  # a run that crashed did not remove these parts
        clean = [span for span in spans if span not in leftover]
        done = self._compact(clean)
        return replace(done, removed=done.removed + len(leftover))

    def _compact(self, spans: Sequence[Span]) -> Compacted:
        entries = self.archive.entries(self.session, spans)
        kept = flag_entries(entries, changes=self.changes)
        kept = kept.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            return self._run(spans, kept)
        finally:
            kept.unpersist()

    def _run(self, spans: Sequence[Span], flagged: DataFrame) -> Compacted:
        with errors_of_tasks(PartGone, PartGone):
            kept = F.when(F.col("kept"), 1).otherwise(0)
            size = F.when(F.col("kept"), F.col("size")).otherwise(0)
            counts = flagged.groupBy("part").agg(F.count("*"), F.sum(kept), F.sum(size))
            by_part = {row[0]: tuple(row)[1:] for row in counts.collect()}
            weighed = [
                Weighed(span, *by_part.get(number, (0, 0, 0))) for number, span in enumerate(spans)
            ]
        groups = compaction.groups(weighed)
        if not self.dry_run:
            self.begin("writing parts")
            with errors_of_tasks(PartGone, PartGone):
                self._write(spans, groups, flagged)
            self.begin("removing parts")
        return Compacted(
            sum(each.entries for each in weighed),
            sum(each.kept for each in weighed),
            len(groups),
            len(self._remove({*spans, *map(_merge, groups)})),
        )

    def _write(
        self, spans: Sequence[Span], groups: Sequence[list[Span]], flagged: DataFrame
    ) -> None:
        if not groups:
            return
        group_of = {span: number for number, group in enumerate(groups) for span in group}
        of_part = [(at, group_of[span]) for at, span in enumerate(spans) if span in group_of]
        known = self.session.createDataFrame(of_part, "part LONG, group LONG")
        kept = flagged.where("kept").join(F.broadcast(known), "part")
        at = F.collect_set(F.struct("page", "slot")).alias("at")
        # Also write a part for a group without remaining entries, because its pages remain,
        # although they are empty.
        every = known.select("group").distinct()
        work = every.join(kept.groupBy("group").agg(at), "group", "left")
        self.archive.rewrite_all(groups, work.repartition(tasks(len(groups)), "group"))

    def _remove(self, spans: Iterable[Span]) -> Sequence[Span]:
        """Remove each part that another part contains completely; return the removed parts."""
        covered = compaction.covered_parts(spans)
        if not self.dry_run:
            store = self.archive.opens()
            for span in covered:
                store.remove(self.archive.feed, span)
        return covered


def _merge(group: Sequence[Span]) -> Span:
    last, first = max(span.last for span in group), min(span.first for span in group)
    return Span(last, first, group[0].generation)


def flag_entries(entries: DataFrame, *, changes: bool) -> DataFrame:
    """Return part, page, slot and size of each entry, and `kept`, True if the entry is kept.

    The last entry of each object is kept. If *changes*, changes are kept, too. Erased entries,
    which have no object, are removed, and erasure entries are kept. The parts of *entries* may
    overlap.
    """
    begins = F.instr("line", _DATA)
    cut = F.concat(F.col("line").substr(F.lit(1), begins - 1), F.lit("}"))
    head = F.from_json(F.when(begins > 0, cut).otherwise(F.col("line")), "type STRING, id STRING")
    read = entries.select(
        "part",
        "page",
        "slot",
        F.octet_length("line").alias("size"),
        F.col("line").endswith(MARKED).alias("change"),
        F.col("line").endswith(ERASED_MARK).alias("erased"),
        F.col("line").endswith(ERASURE_MARK).alias("erasure"),
        head["type"].alias("type"),
        head["id"].alias("id"),
    )
    at = F.struct("page", "slot")
    last = at == F.max(at).over(Window.partitionBy("change", "erased", "type", "id"))
    # The object of an entry that cannot be parsed is unknown, so no other entry can replace it.
    unread = F.col("id").isNull() | F.col("type").isNull()
    kept = (
        F.when(F.col("change"), F.lit(changes))
        .when(F.col("erased"), F.lit(False))
        .otherwise(unread | last | F.col("erasure"))
    )
    return read.select("part", "page", "slot", "size", kept.alias("kept"))


PARTS_PER_PARTITION = 8  # parts for each partition of a shuffle, with about 64 MB of text
PARTITIONS_MIN = 2  # the least number of partitions: one for each core of a small machine


@dataclass(frozen=True, slots=True)
class CompactionOptions:
    """The options of a run.

    The run compacts a part up to *page* if the part's last page was committed before *before_ms*.
    None means no limit. *changes* and *dry_run* are those of `Compaction`.
    """

    page: int | None = None
    before_ms: int | None = None
    changes: bool = True
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a run.

    *parts* is the number of all parts before the run, and *through* the last page that `history`
    contains. The parts up to page *bound* had *operations* operations, of which *left* remain.
    *written* and *removed* are numbers of parts.
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
    options: CompactionOptions
    begin: Callable[[str], None]

    def run(self) -> Report:
        """Compact the archive.

        Raises:
            LakeError: the subclass says why.
        """
        self.begin("finding the parts")
        spans = self.archive.spans()
        done = closed_parts(spans)
        session = self.warehouse.session(self.spark)
        partitions = max(PARTITIONS_MIN, len(done) // PARTS_PER_PARTITION)
        session.conf.set("spark.sql.shuffle.partitions", partitions)
        history = of_feed(session, self.warehouse, self.archive.feed, HISTORY)
        place = history.through()
        through = place.page if place is not None else 0
        chosen = self._select(done, through)
        options = self.options
        compaction = Compaction(session, self.archive, options.changes, options.dry_run, self.begin)
        compacted = compaction.run(chosen)
        return Report(
            self.archive.feed,
            len(spans),
            through,
            max((span.last for span in chosen), default=0),
            **asdict(compacted),
        )

    def _select(self, done: Sequence[Span], through: int) -> list[Span]:
        page, before_ms = self.options.page, self.options.before_ms
        spans = below(done, through if page is None else min(page, through))
        return (
            spans
            if before_ms is None
            else older(spans, lambda span: self.archive.pages(span)[-1].at_ms, before_ms)
        )

"""Read and write parts of an archive in the tasks of a job."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from tidings.aws.archives import open_archive
from tidings.core.archive.compaction import joined
from tidings.core.archive.reader import all_spans
from tidings.core.archive.segments import ArchiveStore, Span, compacted, decode, encode
from tidings.core.model.pages import Page
from tidings.lake.errors import PartGone
from tidings.sync.files import s3_client
from tidings.sync.schemas import INT, LONG, TEXT, columns

# Opens the archive in the task that uses it: a client cannot be sent to another process.
Opens = Callable[[], ArchiveStore]

# An entry of a part; *part* is the number of the part in a run.
ENTRIES = columns(part=LONG, page=LONG, slot=INT, line=TEXT)
_ARROW = pa.schema(
    [("part", pa.int64()), ("page", pa.int64()), ("slot", pa.int32()), ("line", pa.string())]
)
_NUMBERS = itertools.count()  # of the reads and writes of this process
TASKS_MIN = 8  # for several cores; a task costs a fifth of a second
PARTS_PER_TASK = 64  # at most: half a gigabyte of text


@dataclass(frozen=True, slots=True)
class Archive:
    """The archive of *feed*, opened by *opens*. It is sent to tasks."""

    feed: str
    opens: Opens

    def spans(self) -> list[Span]:
        """Return all parts, in order."""
        return list(all_spans(self.opens(), self.feed))

    def entries(self, spark: SparkSession, spans: Sequence[Span]) -> DataFrame:
        """Return the entries of *spans* as `ENTRIES`; *part* is an index of *spans*."""
        name = _registered(spark, self, [[each] for each in spans])
        return spark.read.format(name).load()

    def rewrite_all(self, groups: Sequence[Sequence[Span]], left: DataFrame) -> None:
        """
        Replace each group with one part that has its remaining entries.

        *left* has the places `at` of the remaining entries for each `group`, by its number.
        """
        name = _registered(left.sparkSession, self, groups)
        left.write.format(name).mode("append").save()

    def pages(self, span: Span, store: ArchiveStore | None = None) -> list[Page]:
        """
        Return the pages of a part.

        Raises:
            PartGone: it was removed in the meantime.
            BrokenPart: it was written by another program.
        """
        body = (store or self.opens()).get(self.feed, span)
        if body is None:
            raise PartGone(f"the part {span.name} was removed meanwhile; run again")
        return decode(body)

    def rewrite(self, spans: Sequence[Span], wanted: Iterable[tuple[int, int]]) -> int:
        """
        Replace *spans* with one part that has their remaining entries; return its size in bytes.
        """
        store = self.opens()
        pages = joined(self.pages(span, store) for span in spans)
        span, body = encode(compacted(pages, set(wanted)))
        store.put(self.feed, span, body)
        return len(body)


def tasks(parts: int) -> int:
    """Return the number of tasks for *parts*."""
    return max(1, min(parts, max(TASKS_MIN, parts // PARTS_PER_TASK)))


def opener(url: str) -> Opens:
    """
    Return a function that opens the archive at *url*.

    Raises:
        WrongArchive: *url* is not an archive.
    """
    open_archive(url, lambda: None)  # type: ignore[arg-type, return-value]
    return partial(open_archive, url, s3_client)


def _registered(spark: SparkSession, archive: Archive, groups: Sequence[Sequence[Span]]) -> str:
    """
    Register a data source for parts, and return its name; for reads each part is its own group.
    """
    # Spark rejects a name that was used in a session, and a session here may read several times.
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
    """The numbers of the parts of a task."""

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

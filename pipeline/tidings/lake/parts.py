"""Parts of an archive, read and written by the tasks of a job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from tidings.aws.s3.archives import open_archive
from tidings.core.archive.compaction import Piece, joined
from tidings.core.archive.reader import all_spans
from tidings.core.archive.segments import Span, compacted, decode, encode
from tidings.core.archive.stores import ArchiveStore
from tidings.core.model.pages import Page
from tidings.lake.errors import Moved, PartGone
from tidings.sync.files import s3_client
from tidings.sync.schemas import INT, LONG, TEXT, columns

Columns = tuple[int, int, int, int, str]
# Opens the archive in the task that uses it: a client cannot be sent to another process.
Opens = Callable[[], ArchiveStore]

# An entry as a part holds it; *part* is the number of the part in a run.
ENTRIES = columns(part=LONG, page=LONG, slot=INT, at_ms=LONG, line=TEXT)
TASKS_PER_CORE = 2  # so that no core waits long for the last one
PARTS_PER_TASK = 64  # at most: half a gigabyte of text, a file of the table


@dataclass(frozen=True, slots=True)
class Archive:
    """*feed* in the archive that *opens*. It is sent to tasks."""

    feed: str
    opens: Opens

    def spans(self) -> list[Span]:
        """All parts, in their order."""
        return list(all_spans(self.opens(), self.feed))

    def entries(
        self, spark: SparkSession, pieces: Sequence[Piece], *, whole: bool = False
    ) -> DataFrame:
        """
        `ENTRIES`: the entries of *pieces*, the part by its number among them.

        If the pages must be *whole*, the job fails with `Moved` where one was compacted.
        """
        tasks = self.tasks(spark, len(pieces))
        numbered = spark.sparkContext.parallelize(list(enumerate(pieces)), tasks)
        rows = numbered.mapPartitions(partial(_entries, self, whole))
        return spark.createDataFrame(rows, ENTRIES, verifySchema=False)

    def tasks(self, spark: SparkSession, parts: int) -> int:
        most = spark.sparkContext.defaultParallelism * TASKS_PER_CORE
        return max(1, min(parts, max(most, parts // PARTS_PER_TASK)))

    def pages(self, span: Span, store: ArchiveStore | None = None) -> list[Page]:
        """
        Raises:
            PartGone: it was removed meanwhile.
            BrokenPart: somebody wrote what we did not.
        """
        body = (store or self.opens()).get(self.feed, span)
        if body is None:
            raise PartGone(f"the part {span.name} was removed meanwhile; run again")
        return decode(body)

    def rewrite(self, spans: Sequence[Span], wanted: Iterable[tuple[int, int]]) -> int:
        """Put what is left of *spans* in their place, as one part; its bytes."""
        store = self.opens()
        pages = joined(self.pages(span, store) for span in spans)
        span, body = encode(compacted(pages, set(wanted)))
        store.put(self.feed, span, body)
        return len(body)


def opener(url: str) -> Opens:
    """
    Raises:
        WrongArchive: it names none.
    """
    open_archive(url, lambda: None)  # type: ignore[arg-type, return-value]
    return partial(open_archive, url, s3_client)


def _entries(
    archive: Archive, whole: bool, pieces: Iterable[tuple[int, Piece]]
) -> Iterator[Columns]:
    """Of a task."""
    store = archive.opens()
    for number, piece in pieces:
        for page in archive.pages(piece.span, store):
            if not piece.first <= page.number <= piece.last:
                continue
            if whole and page.compacted:
                raise Moved(
                    f"page {page.number:,} was compacted, and its operations are in another table;"
                    " name that one, or let gaps be with --allow-gaps"
                )
            for slot, line in page.entries():
                yield number, page.number, slot, page.at_ms, line

"""An archive in a folder, its tables, and helpers to read both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from tests.unit.core.scene import NOW
from tidings.core.archive import segments
from tidings.core.archive.compaction import join_parts
from tidings.core.archive.segments import Span
from tidings.core.model.operations import is_change, object_key, parse_line
from tidings.core.model.pages import Page
from tidings.http.outbound.folder_archive import FolderArchive
from tidings.lake.columns import Schemas, parse
from tidings.lake.compaction import Archive, CompactionOptions, Job, Opens, Report
from tidings.lake.feed_tables import FeedTables
from tidings.lake.follow import Batch, Follower, Source
from tidings.lake.tables import Table
from tidings.lake.warehouse import Warehouse

FEED = "main"
Entry = tuple[int, int, str]


def kept(number: int, *lines: str) -> Page:
    """Return a page; each is a second later than the one before."""
    return Page(number, "\n".join(lines), "", NOW + number * 1_000)


@dataclass
class Scene:
    spark: SparkSession
    folder: Path
    feed: str = FEED
    phases: list[str] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)

    @property
    def store(self) -> FolderArchive:
        return FolderArchive(self.folder / "parts")

    @property
    def opens(self) -> Opens:
        return partial(FolderArchive, self.folder / "parts")

    @property
    def warehouse(self) -> Warehouse:
        return Warehouse(str(self.folder / "lake"))

    @property
    def source(self) -> Source:
        return Source({"feed": self.feed, "archive": (self.folder / "parts").as_uri()})

    def put(self, *pages: Page) -> Span:
        """Store the pages as a part."""
        span, body = segments.encode(pages)
        self.store.put(self.feed, span, body)
        return span

    def tables(self, columns: str = "{}") -> FeedTables:
        schemas: Schemas = parse(columns)
        session = self.warehouse.session(self.spark)
        return FeedTables(session, self.warehouse, self.feed, schemas, self.phases.append)

    def follow(
        self, columns: str = "{}", source: Source | None = None, *, gaps: bool = False
    ) -> list[Batch]:
        """Let the tables follow all that the archive, or the *source*, has now; return the
        batches."""
        self.batches = []
        tables = self.tables(columns)
        Follower(tables, source or self.source, 0, gaps, self.batches.append).run(once=True)
        return self.batches

    def compact(
        self, opens: Opens | None = None, options: CompactionOptions | None = None
    ) -> Report:
        archive = Archive(self.feed, opens or self.opens)
        begin = self.phases.append
        return Job(self.spark, archive, self.warehouse, options or CompactionOptions(), begin).run()

    def spans(self) -> Sequence[Span]:
        return self.store.list(self.feed, 0, 1000)

    def pages(self) -> list[Page]:
        return join_parts(
            segments.decode(self.store.get(self.feed, span) or b"") for span in self.spans()
        )

    def entries(self) -> list[Entry]:
        return list(entries(self.pages()))

    def history(self) -> list[Entry]:
        return _entries_of(self.tables().history)

    def latest(self) -> list[Entry]:
        return _entries_of(self.tables().latest)


def _entries_of(table: Table) -> list[Entry]:
    rows = table.rows().select("page", "slot", "line").collect()
    return sorted((page, slot, line) for page, slot, line in rows)


def entries(pages: Sequence[Page]) -> Iterator[Entry]:
    return ((each.number, slot, line) for each in pages for slot, line in each.entries())


def fold(found: Sequence[Entry]) -> list[Entry]:
    """Return the latest operation of each object, with its position."""
    last = {object_key(parse_line(each[2])): each for each in found if not is_change(each[2])}
    return sorted(last.values())

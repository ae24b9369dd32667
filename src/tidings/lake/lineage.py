"""Report the inputs and outputs of tables that follow a feed as lineage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.client.cli.options import NamedFeed
from tidings.lineage import datasets, runs
from tidings.lineage.datasets import Dataset
from tidings.lineage.events import Job
from tidings.lineage.runs import Run
from tidings.sync.named import dataset_of

if TYPE_CHECKING:
    from tidings.lake.columns import Schemas
    from tidings.lake.feed_tables import FeedTables
    from tidings.lake.follow import Source
    from tidings.lake.metadata import TableMetadata
    from tidings.lake.warehouse import Warehouse

_KIND = "TABLES"


@dataclass(frozen=True, slots=True)
class Lineage:
    job: Job
    reads: list[Dataset]
    writes: list[Dataset]
    secret: str

    @classmethod
    def of(
        cls,
        named: NamedFeed,
        source: Source,
        warehouse: Warehouse,
        schemas: Schemas,
        *,
        once: bool,
    ) -> Lineage:
        from tidings.lake.warehouse import KINDS, table_name, type_kind

        archive = source.options.get("archive")
        reads = [dataset_of(named), *([datasets.of_files(archive)] if archive else [])]
        kinds = (*KINDS, *map(type_kind, schemas))
        writes = [_table(warehouse, table_name(named.feed, kind)) for kind in kinds]
        job = Job(f"tidings.tables.{named.feed}", _KIND, streams=not once)
        return cls(job, reads, writes, named.password)


@dataclass
class Telling:
    """A lineage run. *run* is None if lineage is off, *tables* until they are opened."""

    run: Run | None = None
    tables: FeedTables | None = None

    def went_on(self) -> None:
        """Report progress after a batch was written."""
        if self.run is not None and self.run.is_due:
            self.count()
            self.run.running()

    def count(self) -> None:
        if self.run is None or self.tables is None:
            return
        for table in self.tables.all():
            dataset = _table(self.tables.warehouse, table.called, table.metadata())
            self.run.wrote(dataset, self.tables.written[table.called])


@contextmanager
def told(lineage: Lineage | None) -> Iterator[Telling]:
    """Report a run in this context; do nothing if *lineage* is None."""
    if lineage is None:
        yield Telling()
        return
    with runs.told(lineage.job, lineage.reads, lineage.writes, [lineage.secret]) as run:
        telling = Telling(run)
        try:
            yield telling
        finally:
            telling.count()


def _table(warehouse: Warehouse, name: str, found: TableMetadata | None = None) -> Dataset:
    """
    Return the dataset of a table: its folder, as in Spark's own integration, and its catalog name.
    """
    files = datasets.of_files(f"{warehouse.url.rstrip('/')}/{warehouse.database}/{name}")
    table = f"file:{warehouse.url}", f"{warehouse.database}.{name}"
    return Dataset(files.namespace, files.name, found.columns if found else (), table)

"""
The tables of a feed: `history` has every operation, `latest` that of each object that is last.

How far a table has got is a property of the snapshot that got it there. So a commit is all there
is: whoever dies before it has done nothing, and behind it nothing is done again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from tidings.sync.schemas import OPERATIONS

from .errors import BadTable
from .warehouse import CATALOG, Warehouse, table_name

HISTORY, LATEST = "history", "latest"
THROUGH = "tidings.through"
_ADDED = "added-records"  # as Iceberg sums a snapshot up
_CONFLICT = "org.apache.iceberg.exceptions.ValidationException"
_LOST = "org.apache.iceberg.exceptions.CommitFailedException"
_WEEK_MS = 7 * 24 * 3600 * 1000
_PROPERTIES = {
    "format-version": "2",  # Athena and Glue read and write it
    # A task writes what it reads, in the order of the log: nothing is moved between tasks.
    "write.distribution-mode": "none",
    "write.spark.fanout.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    # Of snapshots that are let go; `latest` is written anew by each run.
    "history.expire.max-snapshot-age-ms": str(_WEEK_MS),
    "history.expire.min-snapshots-to-keep": "2",
}
_PARTITIONS = {HISTORY: "months(at)", LATEST: ""}


class Raced(BadTable):
    """Another run committed meanwhile; nothing of this one's was."""


@dataclass(frozen=True, slots=True)
class Standing:
    """
    A table holds everything up to page *through*. *snapshot* is the current one, 0 for none;
    *added* is how many rows it brought.
    """

    through: int
    snapshot: int
    added: int = 0


@dataclass(frozen=True, slots=True)
class Table:
    session: SparkSession
    warehouse: Warehouse
    feed: str
    kind: str

    @property
    def name(self) -> str:
        table = table_name(self.feed, self.kind)
        return f"{CATALOG}.{self.warehouse.database}.{table}"

    def create(self) -> None:
        """Nothing happens where it is there."""
        columns = ", ".join(f"`{each.name}` {each.dataType.simpleString()}" for each in OPERATIONS)
        partitions = _PARTITIONS[self.kind]
        divided = f"PARTITIONED BY ({partitions})" if partitions else ""
        properties = ", ".join(f"'{name}'='{value}'" for name, value in _PROPERTIES.items())
        self.session.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.{self.warehouse.database}")
        self.session.sql(
            f"CREATE TABLE IF NOT EXISTS {self.name} ({columns}) USING iceberg {divided}"
            f" TBLPROPERTIES ({properties})"
        )

    def there(self) -> bool:
        return bool(self.session.catalog.tableExists(self.name))

    def rows(self) -> DataFrame:
        return self.session.table(self.name).select(*OPERATIONS.names)

    def standing(self) -> Standing:
        """
        How far it is by its current snapshot or the last one before that knows it.

        Maintenance leaves snapshots that do not know it. Where all that did are expired, the last
        page that is there is as good: what is behind it has no entries.
        """
        table = self._loaded()
        current = at = table.currentSnapshot()
        if current is None:
            return Standing(0, 0)
        id, added = current.snapshotId(), int(current.summary().get(_ADDED) or 0)
        while at is not None:
            through = at.summary().get(THROUGH)
            if through is not None:
                return Standing(int(through), id, added)
            parent = at.parentId()
            at = None if parent is None else table.snapshot(parent)
        return Standing(self.rows().agg(F.max("page")).collect()[0][0] or 0, id, added)

    def commit(self, rows: DataFrame, instead_of: Column, through: int, seen: Standing) -> None:
        """
        *rows* in place of what is *instead_of*, and everything up to *through* is there: both, or
        nothing at all.

        Raises:
            Raced: the table is not as *seen* any more.
        """
        writer = rows.writeTo(self.name).option(f"snapshot-property.{THROUGH}", str(through))
        writer = writer.option("isolation-level", "serializable")
        if seen.snapshot:
            writer = writer.option("validate-from-snapshot-id", str(seen.snapshot))
        try:
            writer.overwrite(instead_of)
        except Py4JJavaError as error:
            if any(name in str(error) for name in (_CONFLICT, _LOST)):
                raise Raced(f"another run wrote {self.name} meanwhile; run again") from None
            raise

    def expire(self) -> None:
        """Let go of snapshots, and the files that only they need, by the table's properties."""
        self._loaded().expireSnapshots().commit()

    def _loaded(self) -> Any:
        # Iceberg's own library tells at once what its tables of metadata take seconds for.
        spark: Any = self.session
        return spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
            spark._jsparkSession, self.name
        )


def run_query(spark: SparkSession, warehouse: Warehouse, feed: str, sql: str) -> DataFrame:
    """
    What *sql* says of the views `history` and `latest`.

    Raises:
        BadTable: the feed has no tables there.
    """
    session = warehouse.session(spark)
    for kind in (HISTORY, LATEST):
        table = Table(session, warehouse, feed, kind)
        if not table.there():
            raise BadTable(f"{warehouse.url} has no tables of the feed {feed}")
        table.rows().createOrReplaceTempView(kind)
    return session.sql(sql)

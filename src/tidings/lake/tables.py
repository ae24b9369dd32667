"""A table of a feed, its commits, and its maintenance.

The place of a table is the cursor up to which the table contains the log. Each commit stores the
place in its snapshot, as `tidings.through`. A commit writes the rows and the place, or nothing.

Maintenance compacts small files and expires snapshots, so that reads and writes of a table stay
fast. One maintenance run rewrites a limited number of files of each table, and the next run
continues. Maintenance does not change the rows of a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidings.core.model import cursors
from tidings.core.model.cursors import Place
from tidings.core.model.timestamps import DAY_MS
from tidings.lake.warehouse import (
    CATALOG,
    ERASURES,
    HISTORY,
    LATEST,
    THROUGH,
    TYPE,
    BadTable,
    Raced,
    TableMetadata,
    Warehouse,
    read_metadata,
    table_name,
    type_kind,
)
from tidings.sync.engine import OPERATIONS
from tidings.sync.spark_session import SPARK_ERRORS

# The column of the event in rows to merge. No column of data can have this name.
EVENT = "tidings.event"
_SNAPSHOT_PROPERTY = "spark.sql.iceberg.snapshot-property."
_REFUSED = ("exceptions.ValidationException", "exceptions.CommitFailedException")
_SKEW_S = 24 * 3600  # the clocks of two writers of the log differ by far less
UPDATE_MODE, COPY_ON_WRITE = "write.update.mode", "copy-on-write"
_PROPERTIES = {
    "format-version": "2",  # Athena, DuckDB and PyIceberg can read it, with its delete files
    # Mark rows as deleted instead of rewriting files, so that a batch costs as much as its changes.
    "write.merge.mode": "merge-on-read",
    # Only an erasure updates rows, and it must rewrite the files (`lake.files`).
    UPDATE_MODE: COPY_ON_WRITE,
    "write.delete.mode": "merge-on-read",
    "write.delete.granularity": "file",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    # Keep the snapshots of one day: 1,440 at one commit per minute.
    "history.expire.max-snapshot-age-ms": str(DAY_MS),
    "history.expire.min-snapshots-to-keep": "2",
}
# A condition that is true if the new row (s) is later than the old row (t). A row of the state that
# was copied over HTTP has no page and no slot.
_NEWER = "(s.page > coalesce(t.page, 0) OR (s.page = t.page AND s.slot > t.slot))"


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a table.

    *columns* and *partitions* are SQL. *identifiers* are the columns that identify a row, and
    *order* are the columns by which rows are sorted.
    """

    columns: str
    identifiers: Sequence[str]
    order: Sequence[str]
    partitions: str = ""


def _declare(required: Iterable[str]) -> str:
    needed = set(required)
    return ", ".join(
        f"`{each.name}` {each.dataType.simpleString()}{' NOT NULL' if each.name in needed else ''}"
        for each in OPERATIONS
    )


_PLACE, _OBJECT = ("page", "slot"), ("type", "id")
LAYOUTS = {
    HISTORY: Layout(_declare((*_PLACE, *_OBJECT)), _PLACE, _PLACE, "days(at)"),
    LATEST: Layout(_declare(_OBJECT), _OBJECT, _OBJECT),
}
OF_TYPE = Layout(
    "`id` string NOT NULL, `parents` array<string>, `tags` array<string>, `timestamp` timestamp,"
    " `at` timestamp, `page` bigint, `slot` int, `cursor` string, `data` string",
    ("id",),
    ("id",),
)


@dataclass(frozen=True, slots=True)
class Table:
    session: SparkSession
    warehouse: Warehouse
    feed: str
    kind: str
    layout: Layout
    type: str | None = None

    @property
    def name(self) -> str:
        return f"{CATALOG}.{self.warehouse.database}.{self.called}"

    @property
    def called(self) -> str:
        return table_name(self.feed, self.kind)

    def create(self) -> None:
        """Create the table if it is missing."""
        if self.metadata() is not None:
            return
        layout = self.layout
        divided = f"PARTITIONED BY ({layout.partitions})" if layout.partitions else ""
        written = _PROPERTIES | ({TYPE: self.type} if self.type is not None else {})
        properties = ", ".join(
            f"'{name}'={quote_literal(value)}" for name, value in written.items()
        )
        self.session.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.{self.warehouse.database}")
        self.session.sql(
            f"CREATE TABLE IF NOT EXISTS {self.name} ({layout.columns}) USING iceberg {divided}"
            f" TBLPROPERTIES ({properties})"
        )
        alter = f"ALTER TABLE {self.name}"
        self.session.sql(f"{alter} SET IDENTIFIER FIELDS {', '.join(layout.identifiers)}")
        # Sort rows within a task instead of moving them between tasks, because batches are small.
        self.session.sql(f"{alter} WRITE LOCALLY ORDERED BY {', '.join(layout.order)}")

    def metadata(self) -> TableMetadata | None:
        return read_metadata(self.warehouse, self.called)

    def there(self) -> bool:
        return self.metadata() is not None

    def rows(self) -> DataFrame:
        return self.session.table(self.name)

    def through(self) -> Place | None:
        """Return the place up to which the table is complete; None if nothing was committed.

        No place is stored if an earlier release wrote the table, or if all snapshots with a place
        have expired. In these cases, return the place of the last row.
        """
        found = self.metadata()
        if found is None or not found.snapshot:
            return None
        text = found.through
        if len(text) != len(cursors.START.encode()):
            last = F.max_by("cursor", F.struct("page", "slot"))
            text = self.rows().agg(last).collect()[0][0] or cursors.START.encode()
        place = cursors.parse(text)
        if not isinstance(place, Place):
            raise BadTable(f"{self.name}: {THROUGH} {text!r}: must be the id of an event")
        return place

    def after(self, place: Place) -> DataFrame:
        """Return the rows of all pages after the page of *place*."""
        return self.rows().where(_is_after(place))

    def set_property(self, name: str, value: str) -> None:
        """Set a property of the table, which is not a property of a snapshot."""
        self.session.sql(
            f"ALTER TABLE {self.name} SET TBLPROPERTIES ('{name}'={quote_literal(value)})"
        )

    def append(
        self, rows: DataFrame, after: Place, through: Place, snapshot: int, erasures: int = 0
    ) -> None:
        """Append *rows*, the operations in pages after *after*.

        Then the table is complete up to *through*.
        *snapshot* is the last known snapshot of the table, or 0. *erasures* is the page of the
        first erasure entry that is not done, or 0.

        Raises:
            Raced: since *snapshot*, another run committed rows of pages after *after*.
        """
        writer = rows.writeTo(self.name).option("isolation-level", "serializable")
        if snapshot:
            writer = writer.option("validate-from-snapshot-id", str(snapshot))
        properties = {THROUGH: through.encode()}
        if erasures:
            properties[ERASURES] = str(erasures)
        with self.committing(properties, rows.sparkSession):
            # Overwrite the empty range of pages after *after*. A plain append would not detect
            # that another run has appended the same rows.
            writer.overwrite(_is_after(after))

    def replace(self, rows: DataFrame, through: Place) -> None:
        """Replace all rows with *rows*."""
        writer = rows.writeTo(self.name)
        with self.committing({THROUGH: through.encode()}, rows.sparkSession):
            writer.overwrite(F.lit(True))

    def merge(self, rows: DataFrame, through: Place) -> None:
        """Merge *rows*, one row per object, in place of the earlier rows of the same objects.

        If the column `EVENT` of a row says that the object was deleted, the table of a type loses
        the object's row. `latest` keeps a row for a deleted object.

        Raises:
            Raced: another run changed rows that this run read.
        """
        deletes, lives = "", ""
        if self.kind != LATEST:
            deletes = f"WHEN MATCHED AND {_NEWER} AND s.`{EVENT}` = 'delete' THEN DELETE"
            lives = f"AND s.`{EVENT}` <> 'delete'"
        self._merge(
            f"{deletes} WHEN MATCHED AND {_NEWER} THEN UPDATE SET *"
            f" WHEN NOT MATCHED {lives} THEN INSERT *",
            rows,
            {THROUGH: through.encode()},
        )

    def change(self, rows: DataFrame, through: Place) -> None:
        """Replace the rows with the same identifiers by *rows*, at the same position.

        If the column `EVENT` of a row says that the object was deleted, remove the row instead.

        Raises:
            Raced: another run changed rows that this run read.
        """
        self._merge(
            f"WHEN MATCHED AND s.`{EVENT}` = 'delete' THEN DELETE WHEN MATCHED THEN UPDATE SET *",
            rows,
            {THROUGH: through.encode()},
        )

    def _merge(self, actions: str, rows: DataFrame, properties: Mapping[str, str]) -> None:
        on = " AND ".join(f"t.{name} = s.{name}" for name in self.layout.identifiers)
        with self.committing(properties, rows.sparkSession):
            rows.sparkSession.sql(
                f"MERGE INTO {self.name} AS t USING {{rows}} AS s ON {on} {actions}", rows=rows
            )

    @contextmanager
    def committing(
        self, properties: Mapping[str, str], session: SparkSession | None = None
    ) -> Iterator[None]:
        """Store *properties* in every commit of *session* within this context.

        The default is the session of the table. The rows of a streaming query have another session.

        Raises:
            Raced: another run wrote the table.
        """
        session = session or self.session
        for name, value in properties.items():
            session.conf.set(_SNAPSHOT_PROPERTY + name, value)
        try:
            yield
        except SPARK_ERRORS as error:
            if any(name in str(error) for name in _REFUSED):
                raise Raced(f"another run wrote {self.name} in the meantime; run again") from None
            raise
        finally:
            for name in properties:
                session.conf.unset(_SNAPSHOT_PROPERTY + name)


def _is_after(place: Place) -> Column:
    """Return a filter for the rows of pages after the page of *place*.

    The filter also compares the time, so that Iceberg can skip files with earlier rows.
    """
    since = F.timestamp_seconds(F.lit(max(0, place.seconds - _SKEW_S)))
    return (F.col("page") > place.page) & (F.col("at") >= since)


def quote_literal(text: str) -> str:
    """Return *text* as a SQL literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def of_feed(session: SparkSession, warehouse: Warehouse, feed: str, kind: str) -> Table:
    """Return the table `HISTORY` or `LATEST` of *feed*."""
    return Table(session=session, warehouse=warehouse, feed=feed, kind=kind, layout=LAYOUTS[kind])


def of_type(session: SparkSession, warehouse: Warehouse, feed: str, type: str) -> Table:
    """Return the table of the objects of *type* in *feed*."""
    return Table(
        session=session,
        warehouse=warehouse,
        feed=feed,
        kind=type_kind(type),
        layout=OF_TYPE,
        type=type,
    )


FILE_BYTES = 128 * 1024 * 1024  # target size of a file; a task reads it in seconds
FILES_MAX = 50  # the number of small files that does not yet slow down reads
# The maximum number of files that one maintenance run of a table rewrites, so that a batch never
# waits for hours.
REWRITTEN_MAX = 500
DAYS = 3  # in `history`, only files of the last days are rewritten; older days get no new files
_DAY_S = 24 * 3600
SNAPSHOTS_MAX = 60  # if a table has more snapshots, its old snapshots are expired
# Also rewrite a file if this share of its rows is deleted, because reads skip deleted rows one by
# one.
_GONE_RATIO = "0.3"


def due(found: TableMetadata) -> bool:
    """Return True if a table has many more files than its size requires."""
    return found.files > FILES_MAX + 2 * found.bytes // FILE_BYTES


def rewrite(table: Table) -> None:
    options = {
        "target-file-size-bytes": str(FILE_BYTES),
        "min-input-files": "5",
        "max-files-to-rewrite": str(REWRITTEN_MAX),
        "delete-ratio-threshold": _GONE_RATIO,
        "remove-dangling-deletes": "true",
    }
    written = ", ".join(f"'{name}', '{value}'" for name, value in options.items())
    table.session.sql(
        f"CALL {CATALOG}.system.rewrite_data_files(table => '{short_name(table)}',"
        f" options => map({written}){_newest(table)})"
    )


def expire(table: Table) -> None:
    table.session.sql(f"CALL {CATALOG}.system.expire_snapshots('{short_name(table)}')")


def _newest(table: Table) -> str:
    """Return a filter for the last `DAYS` of `history` up to its place; "" for other tables."""
    place = table.through() if table.kind == HISTORY else None
    if place is None:
        return ""
    return f", where => 'at >= timestamp_seconds({max(0, place.seconds - DAYS * _DAY_S)})'"


def short_name(table: Table) -> str:
    """Return the name of *table* within the catalog."""
    return table.name.removeprefix(f"{CATALOG}.")

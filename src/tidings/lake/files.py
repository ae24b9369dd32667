"""Remove old rows from the files of a table.

A table marks a removed row as deleted, and the row stays in its data file. The functions of this
module rewrite such files, and then everything in the table's metadata that describes them. Each
function may be repeated.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from tidings.lake.tables import COPY_ON_WRITE, UPDATE_MODE, Table, quote_literal, short_name
from tidings.lake.warehouse import CATALOG, BadTable

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject  # type: ignore[import-untyped]

_AHEAD_MS = 60_000  # more than the clocks of two writers of a table differ


def rewrite_files(table: Table, files: Sequence[str], properties: Mapping[str, str]) -> None:
    """Rewrite the data files *files* without their deleted rows.

    A file in which all rows are deleted stays. The commit has *properties*.

    Raises:
        Raced: another run writes the table.
    """
    listed = ", ".join(map(quote_literal, files))
    table.set_property(UPDATE_MODE, COPY_ON_WRITE)  # an earlier release made tables without it
    with table.committing(properties):
        table.session.sql(f"UPDATE {table.name} SET page = page WHERE _file IN ({listed})")


def remove_empty_files(table: Table, files: Sequence[str], properties: Mapping[str, str]) -> None:
    """Remove those of the data files *files* that the table still has; all their rows are deleted.

    Raises:
        BadTable: a file has a row that is not deleted.
        Raced: another run writes the table.
    """
    listed = table.session.table(f"{table.name}.files").where(F.col("file_path").isin(*files))
    left = [row["file_path"] for row in listed.select("file_path").collect()]
    if not left:
        return
    if table.rows().where(F.col("_file").isin(*left)).select("page").limit(1).collect():
        raise BadTable(f"{table.name}: a data file was not rewritten; run again")
    update = _java_table(table).newDelete().validateFilesExist()
    for file in left:
        # With a string, Py4J would call an internal method of Iceberg that deletes the file at once
        # without removing it from the table.
        update.deleteFile(_jvm(table).java.lang.StringBuilder(file))
    _commit(table, update, properties)


def rewrite_deletes(table: Table) -> None:
    """Rewrite the lists of deleted rows, without the rows of files that the table lost."""
    table.session.sql(
        f"CALL {CATALOG}.system.rewrite_position_delete_files(table => '{short_name(table)}',"
        " options => map('rewrite-all', 'true'))"
    )


def rewrite_manifests(table: Table, properties: Mapping[str, str]) -> None:
    """Rewrite the manifests that list data files which the table no longer has.

    They have the smallest and the largest value of each column of these files. Also if there are no
    such manifests, the current snapshot has *properties* afterwards.

    Raises:
        Raced: another run writes the table.
    """
    java, jvm = _java_table(table), _jvm(table)
    manifests = java.currentSnapshot().dataManifests(java.io())
    old = [each for each in manifests if each.hasDeletedFiles()]
    if not old:
        summary = java.currentSnapshot().summary()
        if any(summary.get(name) != value for name, value in properties.items()):
            _commit(table, java.newFastAppend(), properties)
        return
    # Iceberg takes functions of Java. These are a constant function, and a test for equality.
    empty = getattr(getattr(jvm.scala.collection.immutable, "Map$"), "MODULE$").empty()
    to_one = jvm.scala.jdk.javaapi.FunctionConverters.asJavaFunction(empty.withDefaultValue("all"))
    is_old = jvm.java.util.function.Predicate.isEqual(old[0])
    for each in old[1:]:
        is_old = getattr(is_old, "or")(jvm.java.util.function.Predicate.isEqual(each))
    _commit(table, java.rewriteManifests().clusterBy(to_one).rewriteIf(is_old), properties)


def expire_all(table: Table) -> None:
    """Expire all snapshots but the current one, and delete the files that only they have."""
    until = f"timestamp_millis({time.time_ns() // 1_000_000 + _AHEAD_MS})"
    table.session.sql(
        f"CALL {CATALOG}.system.expire_snapshots(table => '{short_name(table)}',"
        f" older_than => {until}, retain_last => 1)"
    )


def _commit(table: Table, update: JavaObject, properties: Mapping[str, str]) -> None:
    for name, value in properties.items():
        update.set(name, value)
    with table.committing({}):
        update.commit()


def _java_table(table: Table) -> JavaObject:
    spark = _jvm(table).org.apache.iceberg.spark.Spark3Util
    return spark.loadIcebergTable(table.session._jsparkSession, table.name)


def _jvm(table: Table) -> Any:
    return table.session._jvm

"""Provide the tables of a feed as views with short names for SQL."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from tidings.lake import metadata
from tidings.lake.errors import BadTable
from tidings.lake.warehouse import CATALOG, HISTORY, KINDS, Warehouse, kind_of


def size_of(warehouse: Warehouse) -> int:
    """Return the size of all tables in bytes."""
    found = (metadata.read(warehouse, name) for name in metadata.names(warehouse))
    return sum(each.bytes for each in found if each is not None)


def run_query(spark: SparkSession, warehouse: Warehouse, feed: str, sql: str) -> DataFrame:
    """
    Run *sql* on the views `history` and `latest`, and on one for each type with a table.

    The view of a type has the type's name, or `type_history` if it would be one of the other two.

    Raises:
        BadTable: the feed has no tables there.
    """
    session = warehouse.session(spark)
    kinds = {name: kind_of(feed, name) for name in metadata.names(warehouse)}
    if HISTORY not in kinds.values():
        raise BadTable(f"{warehouse.url} has no tables of the feed {feed}")
    for name, kind in kinds.items():
        if kind is None:
            continue
        found = metadata.read(warehouse, name)
        of = found.type if found is not None else None
        view = kind if of is None or of in KINDS else of
        rows = session.table(f"{CATALOG}.{warehouse.database}.{name}")
        rows.createOrReplaceTempView(f"`{view.replace('`', '``')}`")
    return session.sql(sql)

"""The tables of a feed as views that SQL asks by their short names."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from tidings.lake import metadata
from tidings.lake.errors import BadTable
from tidings.lake.warehouse import CATALOG, HISTORY, KINDS, Warehouse, kind_of


def size_of(warehouse: Warehouse) -> int:
    """The bytes of all its tables."""
    found = (metadata.read(warehouse, name) for name in metadata.names(warehouse))
    return sum(each.bytes for each in found if each is not None)


def run_query(spark: SparkSession, warehouse: Warehouse, feed: str, sql: str) -> DataFrame:
    """
    What *sql* says of the views `history` and `latest`, and of one for each type that has a table:
    by its name, or, where that is one of those two, as `type_history`.

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
        rows.createOrReplaceTempView(f"`{view}`")
    return session.sql(sql)

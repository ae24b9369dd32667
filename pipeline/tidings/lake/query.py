"""Questions to the tables of a feed, in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.lake.errors import BadTable
from tidings.lake.tables import HISTORY, LATEST, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from tidings.lake.warehouse import Warehouse


def asked(spark: SparkSession, warehouse: Warehouse, feed: str, sql: str) -> DataFrame:
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

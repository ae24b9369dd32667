"""Count the operations of a feed by type and event, with Spark."""

import os
import sys
from contextlib import suppress

from pyspark.sql import SparkSession

from tidings.spark import register


def main(url: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false")
    session = spark.getOrCreate()
    register(session)
    log = session.read.format("tidings").option("url", url).option("columns", "type,event").load()
    for row in log.groupBy("type", "event").count().orderBy("type", "event").collect():
        print(row.type, row.event, row["count"])
    print("of", log.count(), "operations")


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main(*sys.argv[1:])

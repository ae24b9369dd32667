"""Count the operations of a feed by type and event, with Spark."""

import os
import sys

from pyspark.sql import SparkSession

from tidings.spark import register

os.environ["PYSPARK_PYTHON"] = sys.executable
spark = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate()
register(spark)

log = spark.read.format("tidings").option("url", sys.argv[1]).option("columns", "type,event").load()
for row in log.groupBy("type", "event").count().orderBy("type", "event").collect():
    print(row.type, row.event, row["count"])
print("of", log.count(), "operations")

"""
The state from an export of its table to S3, for feeds too large to be read.

An export costs no read capacity. It is a folder that DynamoDB makes, `AWSDynamoDB/<export-id>/`:
`manifest-files.json` names the files in `data/`, gzipped, an item of the table a line.

The export shows the table at one moment, and objects move while it is made and read. That does no
harm: a correction is appended only where its object still stands at the position the plan saw
(`tidings.core.sync.apply`), so that what is seen too early is left as it is, and counted as moved.
Only an object that is missing has no position. Were it created and deleted since, and its
tombstone forgotten, it would pass for one that never was. Therefore a plan ends half the life of a
tombstone after `through`, a page up to which its rows say everything. For an export that is the
checkpoint of the follower `state`, read strongly before the moment that is exported: what was
handled up to it was written by then. Reading it afterwards would make a plan younger than it is.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from tidings.core import limits
from tidings.sync import schemas

FILES = "manifest-files.json"
_MOMENT = r'^\{"event":"[a-z]+","timestamp":"([^"]*)Z"'


class BadExport(Exception):
    """It is not whole; the message says what is missing."""


class Exported:
    """The rows of *feed* in the export *folder*. Implements `StateSource`."""

    def __init__(self, feed: str, folder: str) -> None:
        self._feed, self._folder = feed, folder.rstrip("/")
        self._items = Observation()
        self._items_wanted = 0

    def table(self, spark: SparkSession) -> DataFrame:
        """
        Raises:
            BadExport: it holds nothing.
        """
        listed = spark.read.schema(schemas.EXPORT_FILES).json(f"{self._folder}/{FILES}").collect()
        files = [each for each in listed if each["itemCount"]]  # an empty partition's is empty
        if not files:
            raise BadExport(f"{self._folder}: {FILES} names no file with items")
        self._items_wanted = sum(each["itemCount"] for each in files)
        names = (each["dataFileS3Key"].rpartition("/")[2] for each in files)
        paths = [f"{self._folder}/data/{name}" for name in names]
        reader = spark.read.schema(schemas.EXPORT).option("mode", "FAILFAST")
        items = reader.option("lineSep", "\n").json(paths).select("Item.*")
        counted = items.observe(self._items, F.count(F.lit(1)).alias("count"))
        from tidings.aws.dynamodb.state import row_bucket  # boto3 is optional

        buckets = [row_bucket(self._feed, number) for number in range(limits.BUCKETS)]
        return counted.where(F.col("bucket.S").isin(buckets)).select(*_columns())

    def check(self) -> None:
        """
        To be called when the table was read.

        Raises:
            BadExport: there were not as many items in it as it says itself.
        """
        count = int(self._items.get["count"])
        if count != self._items_wanted:
            raise BadExport(f"{self._folder}: {count:,} items, {FILES} says {self._items_wanted:,}")


def _columns() -> list[Column]:
    """As `state.columns` makes them of a row."""
    line = F.col("line.S")
    return [
        F.col("key.S").alias("key"),
        F.concat(_hexadecimal("page", 10), _hexadecimal("slot", 6)).alias("at"),
        F.col("at.N").cast("long").alias("committed"),
        (F.substring(line, 11, 6) == "delete").alias("deleted"),
        F.regexp_extract(line, _MOMENT, 1).alias("moment"),
        line.alias("line"),
    ]


def _hexadecimal(name: str, digits: int) -> Column:
    return F.lpad(F.lower(F.hex(F.col(f"{name}.N").cast("long"))), digits, "0")

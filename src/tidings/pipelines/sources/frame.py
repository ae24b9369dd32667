"""Read once from any source of Spark: files of any format, tables of any database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from tidings.pipelines.ingest_source import BATCH, COMPLETE, COPY, Batch, Known, Standing
from tidings.pipelines.sources.documents import Documents

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Frame:
    """
    A source of the rows of a DataFrame, as objects of *type* with the column *key* as id.

    *make* creates the DataFrame from a session. Rows have no defined order, so an interrupted read
    starts from the beginning. A complete one is not repeated.
    """

    def __init__(self, make: Callable[[SparkSession], DataFrame], type: str, key: str) -> None:
        self._make, self._documents = make, Documents(type, key)
        self._complete = False

    def open(self, name: str, standing: Standing, known: Known) -> None:
        self._complete = standing.get(self._documents.type, {}).get("mode") == COMPLETE

    def read(self) -> Iterator[Batch]:
        if self._complete:
            return
        from pyspark.sql import SparkSession

        namespace = self._documents.type
        spark = SparkSession.builder.appName("tidings").getOrCreate()
        rows = self._make(spark).toLocalIterator(prefetchPartitions=True)
        documents = (self._documents.operation(row.asDict(recursive=True)) for row in rows)
        while operations := list(islice(documents, BATCH)):
            yield Batch(operations, {namespace: {"mode": COPY}})
        yield Batch([], {namespace: {"mode": COMPLETE}})

    def close(self) -> None:
        return

    def __str__(self) -> str:
        return f"{self._documents.type} by {getattr(self._make, '__name__', 'Spark')}"

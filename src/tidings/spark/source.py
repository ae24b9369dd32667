"""The data source `tidings`, which Spark looks up by name."""

from __future__ import annotations

from functools import cached_property

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from tidings.spark import columns, options
from tidings.spark.backends import opened
from tidings.spark.backends.backend import Backend
from tidings.spark.batch_read import Reader
from tidings.spark.errors import WrongOption
from tidings.spark.options import STATE, Options
from tidings.spark.stream_read import StreamReader
from tidings.spark.tasks import Work

NAME = "tidings"


class TidingsSource(DataSource):
    """The data source. Spark creates one for each read and each write, in the planning process."""

    @classmethod
    def name(cls) -> str:
        return NAME

    @cached_property
    def _options(self) -> Options:
        return options.parse(self.options)

    def schema(self) -> StructType:
        return columns.subset(self._options.columns or columns.SCHEMA.names)

    def reader(self, schema: StructType) -> DataSourceReader:
        backend = opened(self._options.where, self._options.wanted)
        return Reader(self._options, backend, self._work(backend, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        if self._options.what == STATE:
            raise WrongOption("what", "is the log in a stream, which begins with a copy", STATE)
        backend = opened(self._options.where, self._options.wanted)
        return StreamReader(self._options, backend, self._work(backend, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        # Imports the HTTP client, which reads of tables do not need.
        from tidings.spark.sink import Writer

        return Writer(self._options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from tidings.spark.sink import StreamWriter

        return StreamWriter(self._options, schema, overwrite=overwrite)

    def _work(self, backend: Backend, schema: StructType) -> Work:
        return Work(backend, tuple(columns.checked(schema)), self._options.wanted)

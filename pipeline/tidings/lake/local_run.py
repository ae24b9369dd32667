"""A run on this machine: Spark, with Iceberg, and its errors in one sentence."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from tidings.sync.progress import Phases, failures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tidings.lake.job import Report, Wishes

STOPPED = 3
SHOWN_MAX = 1_000  # rows of an answer: who wants more asks for JSON
_FEW_PARTS = 16  # up to so many, the start of Spark takes longer than the work


@dataclass(frozen=True, slots=True)
class Work:
    """What is done in *folder*, which is given up afterwards."""

    folder: Path
    phases: Phases

    def compact(self, feed: str, archive: str, table: str, wishes: Wishes) -> Report:
        """
        Raises:
            LakeError, WrongArchive, TidingsError: see `Job`.
        """
        from tidings.lake.job import Job
        from tidings.lake.parts import Archive, opener
        from tidings.lake.warehouse import in_folder

        parts, warehouse = Archive(feed, opener(archive)), in_folder(table)
        few = len(parts.spans()) <= _FEW_PARTS
        with self._spark(few=few) as spark:
            self.phases.watch(spark)
            return Job(spark, parts, warehouse, wishes, self.phases.begin).run()

    def query(
        self, feed: str, table: str, sql: str, *, as_json: bool
    ) -> tuple[list[str], Sequence[Sequence[Any]]]:
        """
        Columns and rows.

        Raises:
            LakeError, PySparkException: there are no such tables, or it is no SQL.
        """
        from tidings.lake.tables import asked
        from tidings.lake.warehouse import in_folder

        with self._spark(few=False) as spark:
            self.phases.begin("asking")
            found = asked(spark, in_folder(table), feed, sql)
            if as_json:
                return ["json"], [(line,) for line in found.toJSON().collect()]
            return found.columns, found.limit(SHOWN_MAX).collect()

    @contextmanager
    def _spark(self, *, few: bool) -> Iterator[SparkSession]:
        from tidings.lake import iceberg
        from tidings.sync import spark_session

        self.phases.begin("starting Spark")
        size = 0 if few else spark_session.SMALL_BYTES + 1
        jar = {"spark.jars": str(iceberg.jar())}
        with spark_session.local(self.folder, size=size, more=jar) as spark:
            yield spark


@contextmanager
def working(*, silent: bool) -> Iterator[Work]:
    """What goes wrong is said in one sentence; where a guard stops, the exit code says so."""
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: TID251 as at any edge
    from tidings.aws.config.stages import NoStage
    from tidings.client import errors as client
    from tidings.core.errors import TidingsError
    from tidings.lake.errors import LakeError, Stopped
    from tidings.sync.spark_session import NoJava
    from tidings.web.archive_url import WrongArchive

    refusals = (LakeError, WrongArchive, NoStage, NoJava, TidingsError, client.ClientError)
    with tempfile.TemporaryDirectory(prefix="tidings-lake-") as name:
        folder = Path(name)
        try:
            with failures(folder), Phases(silent=silent) as phases:
                yield Work(folder, phases)
        except Stopped as stopped:
            click.echo(f"Stopped: {stopped}.", err=True)
            click.get_current_context().exit(STOPPED)
        except (*refusals, BotoCoreError, ClientError) as error:
            raise click.ClickException(str(error)) from None

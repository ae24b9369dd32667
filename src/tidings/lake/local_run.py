"""The common part of the commands of this package: Spark on this machine, and errors."""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidings.sync.progress import Phases, failures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidings.lake.warehouse import Warehouse
    from tidings.sync.target import Place

STOPPED = 3


@dataclass(frozen=True, slots=True)
class Work:
    """The work in a temporary *folder*."""

    folder: Path
    phases: Phases

    @contextmanager
    def spark(self, *, few: bool) -> Iterator[SparkSession]:
        """Open a session with Iceberg; with *few* operations, optimize for a fast start."""
        from tidings.lake import iceberg
        from tidings.lake.warehouse import EXTENSIONS
        from tidings.sync.engines import spark_session

        self.phases.begin("starting Spark")
        size = 0 if few else spark_session.SMALL_BYTES + 1
        settings = {"spark.jars": str(iceberg.jar()), **EXTENSIONS}
        with spark_session.local(self.folder, size=size, more=settings) as spark:
            self.phases.watch(spark)
            yield spark


@contextmanager
def working(*, silent: bool) -> Iterator[Work]:
    """Convert errors to one sentence; a guard that stops the run has its own exit code."""
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: TID251 as at any edge

    from tidings.aws.config.stages import NoStage
    from tidings.client import errors as client
    from tidings.core.errors import TidingsError
    from tidings.http.settings import WrongArchive
    from tidings.lake.errors import LakeError, Stopped
    from tidings.spark.errors import SparkError
    from tidings.sync.engines.spark_session import NoJava

    ours = (LakeError, SparkError, WrongArchive, NoStage, NoJava, TidingsError)
    with tempfile.TemporaryDirectory(prefix="tidings-lake-") as name:
        folder = Path(name)
        try:
            with failures(folder), Phases(silent=silent) as phases:
                yield Work(folder, phases)
        except Stopped as stopped:
            click.echo(f"Stopped: {stopped}.", err=True)
            click.get_current_context().exit(STOPPED)
        except (*ours, client.ClientError, BotoCoreError, ClientError) as error:
            raise click.ClickException(str(error)) from None


@contextmanager
def alone(warehouse: Warehouse, feed: str) -> Iterator[None]:
    """
    Lock the folder, so that no other process on this machine follows *feed* into it.

    Raises:
        Raced: another process does.
    """
    from tidings.lake.errors import Raced

    folder = Path(warehouse.url)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f".{feed}.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Raced(f"another process follows {feed} into {folder}") from None
        yield


def archive_of(place: Place | None) -> str:
    """Return the archive of a stage; empty if it has no archive, or *place* is None."""
    return place.settings.archive if place is not None else ""


def address(archive: str) -> str:
    """Return the URL of an archive, which may be given as a folder."""
    return archive if "://" in archive else Path(archive).resolve().as_uri()


def place_of(feed: str, stage: str | None, endpoint_url: str | None) -> Place | None:
    """Return the tables of the feed; None if neither a stage nor a twin is named."""
    from tidings.sync import target

    if stage:
        return target.on_stage(feed, stage)
    return target.on_twin(feed, endpoint_url) if endpoint_url else None

"""The parts that the sync commands share: the named feed, progress bars, lineage and errors."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidings.client.cli.options import NamedFeed
from tidings.client.cli.render import phase_bars, source_of, table
from tidings.core.errors import TidingsError, Unavailable
from tidings.core.sync import dumps
from tidings.lineage import datasets, runs
from tidings.lineage.datasets import Dataset
from tidings.lineage.runs import Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.progress import TaskID
    from rich.table import Table

    from tidings.sync.feed import Applied, Feed
    from tidings.sync.job import Summary

delete_share_option = click.option(
    "--max-delete-share",
    type=click.FloatRange(0, 1),
    default=dumps.DELETE_SHARE_MAX,
    show_default=True,
    help="Stop if a larger share of the objects would be deleted.",
)


def open_feed(named: NamedFeed) -> Feed:
    """Return the feed that the options name, after checking that the caller may correct it."""
    with refusals():
        feed = _feed_of(named)
        feed.check()  # fail now, and not after hours of work on a plan
        return feed


def _feed_of(named: NamedFeed) -> Feed:
    if named.url:
        from tidings.sync.over_http import Remote

        return Remote(named.url, named.feed, named.password)
    from tidings.sync.feed import on_endpoint, on_stage

    if named.stage:
        return on_stage(named.feed, named.stage)
    return on_endpoint(named.feed, named.endpoint_url)


def dataset_of(named: NamedFeed) -> Dataset:
    """Return the lineage dataset of the feed.

    The dataset has the HTTP address of the feed, even if the command reads the feed's tables.
    """
    if not named.stage:
        return datasets.of_feed(named.url or named.endpoint_url, named.feed)
    from tidings.aws.config import stages
    from tidings.sync.stage import client

    with refusals():
        url = stages.addresses(named.stage, client("cloudformation")).feed
    return datasets.of_feed(url, named.feed)


@contextmanager
def refusals() -> Iterator[None]:
    """Print an error of the feed or of AWS as one sentence, and exit with 1."""
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: TID251 caught at the edge

    try:
        yield
    except (TidingsError, BotoCoreError, ClientError) as error:
        source = source_of(is_unreachable=isinstance(error, Unavailable))
        raise click.ClickException(f"{error}{source}") from None


_KIND = "SYNC"


@dataclass(frozen=True, slots=True)
class Lineage:
    """The datasets of a sync. *source* is None for a dump from stdin, which has no address."""

    feed: Dataset
    source: Dataset | None
    secret: str
    dry_run: bool

    @classmethod
    def of(cls, named: NamedFeed, source: Dataset | None, dry_run: bool) -> Lineage:
        return cls(dataset_of(named), source, named.password, dry_run)


@dataclass(frozen=True, slots=True)
class Counts:
    """The counts of a sync so far.

    *lines* of the source and *objects* of the feed were read, and *applied* changes were made.
    """

    lines: int
    objects: int
    applied: int


@contextmanager
def report_sync(lineage: Lineage | None, counts: Callable[[], Counts]) -> Iterator[None]:
    """Report a sync in this context; do nothing if *lineage* is None.

    *counts* is called at the end, also after a failure.
    """
    if lineage is None:
        yield
        return
    feed, source = lineage.feed, lineage.source
    reads = [feed] if source is None else [source, feed]
    writes = [] if lineage.dry_run else [feed]
    job = Job(f"tidings.sync.{feed.name}", _KIND)
    with runs.report_run(job, reads, writes, [lineage.secret]) as run:
        try:
            yield
        finally:
            counted = counts()
            run.read(feed, counted.objects)
            if source is not None:
                run.read(source, counted.lines)
            if writes:
                run.wrote(feed, counted.applied)


_PHASES_MAX = 10  # bars on the terminal; a command that runs until Ctrl-C has ever more phases
_LOOK_S = 0.3  # the time between two queries of the engine's progress


@dataclass(slots=True)
class Outcome:
    """The result of a run so far. It is also shown after a failure."""

    summary: Summary | None = None
    applied: Applied | None = None

    def counts(self) -> Counts:
        summary, applied = self.summary, self.applied
        return Counts(
            summary.lines if summary is not None else 0,
            summary.objects if summary is not None else 0,
            applied.applied if applied is not None else 0,
        )


class Phases:
    """Progress bars of the phases, which are hidden if *silent* or if stderr is not a terminal."""

    def __init__(self, *, silent: bool = False) -> None:
        self._progress = phase_bars(silent=silent)
        self._task: TaskID | None = None
        self._ended = threading.Event()

    def __enter__(self) -> Phases:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self._ended.set()
        if kind is None:
            self._finish()
        self._progress.stop()

    def begin(self, name: str, total: int | None = None) -> None:
        """End the current phase, and start the phase *name*."""
        self._finish()
        self._task = self._progress.add_task(name, total=total)
        for each in self._progress.task_ids[:-_PHASES_MAX]:
            self._progress.remove_task(each)

    def advance(self, count: int) -> None:
        if self._task is not None:
            self._progress.advance(self._task, count)

    def show_progress(self, spark: SparkSession) -> None:
        """Show the progress that the engine of *spark* reports, until the last phase ends."""
        from tidings.sync.spark_session import current

        if not self._progress.disable:
            read_progress = partial(current().progress, spark)
            threading.Thread(target=self._look, args=(read_progress,), daemon=True).start()

    def _look(self, progress: Callable[[], tuple[int, int] | None]) -> None:
        while not self._ended.wait(_LOOK_S):
            position = progress()
            if position is not None and self._task is not None:
                done, total = position
                self._progress.update(self._task, completed=done, total=total)

    def _finish(self) -> None:
        if self._task is not None:
            self._progress.update(self._task, total=1, completed=1)


def changes_table(summary: Summary, applied: Applied | None) -> Table:
    """Return a table of the planned changes by type, with the outcome of the sync below it."""
    names = ("creates", "updates", "deletes")
    rows = [{"type": kind, **counts} for kind, counts in summary.by_type.items()]
    rows.append({"type": "all", **{name: getattr(summary, name) for name in names}})
    shown = table(("type", *names), [dict.fromkeys(names, 0) | row for row in rows])
    shown.title = f"{summary.lines:,} lines, {summary.objects:,} objects in the state"
    rest = f"untouched {summary.untouched:,}"
    if applied is not None:
        rest += f"; applied {applied.applied:,}, moved {applied.moved:,}, done {applied.done:,}"
    shown.caption = rest
    return shown


@contextmanager
def failures(folder: Path) -> Iterator[None]:
    """Print an error of Spark as one sentence, and exit with 1.

    *folder* is temporary. If it contains the log of Spark, copy the log so that it is kept.
    """
    from tidings.sync.spark_session import SPARK_ERRORS, sentence_of

    try:
        yield
    except SPARK_ERRORS as error:
        sentence = sentence_of(error)
        if (folder / "spark.log").exists():
            kept = Path(tempfile.gettempdir()) / f"{folder.name}.log"
            shutil.copy(folder / "spark.log", kept)
            sentence += f" (log of Spark: {kept})"
        raise click.ClickException(sentence) from None

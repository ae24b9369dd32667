"""Show the progress of a sync, its result, and the errors of Spark."""

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
from rich.table import Table

from tidings.client.cli.render import phase_bars
from tidings.sync.lineage import Counts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.progress import TaskID

    from tidings.sync.apply import Applied
    from tidings.sync.plan import Summary

_LOOK_S = 0.3  # how often to query the progress of the engine


@dataclass(slots=True)
class Outcome:
    """The result of a run so far, which is shown even after a failure."""

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
    """Progress bars of the phases on a terminal; no output elsewhere, or with *silent*."""

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
        """Start a phase; the previous one is done."""
        self._finish()
        self._task = self._progress.add_task(name, total=total)

    def advance(self, count: int) -> None:
        if self._task is not None:
            self._progress.advance(self._task, count)

    def watch(self, spark: SparkSession) -> None:
        """Show the progress of the engine of *spark* until the end, if it reports any."""
        from tidings.sync.engines import engine

        if not self._progress.disable:
            asked = partial(engine.current().progress, spark)
            threading.Thread(target=self._look, args=(asked,), daemon=True).start()

    def _look(self, progress: Callable[[], tuple[int, int] | None]) -> None:
        while not self._ended.wait(_LOOK_S):
            told = progress()
            if told is not None and self._task is not None:
                done, total = told
                self._progress.update(self._task, completed=done, total=total)

    def _finish(self) -> None:
        if self._task is not None:
            self._progress.update(self._task, total=1, completed=1)


def table(summary: Summary, applied: Applied | None) -> Table:
    """Return a table of the changes by type, with the outcomes below."""
    shown = Table(title=f"{summary.lines:,} lines, {summary.objects:,} objects in the state")
    shown.add_column("type")
    for name in ("creates", "updates", "deletes"):
        shown.add_column(name, justify="right")
    for kind, counts in summary.by_type.items():
        shown.add_row(kind, *_counts(counts))
    totals = {name: getattr(summary, name) for name in ("creates", "updates", "deletes")}
    shown.add_section()
    shown.add_row("all", *_counts(totals))
    rest = f"untouched {summary.untouched:,}"
    if applied is not None:
        rest += f"; applied {applied.applied:,}, moved {applied.moved:,}, done {applied.done:,}"
    shown.caption = rest
    return shown


def _counts(counts: dict[str, int]) -> list[str]:
    return [f"{counts.get(name, 0):,}" for name in ("creates", "updates", "deletes")]


@contextmanager
def failures(folder: Path) -> Iterator[None]:
    """Convert an error of Spark to one sentence, and keep a copy of the log in *folder*."""
    from tidings.sync.engines.spark_session import SPARK_ERRORS, sentence_of

    try:
        yield
    except SPARK_ERRORS as error:
        sentence = sentence_of(error)
        if (folder / "spark.log").exists():
            kept = Path(tempfile.gettempdir()) / f"{folder.name}.log"
            shutil.copy(folder / "spark.log", kept)
            sentence += f" (more in {kept})"
        raise click.ClickException(sentence) from None

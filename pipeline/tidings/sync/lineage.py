"""What a sync reads and writes, told as lineage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tidings.client.cli.options import NamedFeed
from tidings.lineage import datasets, runs
from tidings.lineage.datasets import Dataset
from tidings.lineage.events import Job
from tidings.lineage.runs import Run
from tidings.sync.inputs import STDIN
from tidings.sync.named import dataset_of
from tidings.sync.progress import Outcome

_KIND = "SYNC"


@dataclass(frozen=True, slots=True)
class Lineage:
    """*dump* is None where it comes by a pipe, which nobody could look up."""

    feed: Dataset
    dump: Dataset | None
    secret: str
    dry_run: bool

    @classmethod
    def of(cls, named: NamedFeed, dump: str, dry_run: bool) -> Lineage:
        read = None if dump == STDIN else datasets.of_files(dump)
        return cls(dataset_of(named), read, named.password, dry_run)


@contextmanager
def told(lineage: Lineage | None, outcome: Outcome) -> Iterator[None]:
    """Around a run that fills *outcome*; None: nothing is told."""
    if lineage is None:
        yield
        return
    reads = [lineage.feed] if lineage.dump is None else [lineage.dump, lineage.feed]
    writes = [] if lineage.dry_run else [lineage.feed]
    job = Job(f"tidings.sync.{lineage.feed.name}", _KIND)
    with runs.told(job, reads, writes, [lineage.secret]) as run:
        try:
            yield
        finally:
            _count(run, lineage, outcome)


def _count(run: Run, lineage: Lineage, outcome: Outcome) -> None:
    """As far as it came, also of a run that failed."""
    if outcome.summary is not None:
        run.read(lineage.feed, outcome.summary.objects)
        if lineage.dump is not None:
            run.read(lineage.dump, outcome.summary.lines)
    if outcome.applied is not None:
        run.wrote(lineage.feed, outcome.applied.applied)

"""Report what a sync reads and writes as lineage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tidings.client.cli.options import NamedFeed
from tidings.lineage import runs
from tidings.lineage.datasets import Dataset
from tidings.lineage.runs import Job
from tidings.sync.named import dataset_of

_KIND = "SYNC"


@dataclass(frozen=True, slots=True)
class Lineage:
    """The datasets of a sync. *source* is None for a dump from a pipe, which has no address."""

    feed: Dataset
    source: Dataset | None
    secret: str
    dry_run: bool

    @classmethod
    def of(cls, named: NamedFeed, source: Dataset | None, dry_run: bool) -> Lineage:
        return cls(dataset_of(named), source, named.password, dry_run)


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of a sync so far: lines or rows of its source, objects of the feed, corrections."""

    lines: int
    objects: int
    applied: int


@contextmanager
def told(lineage: Lineage | None, counts: Callable[[], Counts]) -> Iterator[None]:
    """
    Report a sync in this context; do nothing if *lineage* is None.

    *counts* is called at the end, also after a failure.
    """
    if lineage is None:
        yield
        return
    feed, source = lineage.feed, lineage.source
    reads = [feed] if source is None else [source, feed]
    writes = [] if lineage.dry_run else [feed]
    job = Job(f"tidings.sync.{feed.name}", _KIND)
    with runs.told(job, reads, writes, [lineage.secret]) as run:
        try:
            yield
        finally:
            counted = counts()
            run.read(feed, counted.objects)
            if source is not None:
                run.read(source, counted.lines)
            if writes:
                run.wrote(feed, counted.applied)

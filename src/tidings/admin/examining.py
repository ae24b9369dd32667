"""Verify the state of a feed: read the log, compare the buckets, report the differences."""

from __future__ import annotations

import marshal
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
from rich.progress import Progress

from tidings.admin.findings import Findings
from tidings.admin.state_target import Examined, StateTarget, uncounted
from tidings.aws.effects import now_ms
from tidings.client.cli import render
from tidings.core import limits
from tidings.core.archive.reader import ArchiveReader
from tidings.core.maintenance.verify import Verifier
from tidings.core.state.rows import Difference, Row


class FileSpill:
    """
    Implements `Spill` in *folder*, with a file per bucket. It is read by the process that wrote it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, rows: Sequence[Row]) -> None:
        buckets: defaultdict[int, list[tuple[str, int, int, int, str, int]]] = defaultdict(list)
        for row in rows:
            fields = (row.key, row.page, row.slot, row.at_ms, row.line, row.expires_ms)
            buckets[row.bucket].append(fields)
        for bucket, entries in buckets.items():
            with self._path(bucket).open("ab") as file:
                marshal.dump(entries, file)

    def rows(self, bucket: int) -> Iterator[Row]:
        if not self._path(bucket).exists():
            return
        with self._path(bucket).open("rb") as file:
            while file.peek(1):
                for fields in marshal.load(file):
                    yield Row(*fields)

    def _path(self, bucket: int) -> Path:
        return self._folder / str(bucket)


_RANGE = re.compile(r"(\d{1,3})(?:-(\d{1,3}))?", re.ASCII)


def buckets_of(ctx: click.Context, param: click.Parameter, text: str) -> Collection[int]:
    """Parse an option of bucket numbers and ranges: `0-7,63`. A callback for click."""
    buckets: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        numbers = range(int(match[1]), int(match[2] or match[1]) + 1) if match else range(0)
        if not numbers or numbers[-1] >= limits.BUCKETS:
            rule = f"{part!r} is no bucket or range of buckets, 0 to {limits.BUCKETS - 1}"
            raise click.BadParameter(rule)
        buckets |= set(numbers)
    return sorted(buckets)


archive_option = click.option(
    "--archive",
    is_flag=False,
    flag_value="",
    metavar="[URL|FOLDER]",
    help="Begin with the archive: that of the stage, or the one that is named.",
)
ALL = f"0-{limits.BUCKETS - 1}"


@contextmanager
def run_over(
    target: Examined, buckets: Collection[int], archive: str | None
) -> Iterator[tuple[Verifier, Progress]]:
    """Yield a verifier and a progress display. The log is spilled to a temporary folder."""
    reader = None if archive is None else _reader(target, archive)
    with (
        tempfile.TemporaryDirectory(prefix="tidings-verify-") as folder,
        render.phase_bars() as progress,
    ):
        verifier = Verifier(
            target.feed,
            target.states(),
            target.followers(),
            target.reader(),
            FileSpill(Path(folder)),
            now_ms,
            target.tombstone_ms(),
            frozenset(buckets),
            reader,
        )
        yield verifier, progress


def _reader(target: Examined, named: str) -> ArchiveReader:
    from tidings.admin.archive_target import store_at, url_of

    tables = target if isinstance(target, StateTarget) else None
    return ArchiveReader(store_at(url_of(named, tables)), uncounted)


def examine(
    verifier: Verifier, progress: Progress, tell: Callable[[Difference], None] | None = None
) -> Findings:
    """Read the log and compare every bucket. Call *tell* with each difference."""
    task = progress.add_task("reading the log", total=None)
    for page in verifier.read():
        progress.update(task, completed=page)
    progress.update(task, total=1, completed=1)
    result = Findings()
    for bucket in progress.track(sorted(verifier.buckets), description="comparing"):
        compared = verifier.compare(bucket)
        result.add(compared)
        for difference in compared.differences if tell else ():
            tell(difference)  # type: ignore[misc]
    return result

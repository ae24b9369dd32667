"""`tidings verify` and `rebuild`: find and repair differences between a state and its log."""

from __future__ import annotations

import json
import marshal
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import click
from rich.progress import Progress

from tidings.admin.state_target import Examined, StateTarget, examined_options
from tidings.client.cli import render
from tidings.client.cli.main import CHECK_CODES, EXIT_CODES, FOUND
from tidings.core import limits
from tidings.core.archive.generations import lost_parts
from tidings.core.archive.reader import ArchiveReader
from tidings.core.effects import discard_count
from tidings.core.maintenance.verify import Compared, Rebuilder, Repaired, Verifier, differing
from tidings.core.model.feeds import public_name
from tidings.core.model.operations import event_of
from tidings.core.state.rows import Difference, Kind, Row
from tidings.core.sync import dumps
from tidings.server.sqlite.log import Numbers

SHOWN_MAX = 20  # maximum number of differences in the table; enough to see their kinds
_NAMES = {"at_ms": "time", "expires_ms": "expiry"}
NOTHING = "nothing"
_COLUMNS = ("difference", "object", "in the state", "in the log")
_RANGE = re.compile(r"(\d{1,3})(?:-(\d{1,3}))?", re.ASCII)
ALL = f"0-{limits.BUCKETS - 1}"
STOPPED = 3


@dataclass(slots=True)
class Findings:
    """The results of the buckets compared so far; *first* are the first differences.

    *page* is the smallest page up to which a bucket was compared.
    """

    buckets: int = 0
    page: int = 0
    rows: int = 0
    agreeing: int = 0
    older: int = 0
    kinds: Counter[Kind] = field(default_factory=Counter)
    differing: list[int] = field(default_factory=list)
    first: list[Difference] = field(default_factory=list)

    @property
    def differences(self) -> int:
        return self.kinds.total()

    def add(self, compared: Compared) -> None:
        self.page = min(self.page, compared.checkpoint) if self.buckets else compared.checkpoint
        self.buckets += 1
        self.rows += compared.rows
        self.agreeing += compared.agreeing
        self.older += compared.older
        self.kinds.update(each.kind for each in compared.differences)
        if compared.differences:
            self.differing.append(compared.bucket)
        self.first += compared.differences[: SHOWN_MAX - len(self.first)]


def findings_json(findings: Findings, feed: str, floor: int) -> dict[str, object]:
    """Return the summary, which is the last line that `--json` prints."""
    return {
        "feed": public_name(feed),
        "floor": floor,
        "page": findings.page,
        "buckets": findings.buckets,
        "agreeing": findings.agreeing,
        "older": findings.older,
        "differences": {kind.value: findings.kinds[kind] for kind in Kind},
    }


def _print_json(difference: Difference) -> None:
    """Print the line of `--json` for *difference*, with the operations' places, not contents."""
    document = {
        "difference": difference.kind.value,
        "key": difference.key,
        "bucket": difference.bucket,
        "found": _place(difference.stored),
        "wanted": _place(difference.wanted),
        "unequal": _unequal(difference),
    }
    click.echo(json.dumps(document))


def sentence(findings: Findings, feed: str, floor: int) -> str:
    parts = [
        f"{findings.agreeing:,} rows of {public_name(feed)} agree with its log"
        f" up to page {findings.page:,}"
    ]
    if findings.older:
        parts.append(f"{findings.older:,} are older than the log, which begins with page {floor:,}")
    kinds = [f"{findings.kinds[kind]:,} {kind.value}" for kind in Kind if findings.kinds[kind]]
    parts.append(", ".join(kinds) if kinds else "nothing differs")
    return "; ".join(parts)


def _unequal(difference: Difference) -> list[str]:
    if difference.stored is None or difference.wanted is None:
        return []
    names = differing(difference.stored, difference.wanted)
    return [_NAMES.get(name, name) for name in names]


def _place(row: Row | None) -> dict[str, object] | None:
    return row and {"page": row.page, "slot": row.slot, "event": event_of(row.line)}


def _row(difference: Difference) -> dict[str, str]:
    kind = difference.kind.value
    if difference.kind in (Kind.ALTERED, Kind.BROKEN):
        kind = f"{kind}: {', '.join(_unequal(difference))}".removesuffix(": ")
    operations = (difference.stored, difference.wanted)
    places = (
        f"{event_of(row.line)} at {row.page}/{row.slot}" if row else NOTHING for row in operations
    )
    return dict(zip(_COLUMNS, (kind, difference.key, *places), strict=True))


def show_findings(result: Findings, feed: str, floor: int) -> None:
    """Print the first differences as a table, and a summary."""
    if result.first:
        render.show(render.table(_COLUMNS, [*map(_row, result.first)]))
    hidden = result.differences - len(result.first)
    if hidden:
        click.echo(f"and {hidden:,} more differences; --json lists all")
    click.echo(f"{sentence(result, feed, floor)}.")


class FileSpill:
    """Implements `Spill` in *folder*, with a file per bucket; only this process reads the files."""

    def __init__(self, folder: Path, buckets: Collection[int]) -> None:
        self._folder, self.buckets = folder, buckets

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


def buckets_of(ctx: click.Context, param: click.Parameter, text: str) -> Collection[int]:
    """Parse an option with bucket numbers and ranges, such as `0-7,63`; a callback for click."""
    buckets: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        numbers = range(int(match[1]), int(match[2] or match[1]) + 1) if match else range(0)
        if not numbers or numbers[-1] >= limits.BUCKETS:
            rule = f"{part!r} is not a bucket or range of buckets, 0 to {limits.BUCKETS - 1}"
            raise click.BadParameter(rule)
        buckets |= set(numbers)
    return sorted(buckets)


archive_option = click.option(
    "--archive",
    is_flag=False,
    flag_value="",
    metavar="[URL|FOLDER]",
    help="Read the archive before the log: the stage's, or the archive at this address.",
)


@contextmanager
def run_over(
    target: Examined, buckets: Collection[int], archive: str | None
) -> Iterator[tuple[Verifier, Progress]]:
    """Yield a verifier, which copies the log to a temporary folder, and a progress display."""
    from tidings.admin.archive_command import store_at, url_of

    reader = None
    if archive is not None:
        tables = target if isinstance(target, StateTarget) else None
        reader = ArchiveReader(store_at(url_of(archive, tables)), discard_count)
    with (
        tempfile.TemporaryDirectory(prefix="tidings-verify-") as folder,
        render.phase_bars() as progress,
    ):
        verifier = Verifier(
            feed=target.feed,
            states=target.states(),
            reader=target.reader(),
            spill=FileSpill(Path(folder), frozenset(buckets)),
            tombstone_ms=target.tombstone_ms(),
            archive=reader,
        )
        yield verifier, progress


def examine(
    verifier: Verifier,
    progress: Progress,
    report_difference: Callable[[Difference], None] | None = None,
) -> Findings:
    """Read the log and compare every bucket. Call *report_difference* with each difference."""
    task = progress.add_task("reading the log", total=None)
    for page in verifier.read():
        progress.update(task, completed=page)
    progress.update(task, total=1, completed=1)
    result = Findings()
    for bucket in progress.track(sorted(verifier.spill.buckets), description="comparing"):
        compared = verifier.compare(bucket)
        result.add(compared)
        for difference in compared.differences if report_difference else ():
            report_difference(difference)  # type: ignore[misc]
    return result


@click.command(epilog=CHECK_CODES)
@examined_options
@archive_option
@click.option(
    "--buckets",
    callback=buckets_of,
    default=ALL,
    show_default=True,
    help="Compare these buckets only.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print a line of JSON for each difference, then a summary.",
)
@click.pass_context
def verify(
    ctx: click.Context,
    target: Examined,
    archive: str | None,
    buckets: Collection[int],
    as_json: bool,
) -> None:
    """Compare the state of a feed with its log, and name every object that differs.

    Nothing is changed, and the feed may stay in use. Rows that are older than the log are only
    counted; with --archive, they are compared with the archive, and so are the pages of the log.

    \b
    Examples:
      tidings verify --stage dev
      tidings verify --stage prod --archive
      tidings verify --endpoint-url http://127.0.0.1:8044 --buckets 0-7 --json
      tidings verify --data tidings-data         of a server that was stopped
    """
    unwritten = target.unwritten()
    with run_over(target, buckets, archive) as (verifier, progress):
        result = examine(verifier, progress, _print_json if as_json else None)
    problems = _archive_problems(verifier)
    if as_json:
        found = findings_json(result, target.feed, verifier.floor)
        click.echo(json.dumps(found | ({"archive": problems} if verifier.archive else {})))
    else:
        show_findings(result, target.feed, verifier.floor)
    for numbers in unwritten:
        remedy = "start the server or run `tidings rebuild`"
        click.echo(f"{_unwritten(target, numbers)}; {remedy}", err=True)
    for problem in problems:
        click.echo(f"{public_name(target.feed)}: {problem}", err=True)
    if result.differences or unwritten or problems:
        ctx.exit(FOUND)


def _archive_problems(verifier: Verifier) -> list[str]:
    """Return a sentence for each way in which the archive differs from the log."""
    if verifier.archive is None:
        return []
    problems = [
        f"a process that still runs with the tables before a restore has archived the pages"
        f" {span.first} to {span.last}, which are lost (generation {span.generation})"
        for span in lost_parts(verifier.archive.store, verifier.feed)
    ]
    if some := verifier.conflicts:
        shown = ", ".join(map(str, some[:SHOWN_MAX]))
        problems.append(f"the archive and the log have different content in the pages {shown}")
    return problems


def _unwritten(target: Examined, numbers: Numbers) -> str:
    head = target.reader().log.head(target.feed)
    reserved = f"a killed process reserved {numbers} (head {head})"
    return f"{public_name(target.feed)}: {reserved} and wrote nothing"


@click.command(epilog=f"{EXIT_CODES[:-1]}, {STOPPED} stopped by a guard.")
@examined_options
@archive_option
@click.option("--dry-run", is_flag=True, help="Print the differences and change nothing.")
@click.option(
    "--max-alien-share",
    type=click.FloatRange(0, 1),
    default=dumps.ALIEN_SHARE_MAX,
    show_default=True,
    help="Repair nothing if the log lacks a larger share of the rows.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one line of JSON.")
@click.pass_context
def rebuild(
    ctx: click.Context,
    target: Examined,
    archive: str | None,
    dry_run: bool,
    max_alien_share: float,
    as_json: bool,
) -> None:
    """Rebuild the state of a feed from its log: repair the differences that `tidings verify` finds.

    In the file of a server, also write empty pages for page numbers that a killed process reserved
    and did not write.

    The feed may stay in use: a row that changes in the meantime is left as it is. Rows that are
    older than the log are kept; with --archive, they are repaired from the archive.

    \b
    Examples:
      tidings rebuild --stage dev --dry-run
      tidings rebuild --stage prod --archive
      tidings rebuild --endpoint-url http://127.0.0.1:8044
      tidings rebuild --data tidings-data
    """
    for numbers in target.unwritten() if dry_run else target.fill():
        click.echo(f"{_unwritten(target, numbers)}{'' if dry_run else '; filled'}", err=True)
    with run_over(target, range(limits.BUCKETS), archive) as (verifier, progress):
        result = examine(verifier, progress)
        objection = dumps.check_rebuild(
            result.kinds[Kind.ALIEN], result.rows, share_max=max_alien_share
        )
        done = None
        if objection is None and not dry_run:
            rebuilder, done = Rebuilder(verifier, target.states()), Repaired(0, 0)
            for bucket in progress.track(result.differing, description="repairing"):
                done += rebuilder.repair(bucket)
    if as_json:
        counts = {} if done is None else {"repaired": done.repaired, "moved": done.moved}
        click.echo(json.dumps(findings_json(result, target.feed, verifier.floor) | counts))
    else:
        show_findings(result, target.feed, verifier.floor)
        if done is not None and result.differences:
            click.echo(f"Repaired {done.repaired:,}; {done.moved:,} changed in the meantime.")
    if objection is not None:
        click.echo(f"Stopped: {objection.sentence}.", err=True)
        ctx.exit(STOPPED)

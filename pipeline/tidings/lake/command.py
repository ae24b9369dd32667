"""`tidings archive compact` and `query`: the archive as tables, on this machine's Spark."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from tidings.client.cli.main import EXIT_CODES
from tidings.client.cli.options import (
    check_once,
    endpoint_option,
    feed_option,
    password_options,
    stage_option,
)
from tidings.client.cli.render import plain, show
from tidings.sync.progress import Phases, failures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.table import Table
    from tidings.lake.job import Report, Wishes
    from tidings.sync.target import Place

STOPPED = 3
SHOWN_MAX = 1_000  # rows of an answer: who wants more asks for JSON
_FEW_PARTS = 16  # up to so many, the start of Spark takes longer than the work
_EPILOG = f"{EXIT_CODES[:-1]}, {STOPPED} stopped by a guard."
_AGE = re.compile(r"(\d{1,6})([smhd])", re.ASCII)
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PAGE = re.compile(r"\d{1,13}", re.ASCII)


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
        from tidings.lake.tables import run_query
        from tidings.lake.warehouse import in_folder

        with self._spark(few=False) as spark:
            self.phases.begin("asking")
            answer = run_query(spark, in_folder(table), feed, sql)
            if as_json:
                return ["json"], [(line,) for line in answer.toJSON().collect()]
            return answer.columns, answer.limit(SHOWN_MAX).collect()

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
def _working(*, silent: bool) -> Iterator[Work]:
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


@click.command(epilog=_EPILOG)
@feed_option
@click.option("--archive", metavar="URL", help="s3://BUCKET/PREFIX or a folder.")
@click.option("--table", required=True, metavar="FOLDER", help="Where the tables are, or will be.")
@click.option("--url", help="Where the feed is: its consumers bound what is compacted.")
@stage_option
@endpoint_option
@click.option("--until", metavar="PAGE|AGE", help="Compact up to this page, or what is older: 30d.")
@click.option("--keep-parts", is_flag=True, help="Only bring the tables up to date.")
@click.option("--drop-changes", is_flag=True, help="Also of what has no object leave nothing.")
@click.option("--allow-gaps", is_flag=True, help="Pass over pages that the archive lacks.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--json", "as_json", is_flag=True, help="The summary as one line of JSON.")
@password_options
@click.pass_context
def compact(
    ctx: click.Context,
    /,
    feed: str,
    archive: str | None,
    table: str,
    as_json: bool,
    **options: Any,
) -> None:
    """
    Bring the tables of a feed up to date with its archive, and compact what everybody has read.

    Every operation of the closed parts is in the table `history`, the last one of each object in
    `latest`. Then of the parts that every consumer has handled only that is left. The last part is
    never touched. Killed at any moment, it may be run again.

    \b
    Examples:
      tidings archive compact --archive ./feed --table lake --url http://127.0.0.1:8042
      tidings archive compact --stage prod --table lake --keep-parts
      tidings archive compact --archive s3://parts/prod --table lake --until 90d --dry-run
    """
    _check(options)
    with _working(silent=as_json) as work:
        place = _place(feed, options["stage"], options["endpoint_url"])
        wishes = _wishes(options, _bound(place, feed, options))
        report = work.compact(feed, _address(archive or _archive_of(place)), table, wishes)
    if as_json:
        click.echo(json.dumps(asdict(report)))
    else:
        show(_summary(report))


def _check(options: dict[str, Any]) -> None:
    named = [options[name] for name in ("url", "stage", "endpoint_url") if options[name]]
    check_once(*named)
    if not named and not options["until"] and not options["keep_parts"]:
        raise click.UsageError(
            "name the feed by --url, --stage or --endpoint-url, so that nothing is compacted that"
            " a consumer has not read; or say --until, or --keep-parts"
        )
    until = options["until"]
    if until and not (_AGE.fullmatch(until) or _PAGE.fullmatch(until)):
        raise click.UsageError(f"--until {until!r}: must be a page, or an age such as 12h or 30d")


def _place(feed: str, stage: str | None, endpoint_url: str | None) -> Place | None:
    from tidings.sync import target

    if stage is not None:
        return target.on_stage(feed, stage)
    return target.on_twin(feed, endpoint_url) if endpoint_url else None


def _bound(place: Place | None, feed: str, options: dict[str, Any]) -> int | None:
    """The last page that may be compacted; None where nobody was asked."""
    from tidings.lake import consumer_bounds

    if options["keep_parts"]:
        return None
    if place is not None:
        return consumer_bounds.in_tables(place)
    if options["url"]:
        return consumer_bounds.over_http(options["url"], feed, options["password"])
    return None


def _archive_of(place: Place | None) -> str:
    archive = place.settings.archive if place is not None else ""
    if not archive:
        raise click.UsageError("name the archive by --archive, or a --stage that has one")
    return archive


def _address(archive: str) -> str:
    return archive if "://" in archive else Path(archive).resolve().as_uri()


def _wishes(options: dict[str, Any], bound: int | None) -> Wishes:
    from tidings.aws.runtime.clock import now_ms
    from tidings.lake.job import Wishes

    until = options["until"] or ""
    age = _AGE.fullmatch(until)
    pages = [
        page for page in (bound, int(until) if until and not age else None) if page is not None
    ]
    return Wishes(
        min(pages, default=None),
        now_ms() - int(age[1]) * _UNIT_MS[age[2]] if age else None,
        options["keep_parts"],
        not options["drop_changes"],
        options["allow_gaps"],
        options["dry_run"],
    )


@click.command(epilog=EXIT_CODES)
@click.argument("sql")
@feed_option
@click.option(
    "--table",
    required=True,
    metavar="FOLDER",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Where the tables are.",
)
@click.option("--json", "as_json", is_flag=True, help="A line of JSON a row.")
def query(sql: str, feed: str, table: Path, as_json: bool) -> None:
    """
    Ask the tables of a feed, `history` and `latest`, in Spark's SQL.

    \b
    Examples:
      tidings archive query "SELECT event, count(*) FROM history GROUP BY event" --table lake
      tidings archive query "SELECT id, data FROM latest WHERE type = 'video'" --table lake --json
    """
    with _working(silent=as_json) as work:
        columns, rows = work.query(feed, str(table), sql, as_json=as_json)
    if as_json:
        for row in rows:
            click.echo(row[0])
        return
    show(_answer(columns, rows))


def _summary(report: Report) -> Table:
    from rich.table import Table

    shown = Table(title=f"{report.feed}: {report.parts:,} parts", show_header=False)
    shown.add_column()
    shown.add_column(justify="right")
    rows = {
        "operations added to history": report.loaded,
        "history reaches page": report.through,
        "compacted up to page": report.bound,
        "operations in those parts": report.operations,
        "of them left": report.left,
        "parts written": report.written,
        "parts removed": report.removed,
    }
    for name, count in rows.items():
        shown.add_row(name, f"{count:,}")
    return shown


def _answer(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    from rich.table import Table
    from rich.text import Text

    shown = Table(*columns)
    for row in rows:
        shown.add_row(*(Text("null" if each is None else plain(str(each))) for each in row))
    return shown

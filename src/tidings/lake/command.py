"""`tidings archive compact`, and `tidings tables follow`, `status` and `query`, on this machine."""

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
    NamedFeed,
    feed_option,
    named_feed_options,
)
from tidings.client.cli.render import labelled, printable, show
from tidings.client.retries import stop_on_signals
from tidings.http.outbound.files import lock
from tidings.lineage import datasets, runs
from tidings.lineage.datasets import Dataset
from tidings.lineage.runs import Job, Run, lineage_option
from tidings.server.output import unblock
from tidings.sync.cli import Phases, dataset_of, failures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.table import Table

    from tidings.lake.columns import Schemas
    from tidings.lake.compaction import CompactionOptions, Report
    from tidings.lake.feed_tables import FeedTables
    from tidings.lake.follow import Batch, Source
    from tidings.lake.status import TableStatus
    from tidings.lake.warehouse import TableMetadata, Warehouse
    from tidings.sync.feed import DynamoDBFeed

STOPPED = 3


@dataclass(frozen=True, slots=True)
class Work:
    """One run of a command, with its temporary *folder*."""

    folder: Path
    phases: Phases

    @contextmanager
    def spark(self, *, few: bool) -> Iterator[SparkSession]:
        """Open a session with Iceberg; if *few*, with settings for little data."""
        from tidings.lake import iceberg
        from tidings.lake.warehouse import EXTENSIONS
        from tidings.sync import spark_session

        self.phases.begin("starting Spark")
        size = 0 if few else spark_session.SMALL_BYTES + 1
        settings = {"spark.jars": str(iceberg.jar()), **EXTENSIONS}
        with spark_session.local(self.folder, size=size, more=settings) as spark:
            self.phases.show_progress(spark)
            yield spark


@contextmanager
def working(*, silent: bool) -> Iterator[Work]:
    """Print an error as one sentence and exit; if the error is `Stopped`, exit with `STOPPED`."""
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: TID251 caught at the edge

    from tidings.client import errors as client
    from tidings.core.errors import TidingsError
    from tidings.http.settings import WrongArchive
    from tidings.lake.warehouse import LakeError, Stopped
    from tidings.spark.options import SparkError
    from tidings.sync.spark_session import NoJava

    ours = (LakeError, SparkError, WrongArchive, NoJava, TidingsError)
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
    """Lock the tables of *feed*, so that no other process on this machine updates them.

    Raises:
        Raced: another process updates the tables of *feed* in this folder.
    """
    from tidings.lake.warehouse import Raced

    folder = Path(warehouse.url)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f".{feed}.lock").open("a") as file:
        try:
            is_locked = lock(file)
        except OSError as error:
            raise Raced(f"the tables in {folder} cannot be locked: {error.strerror}") from None
        if not is_locked:
            raise Raced(f"another process updates the tables of {feed} in {folder}")
        yield


def archive_of(dynamodb: DynamoDBFeed | None) -> str:
    """Return the archive of the stage of *dynamodb*; "" if there is no archive or no stage."""
    return dynamodb.settings.archive if dynamodb is not None else ""


def address(archive: str) -> str:
    """Return the URL of *archive*, which may be a URL or the path of a folder."""
    return archive if "://" in archive else Path(archive).resolve().as_uri()


def dynamodb_of(feed: str, stage: str, endpoint_url: str) -> DynamoDBFeed | None:
    """Return the DynamoDB tables of the feed; None if neither a stage nor an endpoint is named."""
    from tidings.sync.feed import on_endpoint, on_stage

    if stage:
        return on_stage(feed, stage)
    return on_endpoint(feed, endpoint_url) if endpoint_url else None


def key_of(named: NamedFeed) -> str:
    """Return the key of the feed, which the names of its tables contain.

    Over HTTP, the key is unknown, so the tables of all feeds of a name have the same names.
    """
    dynamodb = None if named.url else dynamodb_of(named.feed, named.stage, named.endpoint_url)
    return dynamodb.feed if dynamodb else named.feed


_KIND = "TABLES"


@dataclass(frozen=True, slots=True)
class Lineage:
    job: Job
    reads: list[Dataset]
    writes: list[Dataset]
    secret: str

    @classmethod
    def of(
        cls, named: NamedFeed, source: Source, warehouse: Warehouse, schemas: Schemas, *, once: bool
    ) -> Lineage:
        from tidings.lake.warehouse import KINDS, table_name, type_kind

        archive = source.options.get("archive")
        reads = [dataset_of(named), *([datasets.of_files(archive)] if archive else [])]
        kinds = (*KINDS, *map(type_kind, schemas))
        writes = [_table_dataset(warehouse, table_name(key_of(named), kind)) for kind in kinds]
        job = Job(f"tidings.tables.{named.feed}", _KIND, streams=not once)
        return cls(job, reads, writes, named.password)


@dataclass
class RunReport:
    """The lineage of a run.

    *run* is None if lineage is off. *tables* is None until the tables are opened.
    """

    run: Run | None = None
    tables: FeedTables | None = None

    def went_on(self) -> None:
        """Report that the run continues, after a batch was written."""
        if self.run is not None and self.run.is_due:
            self.count()
            self.run.running()

    def count(self) -> None:
        if self.run is None or self.tables is None:
            return
        for table in self.tables.all():
            dataset = _table_dataset(self.tables.warehouse, table.called, table.metadata())
            self.run.wrote(dataset, self.tables.written[table.called])


@contextmanager
def report_run(lineage: Lineage | None) -> Iterator[RunReport]:
    """Report a run in this context; do nothing if *lineage* is None."""
    if lineage is None:
        yield RunReport()
        return
    with runs.report_run(lineage.job, lineage.reads, lineage.writes, [lineage.secret]) as run:
        run_report = RunReport(run)
        try:
            yield run_report
        finally:
            run_report.count()


def _table_dataset(warehouse: Warehouse, name: str, found: TableMetadata | None = None) -> Dataset:
    """Return the dataset of a table.

    The name of the dataset is the folder of the table, as in OpenLineage's integration of Spark.
    """
    files = datasets.of_files(f"{warehouse.url.rstrip('/')}/{warehouse.database}/{name}")
    table = f"file:{warehouse.url}", f"{warehouse.database}.{name}"
    return Dataset(files.namespace, files.name, found.columns if found else (), table)


_FEW_PARTS = 16  # up to this number of parts, starting Spark takes longer than the work
_EPILOG = f"{EXIT_CODES[:-1]}, {STOPPED} stopped by a guard."
_AGE = re.compile(r"(\d{1,6})([smhd])", re.ASCII)
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PAGE = re.compile(r"\d{1,13}", re.ASCII)


@click.command(epilog=_EPILOG)
@named_feed_options
@click.option("--archive", metavar="URL", help="s3://BUCKET/PREFIX or a folder.")
@click.option("--table", required=True, metavar="FOLDER", help="Folder of the tables.")
@click.option(
    "--until",
    metavar="PAGE|AGE",
    help="Last page to compact, or minimum age of parts to compact, such as 30d.",
)
@click.option("--drop-changes", is_flag=True, help="Also remove changes, which have no object.")
@click.option("--dry-run", is_flag=True, help="Print the plan and change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one line of JSON.")
def compact(
    named: NamedFeed, archive: str | None, table: str, as_json: bool, **options: Any
) -> None:
    """Compact parts that all consumers have read.

    A part is compacted only if the table `history` contains all its operations. Of the operations
    of an object in these parts, only the last one is kept. The last part of the archive is never
    changed. Parts are kept until the consumers of the feed read them. If the command is killed, run
    it again.

    \b
    Examples:
      tidings archive compact --archive ./feed --table lake --url http://HOST:8042
      tidings archive compact --stage prod --table lake
      tidings archive compact --archive s3://parts/prod --table lake --until 90d
    """
    _check_last_page(named, options["until"])
    with working(silent=as_json) as work:
        dynamodb = dynamodb_of(named.feed, named.stage, named.endpoint_url)
        last_page = _last_page(dynamodb, named)
        compaction_options = _compaction_options(options, last_page)
        key = dynamodb.feed if dynamodb else named.feed
        found = archive or archive_of(dynamodb)
        if not found:
            raise click.UsageError("give --archive, or a --stage that has an archive")
        report = _compact(work, key, address(found), table, compaction_options)
    click.echo(json.dumps(asdict(report)) if as_json else _summary(report))


def _check_last_page(named: NamedFeed, until: str | None) -> None:
    if not named.is_given and not until:
        raise click.UsageError(
            "name the feed with --url, --stage or --endpoint-url, so that no part is compacted"
            " before all consumers have read it; or give --until"
        )
    if until and not (_AGE.fullmatch(until) or _PAGE.fullmatch(until)):
        raise click.UsageError(f"--until {until!r}: must be a page, or an age such as 12h or 30d")


def _last_page(dynamodb: DynamoDBFeed | None, named: NamedFeed) -> int | None:
    """Return the last page that may be compacted; None if no feed is named."""
    from tidings.lake.status import bound_in_tables, bound_over_http

    if dynamodb is not None:
        return bound_in_tables(dynamodb)
    return bound_over_http(named.url, named.feed, named.password) if named.is_given else None


def _compact(
    work: Work, feed: str, archive: str, table: str, compaction_options: CompactionOptions
) -> Report:
    from tidings.lake.compaction import Archive, Job, opener
    from tidings.lake.warehouse import in_folder

    parts, warehouse = Archive(feed, opener(archive)), in_folder(table)
    few = len(parts.spans()) <= _FEW_PARTS
    with work.spark(few=few) as spark:
        return Job(spark, parts, warehouse, compaction_options, work.phases.begin).run()


def _compaction_options(options: dict[str, Any], bound: int | None) -> CompactionOptions:
    from tidings.aws.effects import now_ms
    from tidings.lake.compaction import CompactionOptions

    until = options["until"] or ""
    age = _AGE.fullmatch(until)
    pages = [
        page for page in (bound, int(until) if until and not age else None) if page is not None
    ]
    return CompactionOptions(
        min(pages, default=None),
        now_ms() - int(age[1]) * _UNIT_MS[age[2]] if age else None,
        not options["drop_changes"],
        options["dry_run"],
    )


def _summary(report: Report) -> str:
    counts = {
        "history reaches page": report.through,
        "compacted up to page": report.bound,
        "operations in those parts": report.operations,
        "operations left": report.left,
        "parts written": report.written,
        "parts removed": report.removed,
    }
    lines = labelled(((name, f"{count:>12,}") for name, count in counts.items()), 26)
    return f"{report.feed}: {report.parts:,} parts\n{lines}"


SHOWN_MAX = 1_000  # rows of a result that are shown as a table; --json prints all rows
# The default interval between batches. A shorter interval would be expensive: each batch takes a
# second or two to commit, and adds small files that have to be compacted later.
EVERY_S = 60
EVERY_S_MAX = 24 * 3600  # a scheduled job is cheaper for a longer interval
_columns_option = click.option(
    "--columns",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="JSON file with the types that get tables, and their columns.",
)
_folder_option = click.option(
    "--table", required=True, metavar="FOLDER", help="Folder of the tables; created if missing."
)


@click.command(epilog=_EPILOG)
@_folder_option
@click.option("--archive", metavar="URL", help="s3://BUCKET/PREFIX or a folder, with older pages.")
@_columns_option
@click.option("--once", is_flag=True, help="Stop at the end that the feed has now.")
@click.option(
    "--every",
    default=EVERY_S,
    show_default=True,
    type=click.IntRange(1, EVERY_S_MAX),
    metavar="SECONDS",
    help="Interval between batches.",
)
@click.option(
    "--allow-gaps", is_flag=True, help="Use the state in place of pages that the log lost."
)
@lineage_option
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each batch.")
@named_feed_options
def follow(
    named: NamedFeed,
    table: str,
    archive: str | None,
    columns: Path | None,
    once: bool,
    every: int,
    allow_gaps: bool,
    lineage: bool,
    as_json: bool,
) -> None:
    """Update the tables of a feed regularly.

    The table `history` gets every operation, and `latest` the last operation of each object. Each
    type in --columns gets a table of its objects. A table contains each batch completely or not at
    all. If the command is killed, run it again; it continues where the tables end.

    \b
    Examples:
      tidings tables follow --table lake --once
      tidings tables follow --table lake --stage prod --every 300
      tidings tables follow --table lake --columns columns.json --json
    """
    from tidings.lake.columns import from_file
    from tidings.lake.warehouse import in_folder

    unblock("stdout", waits=True)  # a full pipe of reports must not stop the tables
    with working(silent=as_json) as work:
        schemas = from_file(columns) if columns else {}
        warehouse, source, feed = in_folder(table), _source(named, archive), key_of(named)
        wanted = Lineage.of(named, source, warehouse, schemas, once=once) if lineage else None
        with (
            alone(warehouse, feed),
            report_run(wanted) as run_report,
            work.spark(few=once) as spark,
        ):
            from tidings.lake.feed_tables import FeedTables
            from tidings.lake.follow import Follower

            session = warehouse.session(spark)
            tables = FeedTables(session, warehouse, feed, schemas, work.phases.begin)
            run_report.tables = tables

            def show_batch(batch: Batch) -> None:
                click.echo(json.dumps(asdict(batch)) if as_json else _as_text(batch))
                run_report.went_on()

            follower = Follower(tables, source, 0 if once else every, allow_gaps, show_batch)
            stop_on_signals(follower.stop)  # must come after Spark has installed its own handler
            follower.run(once=once)


def _source(named: NamedFeed, archive: str | None) -> Source:
    from tidings.lake.follow import Source

    given = {
        "feed": named.feed,
        "url": named.url,
        "password": named.password if named.url else "",
        "stage": named.stage,
        "endpoint": named.endpoint_url,
    }
    if not named.url:
        dynamodb = dynamodb_of(named.feed, named.stage, named.endpoint_url)
        archive = archive or archive_of(dynamodb)
    elif archive:
        raise click.UsageError("--archive requires --stage or --endpoint-url, not --url")
    given["archive"] = address(archive) if archive else ""
    return Source({name: value for name, value in given.items() if value})


def _as_text(batch: Batch) -> str:
    left = sum(batch.left.values())
    more = f"; {left:,} objects have data that do not fit their columns" if left else ""
    for name, reason in batch.failed.items():
        more += f"; the table of {name} is not updated any more: {printable(reason)}"
    counted = f"{batch.operations:,} operations in {batch.seconds:.1f} s"
    return f"page {batch.page:,}: {counted}{more}"


@click.command(epilog=EXIT_CODES)
@click.option("--table", metavar="FOLDER", help="Folder of the tables; else those of --stage.")
@click.option("--json", "as_json", is_flag=True, help="Print the status as one line of JSON.")
@named_feed_options
def status(named: NamedFeed, table: str | None, as_json: bool) -> None:
    """Show the lag of the tables of a feed: in pages, in operations and in time.

    \b
    Examples:
      tidings tables status --table lake
      tidings tables status --stage prod --json
    """
    from tidings.aws.effects import now_ms
    from tidings.lake import status as statuses
    from tidings.lake.warehouse import in_folder, of_stage

    if not table and not named.stage:
        raise click.UsageError("give the folder of the tables with --table, or give a --stage")
    with working(silent=True):
        warehouse = in_folder(table) if table else of_stage(named.stage)
        backend = _source(named, None).backend()
        end, found = statuses.status(warehouse, key_of(named), backend, now_ms())
    if as_json:
        fields = {"feed": named.feed, "end": end.encode(), "page": end.page}
        click.echo(json.dumps(fields | {"tables": [asdict(each) for each in found]}))
    else:
        show(_lags(f"{named.feed} ends with page {end.page:,}", found))


def _lags(title: str, found: Sequence[TableStatus]) -> Table:
    from rich.table import Table

    table = Table(title=title)
    for name in ("table", "page", "pages behind", "operations", "time", "rows", "files", "MB"):
        is_name = name == "table"  # long names are wrapped, not cut off
        table.add_column(name, justify="left" if is_name else "right", overflow="fold")
    for each in found:
        lag = each.lag
        lag_cells = ["?"] * 3
        if lag is not None:
            more = "+" if lag.more else ""
            lag_cells = [f"{lag.pages:,}", f"{lag.operations:,}{more}", f"{lag.seconds:,.0f} s"]
        page = "?" if each.page is None else f"{each.page:,}"
        size = f"{each.bytes / 1e6:,.1f}"
        table.add_row(each.table, page, *lag_cells, f"{each.rows:,}", f"{each.files:,}", size)
    return table


@click.command(epilog=EXIT_CODES)
@click.argument("sql")
@feed_option
@click.option(
    "--table",
    required=True,
    metavar="FOLDER",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of the tables.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each row.")
def query(sql: str, feed: str, table: Path, as_json: bool) -> None:
    """Query the tables of a feed in Spark's SQL.

    The tables are `history` and `latest`. The table of a type has the name of the type.

    \b
    Examples:
      tidings tables query "SELECT count(*) FROM history" --table lake
      tidings tables query "SELECT title FROM video" --table lake --json
    """
    from tidings.lake.warehouse import in_folder

    with working(silent=as_json) as work:
        from pyspark.sql.functions import struct, to_json

        from tidings.lake.status import run_query, size_of
        from tidings.sync.spark_session import SMALL_BYTES

        warehouse = in_folder(str(table))
        with work.spark(few=size_of(warehouse) <= SMALL_BYTES) as spark:
            work.phases.begin("running the query")
            answer = run_query(spark, warehouse, feed, sql)
            if as_json:
                for row in answer.select(to_json(struct("*"))).toLocalIterator():
                    click.echo(row[0])
                return
            rows, columns = answer.limit(SHOWN_MAX).collect(), answer.columns
    show(_answer(columns, rows))


def _answer(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns)
    for row in rows:
        table.add_row(*(Text("null" if each is None else printable(str(each))) for each in row))
    return table

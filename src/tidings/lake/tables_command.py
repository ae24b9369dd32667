"""`tidings tables follow`, `status` and `query`: a feed as Iceberg tables, on this machine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidings.client.cli.main import EXIT_CODES
from tidings.client.cli.options import NamedFeed, feed_option, named_feed_options
from tidings.client.cli.render import plain, show
from tidings.client.retries import stop_on_signals
from tidings.lake.lineage import Lineage, told
from tidings.lake.local_run import STOPPED, address, alone, archive_of, place_of, working
from tidings.lineage.option import lineage_option

if TYPE_CHECKING:
    from rich.table import Table

    from tidings.lake.follow import Batch, Source
    from tidings.lake.status import TableStatus

SHOWN_MAX = 1_000  # rows of an answer; for more, use JSON
EVERY_S = 60  # a commit takes a second or two, and its files must be compacted later
EVERY_S_MAX = 24 * 3600  # above a day, a scheduled job is cheaper
_EPILOG = f"{EXIT_CODES[:-1]}, {STOPPED} stopped by a guard."

_columns_option = click.option(
    "--columns",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="JSON: of which types there are tables, and their columns.",
)
_folder_option = click.option(
    "--table", required=True, metavar="FOLDER", help="Where the tables are, or will be."
)


@click.command(epilog=_EPILOG)
@_folder_option
@click.option("--archive", metavar="URL", help="s3://BUCKET/PREFIX or a folder, for older pages.")
@_columns_option
@click.option("--once", is_flag=True, help="End where the feed ends now.")
@click.option(
    "--every",
    default=EVERY_S,
    show_default=True,
    type=click.IntRange(1, EVERY_S_MAX),
    metavar="SECONDS",
    help="How long a batch gathers.",
)
@click.option("--allow-gaps", is_flag=True, help="Go on with what is left of a log that was lost.")
@lineage_option
@click.option("--json", "as_json", is_flag=True, help="A line of JSON for each batch.")
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
    """
    Keep the tables of a feed minutes behind it.

    Every operation goes into the table `history`, the last one of each object into `latest`, and
    the objects of the types in --columns into tables of their own. A batch is in a table whole or
    not at all. Killed at any moment, it may be run again, and goes on where the tables are.

    \b
    Examples:
      tidings tables follow --table lake --once
      tidings tables follow --table lake --stage prod --every 300
      tidings tables follow --table lake --columns columns.json --json
    """
    from tidings.lake.columns import from_file
    from tidings.lake.warehouse import in_folder

    with working(silent=as_json) as work:
        schemas = from_file(columns) if columns else {}
        warehouse, source = in_folder(table), _source(named, archive)
        wanted = Lineage.of(named, source, warehouse, schemas, once=once) if lineage else None
        with (
            alone(warehouse, named.feed),
            told(wanted) as telling,
            work.spark(few=once) as spark,
        ):
            from tidings.lake.feed_tables import FeedTables
            from tidings.lake.follow import Follower

            session = warehouse.session(spark)
            tables = FeedTables(session, warehouse, named.feed, schemas, work.phases.begin)
            telling.tables = tables

            def shown(batch: Batch) -> None:
                (_as_json if as_json else _as_text)(batch)
                telling.went_on()

            follower = Follower(tables, source, 0 if once else every, allow_gaps, shown)
            stop_on_signals(follower.stop)  # after Spark has installed its own handler
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
        place = place_of(named.feed, named.stage, named.endpoint_url)
        archive = archive or archive_of(place)
    elif archive:
        raise click.UsageError("--archive is read beside --stage or --endpoint-url, not --url")
    given["archive"] = address(archive) if archive else ""
    return Source({name: value for name, value in given.items() if value})


def _as_json(batch: Batch) -> None:
    click.echo(json.dumps(asdict(batch)))


def _as_text(batch: Batch) -> None:
    left = sum(batch.left.values())
    more = f"; {left:,} objects keep data that their columns do not say" if left else ""
    for name, reason in batch.failed.items():
        more += f"; the table of {name} is left out: {plain(reason)}"
    counted = f"{batch.operations:,} operations in {batch.seconds:.1f} s"
    click.echo(f"page {batch.page:,}: {counted}{more}")


@click.command(epilog=EXIT_CODES)
@click.option("--table", metavar="FOLDER", help="Where the tables are, if not in Glue.")
@click.option("--json", "as_json", is_flag=True, help="The answer as JSON, one line.")
@named_feed_options
def status(named: NamedFeed, table: str | None, as_json: bool) -> None:
    """
    Show how far the tables of a feed are behind it: in pages, in operations and in time.

    \b
    Examples:
      tidings tables status --table lake
      tidings tables status --stage prod --json
    """
    from tidings.aws.effects import now_ms
    from tidings.lake import status as statuses
    from tidings.lake.warehouse import in_folder, of_stage

    if not table and not named.stage:
        raise click.UsageError("name the folder of the tables by --table, or a --stage")
    with working(silent=True):
        warehouse = in_folder(table) if table else of_stage(named.stage)
        backend = _source(named, None).backend()
        end, found = statuses.status(warehouse, named.feed, backend, now_ms())
    if as_json:
        shown = {"feed": named.feed, "end": end.encode(), "page": end.page}
        click.echo(json.dumps(shown | {"tables": [asdict(each) for each in found]}))
    else:
        show(_lags(f"{named.feed} ends with page {end.page:,}", found))


def _lags(title: str, found: Sequence[TableStatus]) -> Table:
    from rich.table import Table

    shown = Table(title=title)
    for name in ("table", "page", "pages behind", "operations", "for", "rows", "files", "MB"):
        is_name = name == "table"  # wrap names instead of truncating
        shown.add_column(name, justify="left" if is_name else "right", overflow="fold")
    for each in found:
        lag = each.lag
        behind = ["?"] * 3
        if lag is not None:
            more = "+" if lag.more else ""
            behind = [f"{lag.pages:,}", f"{lag.operations:,}{more}", f"{lag.seconds:,.0f} s"]
        page = "?" if each.page is None else f"{each.page:,}"
        size = f"{each.bytes / 1e6:,.1f}"
        shown.add_row(each.table, page, *behind, f"{each.rows:,}", f"{each.files:,}", size)
    return shown


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
    Ask the tables of a feed, `history`, `latest` and each type's by its name, in Spark's SQL.

    \b
    Examples:
      tidings tables query "SELECT event, count(*) FROM history GROUP BY event" --table lake
      tidings tables query "SELECT title FROM video WHERE views > 9" --table lake --json
    """
    from tidings.lake.warehouse import in_folder

    with working(silent=as_json) as work:
        from pyspark.sql.functions import struct, to_json

        from tidings.lake.query import run_query, size_of
        from tidings.sync.engines.spark_session import SMALL_BYTES

        warehouse = in_folder(str(table))
        with work.spark(few=size_of(warehouse) <= SMALL_BYTES) as spark:
            work.phases.begin("asking")
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

    shown = Table(*columns)
    for row in rows:
        shown.add_row(*(Text("null" if each is None else plain(str(each))) for each in row))
    return shown

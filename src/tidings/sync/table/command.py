"""`tidings sync table`: make a feed agree with a table while others write to it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidings.aws.effects import now_ms, sleep_ms
from tidings.client.cli import render
from tidings.client.cli.main import EXIT_CODES
from tidings.client.cli.options import NamedFeed, named_feed_options
from tidings.core.sync.live import Compare
from tidings.lineage.runs import lineage_option
from tidings.sync import apply
from tidings.sync.lineage import Lineage, told
from tidings.sync.named import delete_share_option, opened, refusals
from tidings.sync.progress import Phases
from tidings.sync.table.progress import IN_MEMORY, Progress, Standing, WrongProgress

if TYPE_CHECKING:
    from tidings.sync.feed import Feed
    from tidings.sync.table.postgres import Mapping, PostgresTable
    from tidings.sync.table.run import TableSync

STOPPED, LAGS = 3, 4
CHUNK, CHUNK_MAX = 1_000, 10_000  # rows: milliseconds per query; seconds, and about 10 MB
GRACE_S = 60.0  # posting from an outbox takes much less; a longer grace only delays
_EPILOG = (
    f"{EXIT_CODES[:-1]}, {STOPPED} stopped by a guard, {LAGS} all is done and in the log, but the"
    " state does not follow."
)
_SHOWN = ("rows", "objects", "creates", "updates", "deletes", "settled", "restless")
_APPLIED = ("applied", "moved", "done")


@click.command("table", epilog=_EPILOG)
@click.argument("dsn")
@click.argument("table")
@named_feed_options
@click.option(
    "--type", "kind", default="", metavar="TYPE", help="Of the objects.  [default: its name]"
)
@click.option("--key", default="", metavar="A,B", help="Columns of the id.  [default: primary key]")
@click.option("--changed", default="", metavar="COLUMN", help="When a row changed: newer updates.")
@click.option("--parents", default="", metavar="COLUMN", help="An array of the parents.")
@click.option("--with-data", is_flag=True, help="All columns are the data of the object.")
@click.option("--no-deletes", is_flag=True, help="Delete nothing.")
@click.option(
    "--grace",
    type=click.FloatRange(0),
    default=GRACE_S,
    show_default=True,
    metavar="SECONDS",
    help="A change is posted at most so long before or after its commit.",
)
@click.option(
    "--chunk",
    type=click.IntRange(1, CHUNK_MAX),
    default=CHUNK,
    show_default=True,
    help="Rows of one query.",
)
@click.option("--rate", type=click.IntRange(1), default=None, help="At most so many rows a second.")
@delete_share_option
@click.option(
    "--progress",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Keep in this file how far it is, and go on from there.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@lineage_option
@click.option("--json", "as_json", is_flag=True, help="What was done as one line of JSON.")
@click.pass_context
def table(ctx: click.Context, /, dsn: str, table: str, named: NamedFeed, **wishes: Any) -> None:
    """
    Make a feed agree with TABLE of the PostgreSQL at DSN, while others write to both.

    Nothing is locked and nothing is exported: rows are read in chunks of the key. What differs is
    looked at again after the grace, and corrected if it is the same and the object has not changed
    in the feed meanwhile. What the feed lacks is inserted, what has no row is deleted; with
    --changed what is newer is updated, with --with-data alone what says something else.

    \b
    Examples:
      tidings sync table postgresql:///app videos --type video --changed updated_at --dry-run
      tidings sync table postgresql:///app videos --with-data --rate 2000 --progress videos.sync
    """
    if wishes["dry_run"] and wishes["progress"]:
        raise click.UsageError("--dry-run does nothing that could be gone on with: no --progress")
    if find_spec("psycopg") is None:
        extra = "pip install 'tidings[flow]'"
        raise click.ClickException(
            f"`tidings sync table` needs psycopg, not installed here; install the extra: {extra}"
        )
    feed = opened(named)
    with _failures(), closing(_table(dsn, table, wishes)) as source:
        what = _what(named, source, wishes)
        with closing(Progress(wishes["progress"] or IN_MEMORY, what)) as progress:
            dry_run = wishes["dry_run"]
            lineage = Lineage.of(named, source.dataset(), dry_run) if wishes["lineage"] else None
            with _shown(ctx, progress, wishes["as_json"]), told(lineage, progress.counts):
                _run(feed, source, progress, wishes)


def _run(feed: Feed, source: PostgresTable, progress: Progress, wishes: dict[str, Any]) -> None:
    with Phases(silent=wishes["as_json"]) as phases:
        _made(feed, source, progress, wishes, phases).run()
        if progress.standing.applied:
            phases.begin("waiting for the state")
            apply.through(feed)


@contextmanager
def _shown(ctx: click.Context, progress: Progress, as_json: bool) -> Iterator[None]:
    """Print the result after success or failure; a guard that stops the sync has an exit code."""
    from tidings.sync.table.run import Stopped

    try:
        yield
    except Stopped as stopped:
        _show(progress.standing, as_json, stopped=stopped.objection.code)
        click.echo(f"Stopped: {stopped.objection.sentence}.", err=True)
        ctx.exit(STOPPED)
    except apply.NotFollowing as error:
        _show(progress.standing, as_json, failed=str(error))
        click.echo(f"Error: all is done, but {error}", err=True)
        ctx.exit(LAGS)
    except BaseException as error:
        _show(progress.standing, as_json, failed=str(error) or type(error).__name__)
        raise
    _show(progress.standing, as_json)


def _made(
    feed: Feed,
    source: PostgresTable,
    progress: Progress,
    wishes: dict[str, Any],
    phases: Phases,
) -> TableSync:
    from tidings.sync.table.run import TableSync, Time, Wishes

    wanted = Wishes(
        _compare(wishes),
        round(1000 * wishes["grace"]),
        wishes["chunk"],
        wishes["rate"] or 0,
        not wishes["no_deletes"],
        wishes["max_delete_share"],
        wishes["dry_run"],
    )
    passing = Time(now_ms, lambda: time.monotonic_ns() // 1_000_000, sleep_ms)
    return TableSync(feed, source, wanted, progress, passing, phases.begin, phases.advance)


def _compare(wishes: dict[str, Any]) -> Compare:
    if wishes["changed"]:
        return Compare.TIME
    return Compare.CONTENT if wishes["with_data"] else Compare.PRESENCE


def _table(dsn: str, table: str, wishes: dict[str, Any]) -> PostgresTable:
    from tidings.sync.table.postgres import PostgresTable

    return PostgresTable(dsn, table, _mapping(wishes))


def _mapping(wishes: dict[str, Any]) -> Mapping:
    from tidings.sync.table.postgres import Mapping

    key = tuple(name.strip() for name in wishes["key"].split(",") if name.strip())
    columns = wishes["changed"], wishes["parents"], wishes["with_data"]
    return Mapping(wishes["kind"], key, *columns)


def _what(named: NamedFeed, source: PostgresTable, wishes: dict[str, Any]) -> dict[str, Any]:
    """Return the identity of a sync; its progress cannot be used by one with other options."""
    where = named.url or named.stage or named.endpoint_url
    same = ("key", "changed", "parents", "with_data", "no_deletes")
    return {"feed": named.feed, "where": where, "table": str(source), "type": source.type} | {
        name: wishes[name] for name in same
    }


def _show(standing: Standing, as_json: bool, **ended: str) -> None:
    counts = {name: getattr(standing, name) for name in (*_SHOWN, *_APPLIED)}
    if as_json:
        click.echo(json.dumps(counts | ended))
        return
    render.show(render.table(("", "count"), [{"": k, "count": n} for k, n in counts.items()]))


@contextmanager
def _failures() -> Iterator[None]:
    """Convert an error of the table, the feed or the progress to one sentence and exit code 1."""
    import psycopg

    from tidings.sync.table.postgres import BadTable
    from tidings.sync.table.run import BrokenRow

    try:
        with refusals():
            yield
    except psycopg.Error as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise click.ClickException(f"the database: {reason}") from None
    except (BadTable, BrokenRow, WrongProgress) as error:
        raise click.ClickException(str(error)) from None

"""`tidings archive compact`, on this machine's Spark."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
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
from tidings.client.cli.render import show
from tidings.lake.local_run import STOPPED, Work, address, archive_of, place_of, working

if TYPE_CHECKING:
    from rich.table import Table

    from tidings.lake.job import Report, Wishes
    from tidings.sync.target import Place

_FEW_PARTS = 16  # up to this number, starting Spark takes longer than the work
_EPILOG = f"{EXIT_CODES[:-1]}, {STOPPED} stopped by a guard."
_AGE = re.compile(r"(\d{1,6})([smhd])", re.ASCII)
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PAGE = re.compile(r"\d{1,13}", re.ASCII)


@click.command(epilog=_EPILOG)
@feed_option
@click.option("--archive", metavar="URL", help="s3://BUCKET/PREFIX or a folder.")
@click.option("--table", required=True, metavar="FOLDER", help="Where the tables are.")
@click.option("--url", help="Where the feed is: its consumers bound what is compacted.")
@stage_option
@endpoint_option
@click.option("--until", metavar="PAGE|AGE", help="Compact up to this page, or what is older: 30d.")
@click.option("--drop-changes", is_flag=True, help="Also of what has no object leave nothing.")
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
    Compact what everybody has read of an archive, and the table `history` keeps.

    Of the parts that every consumer has handled, and `tidings tables follow` has put into the
    table, the last operation of each object is left. The last part is never touched. Killed at any
    moment, it may be run again.

    \b
    Examples:
      tidings archive compact --archive ./feed --table lake --url http://127.0.0.1:8042
      tidings archive compact --stage prod --table lake
      tidings archive compact --archive s3://parts/prod --table lake --until 90d --dry-run
    """
    _check(options)
    with working(silent=as_json) as work:
        place = place_of(feed, options["stage"], options["endpoint_url"])
        wishes = _wishes(options, _bound(place, feed, options))
        report = _compacted(work, feed, _archive(archive, place), table, wishes)
    if as_json:
        click.echo(json.dumps(asdict(report)))
    else:
        show(_summary(report))


def _check(options: dict[str, Any]) -> None:
    named = [options[name] for name in ("url", "stage", "endpoint_url") if options[name]]
    check_once(*named)
    if not named and not options["until"]:
        raise click.UsageError(
            "name the feed by --url, --stage or --endpoint-url, so that nothing is compacted that"
            " a consumer has not read; or say --until"
        )
    until = options["until"]
    if until and not (_AGE.fullmatch(until) or _PAGE.fullmatch(until)):
        raise click.UsageError(f"--until {until!r}: must be a page, or an age such as 12h or 30d")


def _bound(place: Place | None, feed: str, options: dict[str, Any]) -> int | None:
    """Return the last page that may be compacted; None if no feed is named."""
    from tidings.lake import consumer_bounds

    if place is not None:
        return consumer_bounds.in_tables(place)
    if options["url"]:
        return consumer_bounds.over_http(options["url"], feed, options["password"])
    return None


def _archive(archive: str | None, place: Place | None) -> str:
    found = archive or archive_of(place)
    if not found:
        raise click.UsageError("name the archive by --archive, or a --stage that has one")
    return address(found)


def _compacted(work: Work, feed: str, archive: str, table: str, wishes: Wishes) -> Report:
    from tidings.lake.job import Job
    from tidings.lake.parts import Archive, opener
    from tidings.lake.warehouse import in_folder

    parts, warehouse = Archive(feed, opener(archive)), in_folder(table)
    few = len(parts.spans()) <= _FEW_PARTS
    with work.spark(few=few) as spark:
        return Job(spark, parts, warehouse, wishes, work.phases.begin).run()


def _wishes(options: dict[str, Any], bound: int | None) -> Wishes:
    from tidings.aws.effects import now_ms
    from tidings.lake.job import Wishes

    until = options["until"] or ""
    age = _AGE.fullmatch(until)
    pages = [
        page for page in (bound, int(until) if until and not age else None) if page is not None
    ]
    return Wishes(
        min(pages, default=None),
        now_ms() - int(age[1]) * _UNIT_MS[age[2]] if age else None,
        not options["drop_changes"],
        options["dry_run"],
    )


def _summary(report: Report) -> Table:
    from rich.table import Table

    shown = Table(title=f"{report.feed}: {report.parts:,} parts", show_header=False)
    shown.add_column()
    shown.add_column(justify="right")
    rows = {
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

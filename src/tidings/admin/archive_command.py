"""`tidings archive status` and `show`: inspect the archive of a feed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidings.admin.state_target import StateTarget
from tidings.admin.state_target import find as find_tables
from tidings.admin.target import one_sentence_errors
from tidings.aws.archives import open_archive
from tidings.aws.effects import now_ms
from tidings.client.cli import options
from tidings.client.cli.main import EXIT_CODES
from tidings.client.cli.options import Command, Given
from tidings.client.cli.render import compact, describe_entry
from tidings.core.archive.reader import ArchiveReader, all_spans, holes
from tidings.core.effects import discard_count
from tidings.core.errors import InvalidCursor, parse_integer
from tidings.core.model.cursors import prefix
from tidings.core.model.events import of_line
from tidings.core.model.feeds import ARCHIVE, check_name, public_name
from tidings.core.model.operations import decode
from tidings.core.model.pages import Page
from tidings.http.outbound.folder_archive import FolderArchive
from tidings.http.settings import WrongArchive

if TYPE_CHECKING:
    from tidings.aws.s3 import S3Archive

PAGE_MAX = 2**40 - 1  # the largest page number that an id can contain


@dataclass(frozen=True, slots=True)
class ArchiveTarget:
    """The archive of the feed with the key *feed* at *url*.

    *tables* is None if a stage and an endpoint are missing.
    """

    feed: str
    url: str
    store: S3Archive | FolderArchive
    tables: StateTarget | None


def _find(given: Given, others: Given) -> Given:
    """Return the archive of the feed with the name or, without its tables, the key --feed.

    Raises:
        UsageError: the location of the archive is unknown.
        NoStage, UnknownFeed: the stage or the feed does not exist.
    """
    feed, stage, endpoint_url = given["feed"], given["stage"], given["endpoint_url"]
    if stage and endpoint_url:
        raise click.UsageError("name the feed once: by --stage or --endpoint-url")
    check_name(public_name(feed))
    tables = find_tables(feed, stage, endpoint_url) if stage or endpoint_url else None
    url = url_of(given["archive"] or "", tables)
    key = tables.feed if tables else feed
    return {"target": ArchiveTarget(key, url, store_at(url), tables)}


def url_of(named: str, tables: StateTarget | None) -> str:
    """Return the URL of the archive: *named*, or the stage's archive if *named* is empty.

    *named* may be a URL or the path of a folder.

    Raises:
        UsageError: *named* is empty, and no stage with an archive is known.
    """
    url = named or (tables.settings.archive if tables else "")
    if not url:
        raise click.UsageError(
            "name a --stage that has an archive, or give the archive's address with --archive"
        )
    return url if "://" in url else Path(url).resolve().as_uri()


def store_at(url: str) -> S3Archive | FolderArchive:
    """Return the archive at *url*.

    Raises:
        UsageError: *url* cannot be an archive.
    """
    from boto3 import client  # noqa: TID251 (the credentials of the operator, not of a function)

    try:
        return open_archive(url, lambda: client("s3"))
    except WrongArchive as error:
        raise click.UsageError(f"--archive {error}") from None


def look(target: ArchiveTarget) -> dict[str, Any]:
    """Return the content of an archive, and the lag of its follower if the tables are known.

    *gaps* are the ranges of missing pages, each by first and last. The lag is that after
    *checkpoint*, the last archived page; *floor* is the first page of the log.
    """
    spans = list(all_spans(target.store, target.feed))
    return {
        "feed": public_name(target.feed),
        "archive": target.url,
        "parts": len(spans),
        "bytes": target.store.size(target.feed),
        "first": min((span.first for span in spans), default=None),
        "last": max((span.last for span in spans), default=None),
        "gaps": holes(spans),
        "lag": _lag(target.feed, target.tables) if target.tables else None,
    }


def _lag(feed: str, tables: StateTarget) -> dict[str, int]:
    checkpoint = tables.stores.followers.checkpoints(feed).get(ARCHIVE, 0)
    log = tables.stores.log
    waiting = log.read(feed, checkpoint, 1)
    ms = max(0, now_ms() - waiting[0].at_ms) if waiting else 0
    behind = {"checkpoint": checkpoint, "pages": log.head(feed) - checkpoint, "ms": ms}
    return {**behind, "floor": log.floor(feed)}


def _as_lines(status: Mapping[str, Any]) -> Iterator[str]:
    yield f"{status['feed']} in {status['archive']}"
    first, last, lag = status["first"], status["last"], status["lag"]
    reach = "" if first is None else f", pages {first:,} to {last:,}"
    yield f"  {status['parts']:,} parts of {status['bytes']:,} bytes{reach}"
    for first, last in status["gaps"]:
        yield f"  missing: pages {first:,} to {last:,}"
    if lag is not None:
        behind = f"{lag['pages']:,} pages behind, {lag['ms'] / 1000:,.0f} s"
        yield f"  the follower is at page {lag['checkpoint']:,}, {behind}"
        yield f"  the log begins with page {lag['floor']:,}"


def pages(target: ArchiveTarget, first: int, last: int) -> Iterator[Page]:
    """Yield the archived pages from *first* to *last*; end at the first missing page."""
    reader = ArchiveReader(target.store, discard_count)
    while first <= last and (batch := reader.read(target.feed, first - 1, last)):
        yield from batch
        first = batch[-1].number + 1


def archive_options(command: Command) -> Command:
    """Add --feed, --stage, --endpoint-url and --archive to a command, which receives *target*."""
    archive = click.option(
        "--archive",
        metavar="URL|FOLDER",
        help="Address of the archive.  [default: the archive of the stage]",
    )
    places = (options.feed_option, options.stage_option, options.endpoint_option)
    return one_sentence_errors()(options.adding(_find, *places, archive)(command))


@click.command(epilog=EXIT_CODES)
@archive_options
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
def status(target: ArchiveTarget, as_json: bool) -> None:
    """Show the parts of the archive, and the progress of its follower.

    The follower is only shown if --stage or --endpoint-url is given.

    \b
    Examples:
      tidings archive status --stage prod
      tidings archive status --archive ./feed
    """
    report = look(target)
    click.echo(json.dumps(report) if as_json else "\n".join(_as_lines(report)))


@click.command(epilog=EXIT_CODES)
@click.argument("where", metavar="X[..Y]")
@archive_options
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each operation.")
def show(where: str, target: ArchiveTarget, as_json: bool) -> None:
    """Print the operations of page X, or of all pages from X to Y.

    X and Y are page numbers; the id of an operation selects the operation's page. Without Y
    (`X..`), the range extends to the end of the archive. If a page was compacted, its remaining
    operations are shown.

    \b
    Examples:
      tidings archive show 12..14 --stage prod
      tidings archive show 6553f100000000000c000003 --archive ./feed --json
    """
    first, dots, last = where.partition("..")
    begun = page_of(first)
    end = (page_of(last) if last else PAGE_MAX) if dots else begun
    seen = False
    for page in pages(target, begun, end):
        seen = True
        for entry in _entries(page):
            shown = compact(entry) if as_json else describe_entry(entry)
            click.echo(shown)
    if not seen:
        raise click.ClickException(f"page {begun} is not in the archive")


def _entries(page: Page) -> Iterator[dict[str, Any]]:
    """Yield the operations of *page* in the format of `tidings log show`."""
    for slot, line in page.entries():
        event = of_line(prefix(page.number, page.seconds), slot, line)
        head = {"id": event.id, "at_ms": page.at_ms, "event": event.name}
        yield {**head, "data": decode(event.data)}


def page_of(text: str) -> int:
    """Return the number of the page that *text* names by its number or by the id of an event.

    Raises:
        UsageError: *text* is neither.
    """
    from tidings.core.model.cursors import Place, parse

    with suppress(ValueError):
        return parse_integer(text, 0, 10 ** len(str(PAGE_MAX)) - 1)
    try:
        cursor = parse(text)
    except InvalidCursor:
        cursor = None
    if not isinstance(cursor, Place):
        raise click.UsageError(f"{text!r} is neither the number of a page nor the id of an event")
    return cursor.page

"""`tidings archive status` and `show`: inspect the archive of a feed."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import click

from tidings.admin.archive_target import ArchiveTarget, find, look, pages
from tidings.admin.target import one_sentence_errors
from tidings.client.cli.log import described
from tidings.client.cli.main import EXIT_CODES
from tidings.client.cli.options import (
    Command,
    check_once,
    endpoint_option,
    feed_option,
    stage_option,
)
from tidings.core.errors import InvalidCursor
from tidings.core.model.cursors import prefix
from tidings.core.model.events import of_line
from tidings.core.model.feeds import check_name
from tidings.core.model.numbers import whole
from tidings.core.model.pages import Page

PAGE_MAX = 2**40 - 1  # the largest page number that an id can contain


def archive_options(command: Command) -> Command:
    """Add --feed, --stage, --endpoint-url and --archive to a command, which receives *target*."""

    @functools.wraps(command)
    def with_target(
        feed: str,
        stage: str | None,
        endpoint_url: str | None,
        archive: str | None,
        **others: Any,
    ) -> None:
        check_once(stage, endpoint_url)
        with one_sentence_errors():
            command(target=find(check_name(feed), stage, endpoint_url, archive), **others)

    options = (
        feed_option,
        stage_option,
        endpoint_option,
        click.option("--archive", metavar="URL|FOLDER", help="Where it is, if not of the stage."),
    )
    for option in reversed(options):
        with_target = option(with_target)
    return with_target


@click.command(epilog=EXIT_CODES)
@archive_options
@click.option("--json", "as_json", is_flag=True, help="As one line of JSON.")
def status(target: ArchiveTarget, as_json: bool) -> None:
    """
    Show what there is of the archive, and how far its follower is.

    The follower is known by --stage or --endpoint-url.

    \b
    Examples:
      tidings archive status --stage prod
      tidings archive status --archive ./feed    of a twin that runs with --data ./feed
    """
    report = look(target)
    click.echo(json.dumps(report.as_json()) if as_json else "\n".join(report.as_lines()))


@click.command(epilog=EXIT_CODES)
@click.argument("where", metavar="X[..Y]")
@archive_options
@click.option("--json", "as_json", is_flag=True, help="A line of JSON an operation.")
def show(where: str, target: ArchiveTarget, as_json: bool) -> None:
    """
    Print the operations of page X, or of all pages from X to Y.

    X and Y are numbers of pages, or ids of operations, of which the page counts. Y left out
    (`X..`) is the end of the archive. Of a page that was compacted it shows what is left.

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
            shown = json.dumps(entry, separators=(",", ":")) if as_json else described(entry)
            click.echo(shown)
    if not seen:
        raise click.ClickException(f"page {begun} is not in the archive")


def _entries(page: Page) -> Iterator[dict[str, Any]]:
    """Yield the entries of *page* in the format of `tidings log show`."""
    for slot, line in page.entries():
        event = of_line(prefix(page.number, page.seconds), slot, line)
        head = {"id": event.id, "at_ms": page.at_ms, "event": event.name}
        yield {**head, "data": json.loads(event.data)}


def page_of(text: str) -> int:
    """
    Return the page given by its number or by the id of an event.

    Raises:
        UsageError: *text* is neither.
    """
    from tidings.core.model.cursors import Place, parse

    with suppress(ValueError):
        return whole(text, 0, 10 ** len(str(PAGE_MAX)) - 1)
    try:
        cursor = parse(text)
    except InvalidCursor:
        cursor = None
    if not isinstance(cursor, Place):
        raise click.UsageError(f"{text!r} is neither the number of a page nor the id of an event")
    return cursor.page

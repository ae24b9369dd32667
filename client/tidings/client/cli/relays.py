"""`tidings relays`: where the chained feeds of a deployment stand, and what to do about it."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

import click
from tidings.client.cli.main import EXIT_CODES
from tidings.client.cli.password_options import password_options
from tidings.client.cli.render import cell
from tidings.client.cli.stage_options import address_options
from tidings.client.errors import ClientError
from tidings.client.transport.feed_api import Answer, FeedApi

if TYPE_CHECKING:
    from rich.table import Table

EVERY_S = 2.0  # an election takes some seconds: what changes within one is no news to a person
_LIST = ("feed", "status", "role", "page", "lag_pages", "lag_ms", "upstream", "error")
_MEMBERS = ("address", "role", "page", "heard_ms_ago", "gone")
_ENDS = ("min", "max")
_APART = ("members", "copy", *_ENDS)  # shown each in a way of its own
_WELL = ("running", "master")
_NAME_CHARS = 21

Asking = Callable[[str], Any]


def _place(command: Callable[..., None]) -> Callable[..., None]:
    """Adds --url, --stage and the options of the password to a command, which is given *asking*."""

    @functools.wraps(command)
    def with_place(url: str, password: str, **others: Any) -> None:
        @contextmanager
        def asking(feed: str = "main") -> Iterator[FeedApi]:
            try:
                with FeedApi(url, feed, password=password) as api:
                    yield api
            except ClientError as error:
                raise click.ClickException(str(error)) from None

        command(asking=asking, **others)

    return address_options(password_options(with_place))


_json = click.option("--json", "as_json", is_flag=True, help="The answer as JSON, one line.")
_feed = click.argument("feed")


@click.group(epilog=EXIT_CODES)
def relays() -> None:
    """
    Show and steer the chained feeds of a deployment: those that copy another feed.

    \b
    Examples:
      tidings relays list --watch              all feeds, as they move
      tidings relays pause main                read nothing until it is resumed
      tidings relays reset main --to everything --why "restored from a backup"
      tidings relays password main secret.txt  what the upstream asks for
    """


@relays.command("list", epilog=EXIT_CODES)
@_json
@click.option("--watch", is_flag=True, help=f"Again every {EVERY_S:.0f} seconds, until Ctrl-C.")
@click.option("--check", is_flag=True, help="Exit with 1 unless every feed is running.")
@_place
def list_(as_json: bool, watch: bool, check: bool, asking: Asking) -> None:
    """Show every feed: whom it reads, in which role, and how far it is behind."""
    with asking("main") as api:
        if watch:
            _watch(api)
            return
        found = api.ask("GET", "/relays")["relays"]
    if as_json:
        _print_json(found)
    else:
        _print(_table(found))
    if check and any(each["status"] not in _WELL for each in found):
        click.get_current_context().exit(1)


@relays.command(epilog=EXIT_CODES)
@_feed
@_json
@_place
def show(feed: str, as_json: bool, asking: Asking) -> None:
    """Show everything that is known of one feed."""
    with asking(feed) as api:
        found = api.ask("GET", "relay")
    if as_json:
        _print_json(found)
    else:
        _describe(found)


@relays.command(epilog=EXIT_CODES)
@_feed
@_json
@_place
def members(feed: str, as_json: bool, asking: Asking) -> None:
    """Show the members of a feed's cluster, and which of them lead."""
    with asking(feed) as api:
        found = api.ask("GET", "relay").get("members", [])
    if found is None:
        raise click.ClickException("the table where leaders are elected does not answer")
    if as_json:
        _print_json(found)
    else:
        _print(_members(found))


@relays.command(epilog=EXIT_CODES)
@_feed
@_place
def pause(feed: str, asking: Asking) -> None:
    """Read nothing until it is resumed; a leader keeps its seat."""
    _act(asking, feed, "pause")


@relays.command(epilog=EXIT_CODES)
@_feed
@_place
def resume(feed: str, asking: Asking) -> None:
    """Let a paused feed go on where it stood."""
    _act(asking, feed, "resume")


@relays.command(epilog=EXIT_CODES)
@_feed
@_place
def shutdown(feed: str, asking: Asking) -> None:
    """Read nothing and lead nobody until it is started."""
    _act(asking, feed, "shutdown")


@relays.command(epilog=EXIT_CODES)
@_feed
@_place
def start(feed: str, asking: Asking) -> None:
    """Start one feed from its saved place: after a shutdown, or once what stopped it is mended."""
    _act(asking, feed, "start")


@relays.command(epilog=EXIT_CODES)
@_feed
@click.option(
    "--to",
    required=True,
    metavar="PLACE",
    help="everything (the upstream's state, then its log), latest (nothing but what comes)"
    " or the id of an event.",
)
@click.option("--why", required=True, metavar="TEXT", help="Why; it is kept.")
@_place
def reset(feed: str, to: str, why: str, asking: Asking) -> None:
    """Give up the log that is here and begin anew; who reads it is told, as of any lost log."""
    _act(asking, feed, "reset", {"to": to, "why": why})


@relays.command(epilog=EXIT_CODES)
@_feed
@click.argument("file", type=click.File("r"), default="-")
@_place
def password(feed: str, file: IO[str], asking: Asking) -> None:
    """
    Keep the password that the upstream asks for: the line in FILE, or of the input.

    An empty line takes it away. It is told to nobody.
    """
    line = file.readline().removesuffix("\n").removesuffix("\r")
    with asking(feed) as api:
        found = api.ask("PUT", "relay/password", body={"password": line})
    click.echo(f"{feed}: password {found['password']}")


def _act(asking: Asking, feed: str, action: str, fields: dict[str, str] | None = None) -> None:
    with asking(feed) as api:
        found = api.ask("POST", f"relay/{action}", body=fields or {})
    click.echo(f"{feed} is {found['status']} at page {found['page']:,}")


def _watch(api: FeedApi) -> None:
    from rich.live import Live

    try:
        with Live(auto_refresh=False) as live:
            while True:
                live.update(_table(api.ask("GET", "/relays")["relays"]), refresh=True)
                time.sleep(EVERY_S)
    except KeyboardInterrupt:  # how a watch ends
        return


def _table(found: list[Answer]) -> Table:
    return _rows(_LIST, [each | {"page": each.get("page", each["head"])} for each in found])


def _members(found: list[Answer]) -> Table:
    return _rows(_MEMBERS, found)


def _rows(columns: tuple[str, ...], found: list[Answer]) -> Table:
    from rich.table import Table

    table = Table(*columns)
    for each in found:
        table.add_row(*(cell(each.get(name, "")) for name in columns))
    return table


def _print(table: Table) -> None:
    from rich.console import Console

    Console(highlight=False).print(table)


def _describe(found: Answer) -> None:
    for name, value in found.items():
        if name not in _APART and value not in ("", [], None):
            click.echo(f"{name:<{_NAME_CHARS}} {cell(value)}")
    for name in _ENDS:
        if found.get(name):
            end = found[name]
            click.echo(f"{name:<{_NAME_CHARS}} {end['cursor']} of {end['time']}")
    if found.get("copy"):
        copy = found["copy"]
        click.echo(f"{'copied':<{_NAME_CHARS}} {copy['buckets_done']} of {copy['buckets']} buckets")
    for each in found.get("members") or ():
        said = f"{each['role']} at page {each['page']:,}" + (", gone" if each["gone"] else "")
        click.echo(f"{'member':<{_NAME_CHARS}} {cell(each['address'])}: {said}")


def _print_json(found: object) -> None:
    click.echo(json.dumps(found, separators=(",", ":")))

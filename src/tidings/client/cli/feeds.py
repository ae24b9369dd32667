"""`tidings feeds`: create, list, show and delete the feeds of a host while it runs."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from tidings.client.cli.main import EXIT_CODES
from tidings.client.cli.options import Access, access_of_argument, json_option
from tidings.client.cli.render import cell, compact, failures, printable, retrying
from tidings.client.cli.settings import settings_options, settings_rows
from tidings.client.errors import Refused
from tidings.client.retries import repeat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from rich.status import Status

    from tidings.client.feed_api import Answer
    from tidings.client.feeds import Feeds

ATTEMPTS = 5  # in half a minute, in which a server restarts
POLL_S = 1.0  # the interval of --wait
_LINE = "{name:<{width}}  {state:<8}  {created}"
_NAME_CHARS = 48  # so that a line fits into 80 columns; longer names are not truncated
_EXISTS = "feed_exists"
_IN_USE = "feed_in_use"

_name = click.argument("name")


@click.group(epilog=EXIT_CODES)
def feeds() -> None:
    """Create, list, show and delete the feeds of a host while it runs.

    To create and delete feeds, use a key of the host with the role `admin`
    (`tidings keys create --host --role admin`), or the ingest password of the host. To list and
    show them, the role `read` suffices, too. A key with `--feeds PREFIX` permits only the feeds
    with names that begin with PREFIX.

    \b
    Examples:
      tidings feeds create orders --leave on --forget-after 30
      tidings feeds create orders --leave off --update
      tidings feeds list
      tidings feeds show orders
      tidings feeds delete orders --wait
    """


@feeds.command(epilog=EXIT_CODES)
@_name
@settings_options
@click.option(
    "--update", is_flag=True, help="If the feed exists, change these settings and keep the others."
)
@json_option
@access_of_argument
def create(name: str, settings: dict[str, Any], update: bool, as_json: bool, feed: Access) -> None:
    """Create the feed NAME. The server uses it at once, other processes within five seconds.

    If the feed exists, the command changes nothing and ends with 1, unless --update is given.
    Settings that are not given are those of the host. `tidings feed set` changes them later.

    \b
    Examples:
      tidings feeds create orders
      tidings feeds create orders --object-url 'https://api/{{type}}/{{id}}'
      tidings feeds create vms --resource vm:nic,alias --max-age 3600
      tidings feeds create orders --update        for scripts that run repeatedly
    """
    with failures(), _open(feed) as api:
        try:
            create = partial(api.create, name, settings, update=update)
            record = _repeated(create, feed.timeout_s, is_safe=update)
        except Refused as error:
            if error.code != _EXISTS:
                raise
            rule = "exists already; use --update to change its settings"
            raise click.ClickException(f"the feed {printable(name)} {rule}") from None
    _print(record, as_json=as_json, removals=False)


@feeds.command("list", epilog=EXIT_CODES)
@click.option("--deleted", is_flag=True, help="Include feeds that were deleted and removed.")
@json_option
@access_of_argument
def list_(deleted: bool, as_json: bool, feed: Access) -> None:
    """List the feeds that the credential permits, by name.

    \b
    Examples:
      tidings feeds list
      tidings feeds list --json | jq -r '.[].feed'
    """
    with failures(), _open(feed) as api:
        records = [*api.list(deleted=deleted)]
    if as_json:
        click.echo(compact(records))
        return
    if not records:
        click.echo("no feeds")
        return
    # Lines instead of a table, which would break long names in a narrow terminal.
    width = min(_NAME_CHARS, max(len(each["feed"]) for each in records))
    width = max(width, len("feed"))
    click.echo(_LINE.format(name="feed", state="state", created="created", width=width))
    for each in records:
        named = {"name": printable(each["feed"]), "state": each["state"]}
        click.echo(_LINE.format(**named, created=_created(each), width=width).rstrip())


@feeds.command("show", epilog=EXIT_CODES)
@_name
@json_option
@access_of_argument
def show_(name: str, as_json: bool, feed: Access) -> None:
    """Show the settings of the feed NAME and, after a deletion, the removed items.

    \b
    Examples:
      tidings feeds show orders
      tidings feeds show orders --json | jq -r .state
    """
    with failures(), _open(feed) as api:
        record = api.show(name)
    _print(record, as_json=as_json)


@feeds.command(epilog=EXIT_CODES)
@_name
@click.option("--yes", is_flag=True, help="Do not ask for the name of the feed.")
@click.option(
    "--force",
    is_flag=True,
    help="Delete the feed although it has named consumers, webhooks or a relay.",
)
@click.option("--tables", is_flag=True, help="Also remove its Iceberg tables.")
@click.option("--wait", is_flag=True, help="Wait until everything is removed.")
@json_option
@access_of_argument
def delete(
    name: str, yes: bool, force: bool, tables: bool, wait: bool, as_json: bool, feed: Access
) -> None:
    """Delete the feed NAME with everything that it stores. It cannot be undone.

    The command asks for the name of the feed again. Readers receive `feed_deleted` within five
    seconds. A job then removes the data: log, state, archive, consumers, keys, settings, streams.
    The command may be repeated.

    \b
    Examples:
      tidings feeds delete orders --wait
      tidings feeds delete test-1 --yes --force     for scripts
    """
    if not yes:
        _confirm(name)
    with failures(), _open(feed) as api:
        try:
            delete = partial(api.delete, name, force=force, tables=tables)
            record = _repeated(delete, feed.timeout_s)
        except Refused as error:
            if error.code != _IN_USE:
                raise
            raise click.ClickException(f"{printable(error.message)} (--force)") from None
        if wait:
            record = _await_removal(api, record, feed.timeout_s)
    _print(record, as_json=as_json)


def _confirm(name: str) -> None:
    """Ask for the name of the feed."""
    prompt = f"This deletes the feed {printable(name)} and all its data.\nIts name, to confirm"
    if click.prompt(prompt, default="", show_default=False, err=True).strip() != name:
        raise click.ClickException("that is not the name of the feed; nothing was deleted")


def _open(feed: Access) -> Feeds:
    from tidings.client.feeds import Feeds

    return Feeds(feed.url, **feed.access)


def _repeated(
    request: Callable[[], Answer], timeout_s: float | None, *, is_safe: bool = True
) -> Answer:
    """Return the answer to *request*, which is repeated after a lost connection if *is_safe*."""
    return repeat(
        request,
        attempts_max=ATTEMPTS if is_safe else 1,
        within_s=timeout_s,
        on_lost=retrying,
        wait=time.sleep,
    )


def _await_removal(api: Feeds, record: Answer, timeout_s: float | None) -> Answer:
    """Return the record once the feed is removed; show the progress on a terminal."""
    from rich.console import Console

    name, removal = record["feed"], _removal(record, record["number"])
    with Console(stderr=True).status(f"removing {printable(name)}") as status:
        try:
            while removal and removal["state"] != "deleted":
                _tell(status, name, removal)
                time.sleep(POLL_S)
                record = _repeated(partial(api.show, name), timeout_s)
                removal = _removal(record, removal["number"])
        except KeyboardInterrupt:
            rule = f"the removal continues; `tidings feeds show {printable(name)}` shows it"
            click.echo(rule, err=True)
            raise
    return record


def _removal(record: Answer, number: int) -> Answer | None:
    """Return the removal of the feed with this *number*; None if the record has none."""
    return next((each for each in record["removals"] if each["number"] == number), None)


def _tell(status: Status, name: str, removal: Mapping[str, Any]) -> None:
    items = sum(removal["removed"].values())
    status.update(f"removing {printable(name)}: {items:,} items removed")


def _print(record: Answer, *, as_json: bool, removals: bool = True) -> None:
    if as_json:
        click.echo(compact(record))
        return
    click.echo("\n".join(f"{label:<20} {value}" for label, value in _rows(record)))
    for removal in record["removals"] if removals else ():
        click.echo()
        for label, value in _removal_rows(removal):
            click.echo(f"{label:<20} {value}")


def _rows(record: Answer) -> Iterable[tuple[str, str]]:
    """Yield the labelled fields of *record* that have a value, without its removals."""
    yield "feed", printable(record["feed"])
    yield "state", record["state"]
    yield "number", cell(record["number"])
    yield "created", _created(record)
    if record["deleted_at"]:
        yield "deleted", _minute(record["deleted_at"])
    if record["by"]:
        yield "by", printable(record["by"])
    yield from settings_rows(record["settings"] or {})


def _removal_rows(removal: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Yield the labelled fields of *removal*, then the number of removed items by location."""
    yield "removal of number", cell(removal["number"])
    yield "state", removal["state"]
    yield "deleted", _minute(removal["deleted_at"])
    if removal["done_at"]:
        yield "removed", _minute(removal["done_at"])
    yield "tables", removal["tables"]
    for name, count in removal["removed"].items():
        yield f"  {printable(name)}", cell(count)


def _created(record: Mapping[str, Any]) -> str:
    return _minute(record["created_at"]) or "named by the host"


def _minute(time: str | None) -> str:
    """Return *time* as `2026-11-20 17:19Z`; "" for None."""
    return f"{time[:10]} {time[11:16]}Z" if time else ""

"""`tidings feeds`: create, list, show and delete the feeds of a host while it runs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from tidings.client.address import NEW
from tidings.client.cli.render import cell, labelled, minute, printable, rows
from tidings.client.cli.resources import Call, Resource, repeated
from tidings.client.cli.settings import settings_options, settings_rows
from tidings.client.errors import Refused
from tidings.core.settings.documents import SETTINGS
from tidings.http.endpoints.feeds import FeedRouter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidings.client.feed_api import Answer

POLL_S = 1.0  # the interval of --wait
_COLUMNS = ("feed", "state", "created")


feeds = Resource(
    "feeds",
    """
    Create, list, show and delete the feeds of a host while it runs.

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
    """,
    feed_argument="NAME",
)


def _put(call: Call) -> Answer:
    call.given.update(call.others["settings"])
    if call.others["update"]:
        return repeated(call)
    try:
        return call.send(headers=NEW)
    except Refused as error:
        if error.code != "feed_exists":
            raise
        rule = "exists already; use --update to change its settings"
        raise click.ClickException(f"the feed {printable(call.names['feed'])} {rule}") from None


feeds.add(
    "create",
    FeedRouter.put_feed,
    """
    Create the feed NAME. The server uses it at once, other processes within five seconds.

    If the feed exists, the command changes nothing and ends with 1, unless --update is given.
    Settings that are not given are those of the host. `tidings feed set` changes them later.
    """,
    "orders",
    "orders --object-url 'https://api/{{type}}/{{id}}'",
    "vms --resource vm:nic,alias --max-age 3600",
    "orders --update        for scripts that run repeatedly",
    shows=lambda record: labelled(_rows(record), 20),
    by=_put,
    options=dict.fromkeys(SETTINGS),
    others=[
        click.option(
            "--update",
            is_flag=True,
            help="If the feed exists, change these settings and keep the others.",
        ),
        settings_options,
    ],
)


feeds.add(
    "list",
    FeedRouter.list_feeds,
    "List the feeds that the credential permits, by name.",
    "",
    "--json | jq -r '.[].feed'",
    shows=lambda found: rows(
        [{**each, "created": _created(each)} for each in found], _COLUMNS, empty="no feeds"
    ),
    part="feeds",
)


def _with_removals(record: Answer) -> str:
    removals = (labelled(_removal_rows(each), 20) for each in record["removals"])
    return "\n\n".join([labelled(_rows(record), 20), *removals])


feeds.add(
    "show",
    FeedRouter.get_feed,
    "Show the settings of the feed NAME and, after a deletion, the removed items.",
    "orders",
    "orders --json | jq -r .state",
    shows=_with_removals,
)


def _confirmed(call: Call) -> Answer:
    """Ask for the name of the feed, delete it, and with --wait, return the record at the end."""
    name, others = call.names["feed"], call.others
    if not others["yes"]:
        prompt = f"This deletes the feed {printable(name)} and all its data.\nIts name, to confirm"
        if click.prompt(prompt, default="", show_default=False, err=True).strip() != name:
            raise click.ClickException("that is not the name of the feed; nothing was deleted")
    try:
        record = repeated(call, confirm=name)
    except Refused as error:
        if error.code != "feed_in_use":
            raise
        raise click.ClickException(f"{printable(error.message)} (--force)") from None
    return _await_removal(call, record) if others["wait"] else record


feeds.add(
    "delete",
    FeedRouter.delete_feed,
    """
    Delete the feed NAME with everything that it stores. It cannot be undone.

    The command asks for the name of the feed again. Readers receive `feed_deleted` within five
    seconds. A job then removes the data: log, state, archive, consumers, keys, settings, streams.
    The command may be repeated.
    """,
    "orders --wait",
    "test-1 --yes --force     for scripts",
    shows=_with_removals,
    by=_confirmed,
    options={"confirm": None},
    others=[
        click.option("--wait", is_flag=True, help="Wait until everything is removed."),
        click.option("--yes", is_flag=True, help="Do not ask for the name of the feed."),
    ],
)


def _await_removal(call: Call, record: Answer) -> Answer:
    """Return the record once the feed is removed; show the progress on a terminal."""
    from rich.console import Console

    name, number = printable(record["feed"]), record["number"]
    with Console(stderr=True).status(f"removing {name}") as status:
        try:
            while True:
                removal = next((r for r in record["removals"] if r["number"] == number), None)
                if not removal or removal["state"] == "deleted":
                    return record
                items = sum(removal["removed"].values())
                status.update(f"removing {name}: {items:,} items removed")
                time.sleep(POLL_S)
                record = repeated(call, route=FeedRouter.get_feed)
        except KeyboardInterrupt:
            rule = f"the removal continues; `tidings feeds show {name}` shows it"
            click.echo(rule, err=True)
            raise


def _rows(record: Answer) -> Iterable[tuple[str, str]]:
    """Yield the labelled fields of *record* that have a value, without its removals."""
    yield "feed", printable(record["feed"])
    yield "state", record["state"]
    yield "number", cell(record["number"])
    yield "created", _created(record)
    if record["deleted_at"]:
        yield "deleted", minute(record["deleted_at"])
    if record["by"]:
        yield "by", printable(record["by"])
    yield from settings_rows(record["settings"] or {})


def _removal_rows(removal: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Yield the labelled fields of *removal*, then the number of removed items by location."""
    yield "removal of number", cell(removal["number"])
    yield "state", removal["state"]
    yield "deleted", minute(removal["deleted_at"])
    if removal["done_at"]:
        yield "removed", minute(removal["done_at"])
    yield "tables", removal["tables"]
    for name, count in removal["removed"].items():
        yield f"  {printable(name)}", cell(count)


def _created(record: Mapping[str, Any]) -> str:
    return minute(record["created_at"]) or "named by the host"

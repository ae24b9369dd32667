"""`tidings get`: print the current operation of an object, or its operations in the log."""

from __future__ import annotations

import click

from tidings.client.cli import render
from tidings.client.cli.lines import line_of
from tidings.client.cli.log_range import Entry, LogRange
from tidings.client.cli.main import EXIT_CODES
from tidings.client.cli.options import Access, access_options
from tidings.client.events import Event


@click.command(epilog=EXIT_CODES)
@click.argument("kind", metavar="TYPE")
@click.argument("name", metavar="ID")
@click.option(
    "--history",
    type=click.IntRange(min=1),
    is_flag=False,
    flag_value=10,
    metavar="[N]",
    help="Print the object's last N operations in the log, 10 without N, the oldest first.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each operation.")
@access_options
def get(kind: str, name: str, history: int | None, as_json: bool, feed: Access) -> None:
    """Print the object ID of TYPE as it is now; the exit code is 1 if it does not exist.

    With --history, print lines as `tidings tail` does. The log has no operations older than the
    feed's --max-age; the command reads the log backwards until it has found N.

    \b
    Examples:
      tidings get video x32                     its latest operation
      tidings get video x32 --json | jq .data   its data, for a script
      tidings get video x32 --history           its last 10 operations
      tidings get video x32 --history 1         the last one, even a deletion
    """

    def is_of_object(entry: Entry) -> bool:
        return (entry["data"].get("type"), entry["data"].get("id")) == (kind, name)

    with feed.asking() as api:
        if history is None:
            found = api.ask("GET", "objects", query={"type": kind, "id": name})["objects"]
        else:
            found = LogRange(api).last(history, is_of_object)
    if not found:
        place = f"feed {feed.feed}" if history is None else f"log of the feed {feed.feed}"
        raise click.ClickException(render.printable(f"{kind}/{name} is not in the {place}"))
    line = line_of(as_json, None, ())
    for each in found:
        if history is not None:
            click.echo(line(Event(each["id"], each["event"], each["data"])))
        elif as_json:
            click.echo(render.compact(each))
        else:
            click.echo(render.fields(each))

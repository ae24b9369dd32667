"""`tidings log`: the ends of the log of a feed, and the messages between two ids."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click

from tidings.client.cli.main import EXIT_CODES
from tidings.client.cli.options import Place, place_options
from tidings.client.cli.render import compact, plain
from tidings.client.feed_api import NamedConsumers

EMPTY = "-1"
_LABELS = ("offset", "timestamp", "op", "key", "value")
_LABEL_CHARS = 10


@click.group(epilog=EXIT_CODES)
def log() -> None:
    """
    Look at the log of a feed; nothing is changed, whoever else reads or writes.

    \b
    Examples:
      tidings log oldest                  the first message that is still there
      tidings log end                     the cursor behind all of it, for --as-of of a sync
      tidings log show ID                 one message
      tidings log show ID..OTHER --json   from one to another, a line of JSON each
    """


def _add(name: str, which: str) -> None:
    text = f"Print the id of the {which} message in the log; {EMPTY} where it is empty."

    @log.command(name, help=text, epilog=EXIT_CODES)
    @place_options
    def command(place: Place) -> None:
        with place.asking() as api:
            click.echo(api.log()[name] or EMPTY)


_add("oldest", "first")
_add("current", "last")


@log.command(epilog=EXIT_CODES)
@click.option("--json", "as_json", is_flag=True, help='{"end": "..."}')
@place_options
def end(as_json: bool, place: Place) -> None:
    """
    Print the cursor behind everything in the log.

    Whoever makes a dump for `tidings sync` asks for it before, and names it with --as-of.
    """
    with place.asking() as api:
        cursor = api.log()["end"]
    click.echo(json.dumps({"end": cursor}) if as_json else cursor)


@log.command(epilog=EXIT_CODES)
@click.argument("offset", metavar="X[..Y]")
@click.option("--json", "as_json", is_flag=True, help="A line of JSON a message.")
@place_options
def show(offset: str, as_json: bool, place: Place) -> None:
    """
    Print the message X, or all from X to Y.

    X and Y are ids of messages. Y left out (`X..`) is the end of the log.
    """
    first, dots, last = offset.partition("..")
    with place.asking() as api:
        each = None
        for each in entries(api, first, last if dots else first):
            click.echo(compact(each) if as_json else described(each))
    if each is None:
        raise click.ClickException(f"there is no message {offset} in the log")


def entries(api: NamedConsumers, first: str, last: str) -> Iterator[dict[str, Any]]:
    """Yield the entries from *first* to *last*, both included, with a request per thousand."""
    end = {"to": last} if last else {}
    begun, seen = first, ""
    while True:
        page = [each for each in api.log({"from": begun, **end})["entries"] if each["id"] != seen]
        yield from page
        if not page or page[-1]["id"] == last:
            return
        begun = seen = page[-1]["id"]


def described(entry: dict[str, Any]) -> str:
    """Return the fields of *entry* as labelled lines."""
    data = entry["data"]
    values = (
        entry["id"],
        data.get("timestamp", ""),
        entry["event"].upper(),
        f"{data.get('type', '')}/{data.get('id', '')}",
        compact(data),
    )
    lines = zip(_LABELS, values, strict=True)
    return "\n".join(f"{label:<{_LABEL_CHARS}}: {plain(str(value))}" for label, value in lines)

"""`tidings log`: the ends of a feed's log, and what stands between two of its messages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click
from tidings.client.cli.main import EXIT_CODES
from tidings.client.cli.place_options import Place, place_options
from tidings.client.consume.named_consumers import NamedConsumers

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


@log.command(epilog=EXIT_CODES)
@place_options
def oldest(place: Place) -> None:
    """Print the id of the first message in the log; -1 where it is empty."""
    with place.asking() as api:
        click.echo(api.log()["oldest"] or EMPTY)


@log.command(epilog=EXIT_CODES)
@place_options
def current(place: Place) -> None:
    """Print the id of the last message in the log; -1 where it is empty."""
    with place.asking() as api:
        click.echo(api.log()["current"] or EMPTY)


@log.command(epilog=EXIT_CODES)
@click.option("--json", "as_json", is_flag=True, help='{"end": "..."}')
@place_options
def end(as_json: bool, place: Place) -> None:
    """
    Print the cursor behind everything in the log.

    Whoever makes a dump for `tidings sync` asks for it before, and names it with --as-of.
    """
    with place.asking() as api:
        found = api.log()["end"]
    click.echo(json.dumps({"end": found}) if as_json else found)


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
        found = False
        for each in entries(api, first, last if dots else first):
            click.echo(json.dumps(each, separators=(",", ":")) if as_json else described(each))
            found = True
    if not found:
        raise click.ClickException(f"there is no message {offset} in the log")


def entries(api: NamedConsumers, first: str, last: str) -> Iterator[dict[str, Any]]:
    """From *first* to *last*, both included, a request for each thousand."""
    end = {"to": last} if last else {}
    begun, seen = first, ""
    while True:
        page = [each for each in api.log({"from": begun, **end})["entries"] if each["id"] != seen]
        yield from page
        if not page or page[-1]["id"] == last:
            return
        begun = seen = page[-1]["id"]


def described(entry: dict[str, Any]) -> str:
    """A line each for what stands in it, its data without what the others say."""
    from tidings.client.cli.render import plain

    data = entry["data"]
    values = (
        entry["id"],
        data.get("timestamp", ""),
        entry["event"].upper(),
        f"{data.get('type', '')}/{data.get('id', '')}",
        json.dumps(data, separators=(",", ":")),
    )
    lines = zip(_LABELS, values, strict=True)
    return "\n".join(f"{label:<{_LABEL_CHARS}}: {plain(str(value))}" for label, value in lines)

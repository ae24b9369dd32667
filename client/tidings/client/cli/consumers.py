"""`tidings consumers`: where the named consumers of a feed stand, and what to do about it."""

from __future__ import annotations

import functools
import getpass
import json
import socket
from collections.abc import Callable
from typing import Any

import click
from tidings.client.cli.feed_options import filter_options
from tidings.client.cli.main import EXIT_CODES
from tidings.client.cli.place_options import Place, place_options
from tidings.client.cli.render import NONE, cell

_COLUMNS = ("name", "state", "position", "lag_pages", "lag_ms", "parked", "worker")
_FIELDS = (
    *_COLUMNS,
    "copying",
    "acked",
    "single_through",
    "types",
    "parents",
    "retries",
    "failure",
)


@click.group(epilog=EXIT_CODES)
def consumers() -> None:
    """
    Show and steer the named consumers of a feed, while they run.

    What changes a consumer says why, which is kept with the name of who did it.

    \b
    Examples:
      tidings consumers create search --types video
      tidings consumers list
      tidings consumers park search --why "data too long"     put the next message aside
      tidings consumers retry search all --why "mended"       and send it again
      tidings consumers mark search ID --why "sent by hand"   go on behind this message
    """


def _why(command: Callable[..., None]) -> Callable[..., None]:
    """Adds --why and --by to a command, which is given them as *reason*."""

    @functools.wraps(command)
    def with_reason(why: str, by: str, **others: Any) -> None:
        command(reason={"why": why, "by": by}, **others)

    because = click.option("--why", required=True, metavar="TEXT", help="Why; it is kept.")
    who = click.option(
        "--by", default=_me, metavar="NAME", help="Who does it.  [default: USER@HOST]"
    )
    return because(who(with_reason))


def _me() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # of a container, whose user has no name
        user = "somebody"
    return f"{user}@{socket.gethostname()}"


@consumers.command("list", epilog=EXIT_CODES)
@click.option("--json", "as_json", is_flag=True, help="The answer as JSON, one line.")
@place_options
def list_(as_json: bool, place: Place) -> None:
    """Show all consumers, how far each one is behind, and who works for it."""
    with place.asking() as api:
        found = api.all()
    if as_json:
        _print_json(found)
    elif not found:
        click.echo("no named consumers")
    else:
        _table(found)


@consumers.command(epilog=EXIT_CODES)
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="The answer as JSON, one line.")
@place_options
def show(name: str, as_json: bool, place: Place) -> None:
    """Show one consumer, what it failed on, and what is parked."""
    with place.asking() as api:
        found = api.show(name) | {"messages": api.parked(name), "notes": api.notes(name)}
    if as_json:
        _print_json(found)
    else:
        _describe(found)


@consumers.command(epilog=EXIT_CODES)
@click.argument("name")
@click.option(
    "--from",
    "start",
    metavar="PLACE",
    default="oldest",
    show_default=True,
    help="oldest, now, copy (every object first) or the id of a message.",
)
@filter_options
@place_options
def create(name: str, start: str, wanted: dict[str, list[str]], place: Place) -> None:
    """
    Register a consumer; one that is there gets the filter and stays where it is.

    The log is kept for it from now on.
    """
    with place.asking() as api:
        found = api.register(name, {"from": start, **wanted})
    click.echo(f"{name} stands at {found['position'] or NONE}")


@consumers.command(epilog=EXIT_CODES)
@click.argument("name")
@_why
@place_options
def delete(name: str, reason: dict[str, str], place: Place) -> None:
    """Forget a consumer and what is parked of it; the log is not kept for it any more."""
    with place.asking() as api:
        api.delete(name, reason)
    click.echo(f"{name} is deleted")


@consumers.command(epilog=EXIT_CODES)
@click.argument("name")
@click.argument("position")
@_why
@place_options
def mark(name: str, position: str, reason: dict[str, str], place: Place) -> None:
    """
    Put a consumer to POSITION: oldest, now, copy or the id of a message.

    Forward, everything up to it is acknowledged without being sent; back, everything behind it
    is sent again.
    """
    with place.asking() as api:
        found = api.act(name, "mark", {**reason, "position": position})
    click.echo(f"{name} stands at {found['position'] or NONE}")


@consumers.command(epilog=EXIT_CODES)
@click.argument("name")
@_why
@place_options
def step(name: str, reason: dict[str, str], place: Place) -> None:
    """Acknowledge the next message without sending it."""
    _past(name, "step", "stepped", reason, place)


@consumers.command(epilog=EXIT_CODES)
@click.argument("name")
@_why
@place_options
def park(name: str, reason: dict[str, str], place: Place) -> None:
    """Put the next message aside, with the error that it met, and let the others go on."""
    _past(name, "park", "parked", reason, place)


@consumers.command(epilog=EXIT_CODES)
@click.argument("name")
@click.argument("message", metavar="ID|all")
@_why
@place_options
def retry(name: str, message: str, reason: dict[str, str], place: Place) -> None:
    """Have a parked message sent again, alone and out of turn."""
    with place.asking() as api:
        found = api.act(name, "retry", {**reason, "id": message})
    click.echo(f"{len(found['retries'])} to be sent again")


@consumers.command(epilog=EXIT_CODES)
@click.argument("name")
@click.argument("message", metavar="ID|all")
@_why
@place_options
def drop(name: str, message: str, reason: dict[str, str], place: Place) -> None:
    """Give up a parked message."""
    with place.asking() as api:
        found = api.act(name, "drop", {**reason, "id": message})
    click.echo(f"{found['parked']} left")


@consumers.command(epilog=EXIT_CODES)
@click.argument("name")
@_why
@place_options
def pause(name: str, reason: dict[str, str], place: Place) -> None:
    """Let its worker finish what it has begun, and wait."""
    _say(name, "pause", reason, place)


@consumers.command(epilog=EXIT_CODES)
@click.argument("name")
@_why
@place_options
def resume(name: str, reason: dict[str, str], place: Place) -> None:
    """Let a paused worker go on."""
    _say(name, "resume", reason, place)


def _say(name: str, action: str, reason: dict[str, str], place: Place) -> None:
    with place.asking() as api:
        found = api.act(name, action, reason)
    click.echo(f"{name} is {found['state']}")


def _past(
    name: str,
    action: str,
    field: str,
    reason: dict[str, str],
    place: Place,
) -> None:
    from tidings.client.cli.log import described

    with place.asking() as api:
        found = api.act(name, action, reason)[field]
    click.echo(described(found))


def _print_json(found: object) -> None:
    click.echo(json.dumps(found, separators=(",", ":")))


def _table(found: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(*_COLUMNS)
    for each in found:
        table.add_row(*(cell(each.get(name)) for name in _COLUMNS))
    Console(highlight=False).print(table)


def _describe(found: dict[str, Any]) -> None:
    for name in _FIELDS:
        if _is_said(found.get(name)):
            click.echo(f"{name:<15} {cell(found[name])}")
    for each in found["messages"]:
        click.echo(f"{'parked':<15} {each['id']} after {each['attempts']}: {cell(each['error'])}")
    for each in found["notes"]:
        about = f" {each['id']}" if "id" in each else ""
        click.echo(
            f"{'note':<15} {each['what']}{about} by {cell(each['who'])}: {cell(each['why'])}"
        )


def _is_said(value: object) -> bool:
    """0 is; what is none, empty or not so is not."""
    return value is not None and value is not False and value not in ("", [])

"""`tidings consumers`: show and control the named consumers of a feed."""

from __future__ import annotations

import functools
import getpass
import socket
from collections.abc import Callable
from typing import Any

import click

from tidings.client.cli.log import described
from tidings.client.cli.main import EXIT_CODES
from tidings.client.cli.options import Place, filter_options, json_option, place_options
from tidings.client.cli.render import NONE, cell, compact, show, table
from tidings.client.feed_api import Answer

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


def why_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add --why and --by to a command, which receives them as *reason*."""

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
    except (KeyError, OSError):  # in a container, the user may have no name
        user = "somebody"
    return f"{user}@{socket.gethostname()}"


@consumers.command("list", epilog=EXIT_CODES)
@json_option
@place_options
def list_(as_json: bool, place: Place) -> None:
    """Show all consumers, how far each one is behind, and who works for it."""
    with place.asking() as api:
        each_one = api.all()
    if as_json:
        click.echo(compact(each_one))
    elif not each_one:
        click.echo("no named consumers")
    else:
        show(table(_COLUMNS, [dict.fromkeys(_COLUMNS) | each for each in each_one]))


@consumers.command("show", epilog=EXIT_CODES)
@click.argument("name")
@json_option
@place_options
def show_(name: str, as_json: bool, place: Place) -> None:
    """Show one consumer, what it failed on, and what is parked."""
    with place.asking() as api:
        consumer = api.show(name) | {"messages": api.parked(name), "notes": api.notes(name)}
    if as_json:
        click.echo(compact(consumer))
    else:
        _describe(consumer)


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
        consumer = api.register(name, {"from": start, **wanted})
    click.echo(_position(name, consumer))


@consumers.command(epilog=EXIT_CODES)
@click.argument("name")
@why_options
@place_options
def delete(name: str, reason: dict[str, str], place: Place) -> None:
    """Forget a consumer and what is parked of it; the log is not kept for it any more."""
    with place.asking() as api:
        api.delete(name, reason)
    click.echo(f"{name} is deleted")


def _position(name: str, consumer: Answer) -> str:
    return f"{name} stands at {consumer['position'] or NONE}"


def _state(name: str, consumer: Answer) -> str:
    return f"{name} is {consumer['state']}"


def _add(
    action: str, text: str, done: Callable[[str, Answer], str], *fields: tuple[str, str]
) -> None:
    """Add a command for an action of PROTOCOL 14. *fields* are arguments for its body."""

    @consumers.command(action, help=text, epilog=EXIT_CODES)
    @click.argument("name")
    @why_options
    @place_options
    def command(name: str, reason: dict[str, str], place: Place, **body: str) -> None:
        with place.asking() as api:
            answer = api.act(name, action, reason | body)
        click.echo(done(name, answer))

    for field, metavar in fields:
        click.argument(field, metavar=metavar)(command)


_add(
    "mark",
    """
    Put a consumer to POSITION: oldest, now, copy or the id of a message.

    Forward, everything up to it is acknowledged without being sent; back, everything behind it
    is sent again.
    """,
    _position,
    ("position", "POSITION"),
)
_add(
    "step",
    "Acknowledge the next message without sending it.",
    lambda name, answer: described(answer["stepped"]),
)
_add(
    "park",
    "Put the next message aside, with the error that it met, and let the others go on.",
    lambda name, answer: described(answer["parked"]),
)
_add(
    "retry",
    "Have a parked message sent again, alone and out of turn.",
    lambda name, answer: f"{len(answer['retries'])} to be sent again",
    ("id", "ID|all"),
)
_add(
    "drop",
    "Give up a parked message.",
    lambda name, answer: f"{answer['parked']} left",
    ("id", "ID|all"),
)
_add("pause", "Let its worker finish what it has begun, and wait.", _state)
_add("resume", "Let a paused worker go on.", _state)


def _describe(consumer: dict[str, Any]) -> None:
    for name in _FIELDS:
        value = consumer.get(name)
        if value is not None and value is not False and value not in ("", []):  # 0 is shown
            click.echo(f"{name:<15} {cell(value)}")
    for each in consumer["messages"]:
        click.echo(f"{'parked':<15} {each['id']} after {each['attempts']}: {cell(each['error'])}")
    for each in consumer["notes"]:
        about = f" {each['id']}" if "id" in each else ""
        click.echo(
            f"{'note':<15} {each['what']}{about} by {cell(each['who'])}: {cell(each['why'])}"
        )

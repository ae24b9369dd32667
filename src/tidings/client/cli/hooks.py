"""`tidings hooks`: the webhooks of a feed. Each is a named consumer, see `tidings consumers`."""

from __future__ import annotations

import secrets
from typing import Any
from urllib.parse import quote, urlsplit

import click

from tidings.client.cli.consumers import why_options
from tidings.client.cli.main import EXIT_CODES
from tidings.client.cli.options import Place, filter_options, json_option, place_options
from tidings.client.cli.render import cell, compact, show, table

_COLUMNS = ("name", "state", "url", "lag_ms", "parked", "failure")
_NAME_CHARS = 50  # of a host, as the beginning of a name; a consumer's name has at most 63


@click.group(epilog=EXIT_CODES)
def hooks() -> None:
    """
    Have webhooks told what happens: signed as Standard Webhooks says, and tried for three days.

    A webhook is a named consumer of the same name: `tidings consumers` shows what is parked of it,
    has it sent again, pauses it and puts it to another place.

    \b
    Examples:
      tidings hooks create https://a.example/told --types video
      tidings hooks list
      tidings consumers retry NAME all --why "it is back"     send what is parked again
      tidings consumers mark NAME ID --why "lost a day"       and what came behind ID
      tidings consumers resume NAME --why "it is back"        one that answered 410
    """


@hooks.command(epilog=EXIT_CODES)
@click.argument("target", metavar="URL")
@click.option(
    "--name",
    default="",
    help="Of the webhook and its consumer.  [default: its host and a random end]",
)
@click.option(
    "--from",
    "start",
    metavar="PLACE",
    default="now",
    show_default=True,
    help="now, oldest or the id of a message.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["cloudevents", "debezium", "tidings"]),
    default="cloudevents",
    show_default=True,
    help="What it is told each event as.",
)
@click.option(
    "--attempts",
    type=click.IntRange(1, 10),
    default=10,
    show_default=True,
    help="Of a message, before it is parked: 10 are 75 hours, 4 are 35 minutes.",
)
@filter_options
@place_options
def create(
    target: str,
    name: str,
    start: str,
    form: str,
    attempts: int,
    wanted: dict[str, list[str]],
    place: Place,
) -> None:
    """
    Have URL told what happens, and print the secret that signs it; it is told once.

    With --name one that is there gets the address, the format and the filter, and stays where it
    is.
    """
    body = {"url": target, "from": start, "format": form, "attempts": attempts, **wanted}
    named = name or _name_of(target)
    with place.asking() as api:
        hook = api.ask("PUT", _path(named), body=body)
    click.echo(f"{named} tells {hook['url']}")
    if "secret" in hook:
        click.echo(f"secret {hook['secret']}")


@hooks.command("list", epilog=EXIT_CODES)
@json_option
@place_options
def list_(as_json: bool, place: Place) -> None:
    """Show all webhooks, how far each one is behind, and what it failed on."""
    with place.asking() as api:
        each_one: list[dict[str, Any]] = api.ask("GET", "hooks")["hooks"]
    if as_json:
        click.echo(compact(each_one))
    elif not each_one:
        click.echo("no webhooks")
    else:
        rows = [dict.fromkeys(_COLUMNS) | each | {"failure": _error(each)} for each in each_one]
        show(table(_COLUMNS, rows))


@hooks.command("show", epilog=EXIT_CODES)
@click.argument("name")
@place_options
def show_(name: str, place: Place) -> None:
    """Show one webhook, as JSON."""
    with place.asking() as api:
        click.echo(compact(api.ask("GET", _path(name))))


@hooks.command(epilog=EXIT_CODES)
@click.argument("name")
@place_options
def rotate(name: str, place: Place) -> None:
    """Make a new secret and print it; the old one signs beside it for a day."""
    with place.asking() as api:
        click.echo(f"secret {api.ask('POST', _path(name) + '/rotate', body={})['secret']}")


@hooks.command(epilog=EXIT_CODES)
@click.argument("name")
@why_options
@place_options
def delete(name: str, reason: dict[str, str], place: Place) -> None:
    """Forget a webhook, its place and what is parked of it."""
    with place.asking() as api:
        api.ask("DELETE", _path(name), query=reason)
    click.echo(f"{name} is deleted")


def _name_of(url: str) -> str:
    """Return the host of *url* with a random suffix, so that a host may have several webhooks."""
    host = (urlsplit(url).hostname or "hook").strip("[]").replace(":", "-")[:_NAME_CHARS]
    return f"{host.lstrip('-.') or 'hook'}-{secrets.token_hex(3)}"


def _error(hook: dict[str, Any]) -> str | None:
    failure = hook.get("failure")
    return cell(f"{failure['times']} times: {failure['error']}") if failure else None


def _path(name: str) -> str:
    return f"hooks/{quote(name, safe='')}"

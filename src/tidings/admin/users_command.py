"""`tidings users`: import the users of a feed's `/changes` from an htpasswd file, and list them."""

from __future__ import annotations

import json
from typing import IO

import click

from tidings.admin.target import SAVE_ATTEMPTS_MAX, Target, target_options
from tidings.client.cli.main import EXIT_CODES
from tidings.client.cli.options import json_option
from tidings.core.changeagent import users as core
from tidings.core.changeagent.documents import USERS, OperatorDocument
from tidings.core.model.feeds import public_name
from tidings.core.settings.profiles import close


@click.group(epilog=EXIT_CODES)
def users() -> None:
    """Manage the users of a feed for `/changes` and the other paths of changeagent.

    If a feed has users, these paths require a user instead of the passwords of the feed. A change
    takes effect within five seconds.

    \b
    Examples:
      htpasswd -cB passwd foo
      tidings users import passwd --stage dev
      tidings users list --stage dev
    """


@users.command("import", epilog=EXIT_CODES)
@click.argument("file", type=click.File(encoding="utf-8"))
@target_options
@json_option
def import_(target: Target, file: IO[str], as_json: bool) -> None:
    """Replace the users of the feed by the users in FILE, a file of htpasswd -B; - for stdin.

    If the file has a mistake, nothing is changed.

    \b
    Examples:
      tidings users import passwd --stage dev
      htpasswd -nbB foo secret | tidings users import - --stage dev
    """
    try:
        parsed = core.users_from(file.read())
    except UnicodeDecodeError:
        raise click.ClickException("the file must be UTF-8") from None
    close(target.profiles, target.feed)  # first, so that a crash cannot leave the feed open
    _write(target, core.encode_users(parsed))
    _print(target, len(parsed), as_json=as_json)


@users.command("list", epilog=EXIT_CODES)
@target_options
@json_option
def list_(target: Target, as_json: bool) -> None:
    """Show the names of the users, one per line.

    \b
    Examples:
      tidings users list --stage dev
      tidings users list --data tidings-data --json
    """
    text = target.documents.operator_document(target.feed, USERS).text
    names = [line.partition(":")[0] for line in text.splitlines()]
    if as_json:
        click.echo(json.dumps(names))
        return
    for name in names:
        click.echo(name)


@users.command(epilog=EXIT_CODES)
@target_options
@json_option
def clear(target: Target, as_json: bool) -> None:
    """Remove all users. The feed stays closed; clients need a password or key of the feed.

    \b
    Example:
      tidings users clear --stage dev
    """
    _write(target, "")
    _print(target, 0, as_json=as_json)


def _print(target: Target, count: int, *, as_json: bool) -> None:
    """Print the number of users: as JSON on stdout, or for a person on stderr."""
    if as_json:
        click.echo(json.dumps({"feed": public_name(target.feed), "users": count}))
        return
    click.echo(f"{public_name(target.feed)}: {count or 'no'} users", err=True)


def _write(target: Target, text: str) -> None:
    for _ in range(SAVE_ATTEMPTS_MAX):
        current = target.documents.operator_document(target.feed, USERS)
        if target.documents.write(target.feed, USERS, OperatorDocument(text, current.version)):
            return
    raise click.ClickException("the users kept changing; try again")

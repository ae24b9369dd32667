"""`tidings users`: import the users of a feed's `/changes` from an htpasswd file, and list them."""

from __future__ import annotations

from typing import IO

import click

from tidings.admin.target import SAVE_ATTEMPTS_MAX, Target, target_options
from tidings.core.changeagent import users as core
from tidings.core.changeagent.documents import USERS, OperatorDocument
from tidings.core.model.feeds import public_name
from tidings.core.settings.profiles import close


@click.group()
def users() -> None:
    """
    Manage the users of a feed for `/changes` and the other paths of changeagent.

    If a feed has users, these paths require a user instead of the passwords of the feed. A change
    takes effect within five seconds.

    \b
    Examples:
      htpasswd -cB passwd foo
      tidings users import passwd --stage dev
      tidings users list --stage dev
    """


@users.command("import")
@click.argument("file", type=click.File(encoding="utf-8"))
@target_options
def import_(target: Target, file: IO[str]) -> None:
    """
    Replace the users of the feed by the users in FILE, a file of htpasswd -B; - for stdin.

    If the file has a mistake, nothing is changed.
    """
    try:
        parsed = core.users_from(file.read())
    except UnicodeDecodeError:
        raise click.ClickException("the file must be UTF-8") from None
    close(target.profiles, target.feed)  # first, so that a crash cannot leave the feed open
    _write(target, core.encode_users(parsed))
    click.echo(f"{public_name(target.feed)}: {len(parsed)} users", err=True)


@users.command("list")
@target_options
def list_(target: Target) -> None:
    """Show the names of the users, one per line."""
    text = target.documents.operator_document(target.feed, USERS).text
    for line in text.splitlines():
        click.echo(line.partition(":")[0])


@users.command()
@target_options
def clear(target: Target) -> None:
    """Remove all users. The feed stays closed; clients need a password or key of the feed."""
    _write(target, "")
    click.echo(f"{public_name(target.feed)}: no users", err=True)


def _write(target: Target, text: str) -> None:
    for _ in range(SAVE_ATTEMPTS_MAX):
        current = target.documents.operator_document(target.feed, USERS)
        if target.documents.write(target.feed, USERS, OperatorDocument(text, current.version)):
            return
    raise click.ClickException("the users kept changing; try again")

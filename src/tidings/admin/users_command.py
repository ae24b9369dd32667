"""`tidings users`: import the users of a feed's `/changes` from an htpasswd file, and list them."""

from __future__ import annotations

from typing import Any

import click

from tidings.admin.target import local_admin, stored_options
from tidings.client.cli.resources import Call, Resource
from tidings.server.local import LocalAdmin

users = Resource(
    "users",
    """
    Manage the users of a feed for `/changes` and the other paths of changeagent.

    If a feed has users, these paths require a user instead of the passwords of the feed. A change
    takes effect within five seconds.

    \b
    Examples:
      htpasswd -cB passwd foo
      tidings users import passwd --stage dev
      tidings users list --stage dev
    """,
    placed=stored_options(local_admin),
    options={"file": None},
)


def _import(call: Call) -> Any:
    try:
        return call.send(file=call.others["path"].read())
    except UnicodeDecodeError:
        raise click.ClickException("the file must be UTF-8") from None


def _report(done: dict[str, Any]) -> None:
    click.echo(f"{done['feed']}: {done['users'] or 'no'} users", err=True)


users.add(
    "import",
    LocalAdmin.import_users,
    """
    Replace the users of the feed by the users in FILE, a file of htpasswd -B; - for stdin.

    If the file has a mistake, nothing is changed.
    """,
    "passwd --stage dev",
    "htpasswd -nbB foo secret | tidings users import - --stage dev",
    shows=_report,
    by=_import,
    others=[click.argument("path", metavar="FILE", type=click.File(encoding="utf-8"))],
)
users.add(
    "list",
    LocalAdmin.list_users,
    "Show the names of the users, one per line.",
    "--stage dev",
    "--data tidings-data --json",
    shows=lambda names: "\n".join(names) or None,
    part="users",
)
users.add(
    "clear",
    LocalAdmin.clear_users,
    "Remove all users. The feed stays closed; clients need a password or key of the feed.",
    "--stage dev",
    shows=_report,
)

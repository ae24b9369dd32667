"""`tidings feed`: show and change the settings of a feed."""

from __future__ import annotations

import secrets
import sys
from typing import IO, Any

import click

from tidings.admin.target import local_admin, stored_options
from tidings.client.cli.render import labelled
from tidings.client.cli.resources import Call, Option, Resource
from tidings.client.cli.settings import NAMES, settings_options, settings_rows
from tidings.core.auth.guard import PASSWORD_ROLES
from tidings.core.auth.passwords import check_password, from_line
from tidings.core.model.feeds import HOST, public_name
from tidings.core.settings.documents import SETTINGS
from tidings.http.endpoints.feeds import FeedRouter
from tidings.server.local import LocalAdmin

CLOSED = "none: closed, unless the feed has no credential at all and its deployment is open"
GENERATED_BYTES = 24  # 192 random bits; 24 bytes in base64 need no padding


def shown_settings(found: dict[str, Any]) -> str:
    """Return the settings as lines of text."""
    whole = "defaults of new feeds, and passwords for all feeds"
    named = ("host", whole) if found["feed"] == public_name(HOST) else ("feed", found["feed"])
    rows = [named, *settings_rows({name: found[name] for name in SETTINGS})]
    if found.get("closed"):
        rows.append(("closed", "yes, because the feed has or had keys or users"))
    for role in PASSWORD_ROLES if "closed" in found else ():  # credentials have no route
        passwords = found[f"{role.value}_passwords"]
        shown = [
            f"{number} of {len(passwords)}, set at {each['set_at']}"
            for number, each in enumerate(passwords, 1)
        ]
        rows += [(f"{role.value} password", line) for line in shown or [CLOSED]]
    return labelled(rows, 16)


feed = Resource(
    "feed",
    """
    Show and change the settings of a feed: links, compatibility mode, resources, passwords.

    A change takes effect within five seconds, without a deployment. Select the AWS account as for
    other tools, with AWS_PROFILE and AWS_REGION. With --host, the settings are the defaults of new
    feeds (`tidings feeds create`), and the passwords are valid for all feeds.
    """,
    "show --stage dev",
    "set --stage dev --object-url 'http://api/{{type}}/{{id}}'",
    "password read --stage dev --generate",
    placed=stored_options(local_admin, of_host=True),
)
_placed = stored_options(local_admin, of_host=True, over_http=True)


def _sent(call: Call, **settings: Any) -> Any:
    """Return the settings of a feed after a change; over HTTP, only of a feed that exists."""
    if not call.over_http:
        return call.send(**settings)
    record = call.send(FeedRouter.get_feed)
    if record["settings"] is None:
        raise click.ClickException(f"the feed {call.place.feed} was deleted")
    if settings:
        record = call.send(FeedRouter.put_feed, **settings)
    return {"feed": record["feed"], **record["settings"]}


feed.add(
    "show",
    LocalAdmin.show_settings,
    """
    Show the settings of a feed. For a password, only the time when it was set is shown.

    With --url, passwords are not shown.
    """,
    "--stage dev",
    "--data tidings-data --feed orders --json",
    "--url https://feed.example",
    shows=shown_settings,
    by=_sent,
    placed=_placed,
)


def _set(call: Call) -> Any:
    settings = call.others["settings"]
    if not settings:
        raise click.UsageError(f"name what to set: {NAMES}")
    if call.is_of_host and "resources" in settings:
        raise click.UsageError("resources are those of one feed; name it with --feed")
    return _sent(call, **settings)


feed.add(
    "set",
    LocalAdmin.change_settings,
    """
    Change the given settings of a feed, and keep the others.

    With --url, the password is a key with the role admin, or the ingest password, as for
    `tidings feeds create --update`.
    """,
    "--stage dev --object-url 'http://api/{{type}}/{{id}}'",
    "--data tidings-data --leave on --forget-after 30",
    "--url https://feed.example --feed orders --leave on",
    shows=shown_settings,
    by=_set,
    placed=_placed,
    options=dict.fromkeys(SETTINGS),
    others=[settings_options],
)


def _password(call: Call) -> Any:
    """Set or remove a password; with --generate, add it to the answer."""
    others = call.others
    file, generate, remove_old = others["password_file"], others["generate"], others["remove_old"]
    is_set = file is not None or generate or "keep_old" in call.given
    if is_set + remove_old + others["remove"] > 1 or (file is not None and generate):
        raise click.UsageError(
            "give at most one of --password-file, --generate, --remove-old and --remove;"
            " --keep-old is only for a new password"
        )
    if remove_old or others["remove"]:
        return call.send(LocalAdmin.remove_passwords, only_old=remove_old)
    text = secrets.token_urlsafe(GENERATED_BYTES) if generate else _read_given(file)
    made = {"password": text} if generate else {}
    return made | call.send(password=text)


def _read_given(file: IO[str] | None) -> str:
    if file is None and not sys.stdin.isatty():
        file = sys.stdin
    if file is None:
        return check_password(click.prompt("Password", hide_input=True, confirmation_prompt=True))
    try:
        return from_line(file.read())
    except UnicodeDecodeError:
        raise click.ClickException("the password must be UTF-8") from None


def _show_password(found: dict[str, Any]) -> None:
    if "password" in found:
        click.echo(found["password"])
    click.echo(shown_settings(found), err=True)


feed.add(
    "password",
    LocalAdmin.set_password,
    """
    Set or remove the password to read a feed, or to post to it (ingest).

    The command prompts for the password twice, or reads it from a file or stdin. Only a hash of the
    password is stored.

    \b
    To rotate a password while clients run:
      tidings feed password read --stage dev --generate --keep-old
      (give the new password to every client)
      tidings feed password read --stage dev --remove-old
    """,
    "read --stage dev --generate",
    "ingest --data tidings-data --password-file key.txt",
    shows=_show_password,
    by=_password,
    options={"role": Option(is_argument=True), "password": None},
    others=[
        click.option("--remove", is_flag=True, help="Remove all passwords; the role is closed."),
        click.option("--remove-old", is_flag=True, help="Remove all passwords but the newest."),
        click.option(
            "--generate", is_flag=True, help="Generate a strong password and print it once."
        ),
        click.option(
            "--password-file",
            type=click.File(encoding="utf-8"),
            help="Read the password from FILE; - for stdin.",
        ),
    ],
)

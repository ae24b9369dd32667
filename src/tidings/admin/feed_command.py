"""`tidings feed`: show and change the settings of a feed."""

from __future__ import annotations

import json
import os
import secrets
import sys
from dataclasses import replace
from typing import IO, Any

import click

from tidings.admin.target import Target, host_target_options
from tidings.aws.effects import now_ms
from tidings.client.cli.main import EXIT_CODES
from tidings.client.cli.options import json_option
from tidings.client.cli.settings import NAMES, settings_options, settings_rows
from tidings.core import limits
from tidings.core.auth.guard import PASSWORD_ROLES, Role, passwords_of
from tidings.core.auth.passwords import (
    SALT_BYTES,
    check_password,
    from_line,
    hash_password,
    set_at_ms,
)
from tidings.core.model.feeds import HOST, public_name
from tidings.core.model.timestamps import from_ms
from tidings.core.settings.documents import profile_fields, settings_document
from tidings.core.settings.profiles import Profile

CLOSED = "none: closed, unless the feed has no credential at all and its deployment is open"
GENERATED_BYTES = 24  # 192 random bits; 24 bytes in base64 need no padding


def with_password(profile: Profile, role: Role, stored: str, *, keep_old: bool) -> Profile:
    """Return *profile* with the password hash *stored*; keep the previous hash if *keep_old*."""
    old = passwords_of(profile, role) if keep_old else ()
    return with_passwords(profile, role, (stored, *old)[: limits.PASSWORDS_MAX])


def with_passwords(profile: Profile, role: Role, stored: tuple[str, ...]) -> Profile:
    if role is Role.READ:
        return replace(profile, read_passwords=stored)
    return replace(profile, ingest_passwords=stored)


def without_old(profile: Profile, role: Role) -> Profile:
    """Return *profile* with only the newest password of *role*."""
    return with_passwords(profile, role, passwords_of(profile, role)[:1])


def settings_json(feed: str, profile: Profile) -> dict[str, object]:
    """Return all settings as JSON, without the hashes."""
    return {
        "feed": public_name(feed),
        **settings_document(profile),
        "closed": profile.closed,
        **{
            f"{role.value}_passwords": [
                {"set_at": from_ms(set_at_ms(stored))} for stored in passwords_of(profile, role)
            ]
            for role in PASSWORD_ROLES
        },
        "version": profile.version,
    }


def settings_lines(feed: str, profile: Profile) -> list[str]:
    """Return the settings as lines of text."""
    whole = "defaults of new feeds, and passwords for all feeds"
    rows = [
        ("host", whole) if feed == HOST else ("feed", public_name(feed)),
        *settings_rows(settings_document(profile)),
    ]
    if profile.closed:
        rows.append(("closed", "yes, because the feed has or had keys or users"))
    for role in PASSWORD_ROLES:
        rows += [(f"{role.value} password", line) for line in _passwords(profile, role)]
    return [f"{name:<16} {value}" for name, value in rows]


def _passwords(profile: Profile, role: Role) -> list[str]:
    passwords = passwords_of(profile, role)
    return [
        f"{number} of {len(passwords)}, set at {from_ms(set_at_ms(stored))}"
        for number, stored in enumerate(passwords, 1)
    ] or [CLOSED]


@click.group(epilog=EXIT_CODES)
def feed() -> None:
    """Show and change the settings of a feed: links, compatibility mode, resources, passwords.

    A change takes effect within five seconds, without a deployment. Select the AWS account as for
    other tools, with AWS_PROFILE and AWS_REGION. With --host, the settings are the defaults of new
    feeds (`tidings feeds create`), and the passwords are valid for all feeds.

    \b
    Examples:
      tidings feed show --stage dev
      tidings feed set --stage dev --object-url 'http://api/{{type}}/{{id}}'
      tidings feed password read --stage dev --generate
    """


@feed.command(epilog=EXIT_CODES)
@host_target_options
@json_option
def show(target: Target, as_json: bool) -> None:
    """Show the settings of a feed. For a password, only the time when it was set is shown.

    \b
    Examples:
      tidings feed show --stage dev
      tidings feed show --data tidings-data --feed orders --json
    """
    _print(target.feed, target.read(), as_json=as_json)


def _print(feed: str, profile: Profile, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(settings_json(feed, profile)))
    else:
        click.echo("\n".join(settings_lines(feed, profile)))


@feed.command("set", epilog=EXIT_CODES)
@host_target_options
@settings_options
@json_option
def set_(target: Target, settings: dict[str, Any], as_json: bool) -> None:
    """Change the given settings of a feed, and keep the others.

    \b
    Examples:
      tidings feed set --stage dev --object-url 'http://api/{{type}}/{{id}}'
      tidings feed set --data tidings-data --leave on --forget-after 30
    """
    if not settings:
        raise click.UsageError(f"name what to set: {NAMES}")
    if target.feed == HOST and "resources" in settings:
        raise click.UsageError("resources are those of one feed; name it with --feed")
    fields = profile_fields(settings, target.feed)
    profile = target.change(lambda old: replace(old, **fields))
    _print(target.feed, profile, as_json=as_json)


@feed.command(epilog=EXIT_CODES)
@click.argument("role", type=click.Choice([role.value for role in PASSWORD_ROLES]))
@host_target_options
@click.option(
    "--password-file",
    type=click.File(encoding="utf-8"),
    help="Read the password from FILE; - for stdin.",
)
@click.option("--generate", is_flag=True, help="Generate a strong password and print it once.")
@click.option("--keep-old", is_flag=True, help="Keep the current password valid as well.")
@click.option("--remove-old", is_flag=True, help="Remove all passwords but the newest.")
@click.option("--remove", is_flag=True, help="Remove all passwords; the role is closed.")
@json_option
def password(
    role: str,
    target: Target,
    as_json: bool,
    password_file: IO[str] | None,
    generate: bool,
    keep_old: bool,
    remove_old: bool,
    remove: bool,
) -> None:
    """Set or remove the password to read a feed, or to post to it (ingest).

    The command prompts for the password twice, or reads it from a file or stdin. Only a hash of the
    password is stored.

    \b
    Examples:
      tidings feed password read --stage dev --generate
      tidings feed password ingest --data tidings-data --password-file key.txt

    \b
    To rotate a password while clients run:
      tidings feed password read --stage dev --generate --keep-old
      (give the new password to every client)
      tidings feed password read --stage dev --remove-old
    """
    setting = password_file is not None or generate or keep_old
    if setting + remove_old + remove > 1 or (password_file is not None and generate):
        raise click.UsageError(
            "give at most one of --password-file, --generate, --remove-old and --remove;"
            " --keep-old is only for a new password"
        )
    wanted, text = Role(role), ""
    if remove:
        profile = target.change(lambda old: with_passwords(old, wanted, ()))
    elif remove_old:
        profile = target.change(lambda old: without_old(old, wanted))
    else:
        text = secrets.token_urlsafe(GENERATED_BYTES) if generate else _read_given(password_file)
        stored = hash_password(text, salt=os.urandom(SALT_BYTES), now_ms=now_ms())
        profile = target.change(lambda old: with_password(old, wanted, stored, keep_old=keep_old))
    if as_json:
        made = {"password": text} if generate else {}
        click.echo(json.dumps(made | settings_json(target.feed, profile)))
        return
    if generate:
        click.echo(text)
    click.echo("\n".join(settings_lines(target.feed, profile)), err=True)


def _read_given(file: IO[str] | None) -> str:
    if file is None and not sys.stdin.isatty():
        file = sys.stdin
    if file is None:
        return check_password(click.prompt("Password", hide_input=True, confirmation_prompt=True))
    try:
        return from_line(file.read())
    except UnicodeDecodeError:
        raise click.ClickException("the password must be UTF-8") from None

"""`tidings feed`: show and change the settings of a feed."""

from __future__ import annotations

import json
import os
import secrets
import sys
from dataclasses import replace
from typing import IO

import click

from tidings.admin.target import Target, target_options
from tidings.aws.effects import now_ms
from tidings.core import limits
from tidings.core.auth.guard import PASSWORD_ROLES, Role, passwords_of
from tidings.core.auth.passwords import (
    SALT_BYTES,
    check_password,
    from_line,
    hash_password,
    set_at_ms,
)
from tidings.core.model.feeds import public_name
from tidings.core.model.timestamps import from_ms
from tidings.core.settings.profiles import COMPATS, OPLOG, Profile
from tidings.core.settings.values import parse

CLOSED = "none: closed, unless the feed has no credential at all and its deployment is open"
GENERATED_BYTES = 24  # 192 random bits; 24 bytes in base64 need no padding
NONE = "none"


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
        "object_url": profile.object_url,
        "compat": profile.compat,
        "leave": profile.leave,
        "resources": [resource.document() for resource in profile.resources],
        "max_age": profile.max_age_s,
        "push_lanes": profile.push_lanes,
        "ids_personal": profile.ids_personal,
        "forget_after_days": profile.forget_after_days,
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
    rows = [
        ("feed", public_name(feed)),
        ("object url", profile.object_url or "none"),
        ("compat", profile.compat or "none"),
        ("leave", "on" if profile.leave else "off"),
        *(
            ("resource", f"{each.name}: {', '.join(each.subs)} ({each.route})")
            for each in profile.resources
        ),
    ]
    if profile.max_age_s:
        rows.append(("max age", f"{profile.max_age_s} s"))
    if profile.push_lanes > 1:
        rows.append(("push lanes", str(profile.push_lanes)))
    if not profile.ids_personal:
        rows.append(("ids personal", "no: erasures keep the ids of objects"))
    if profile.forget_after_days:
        rows.append(
            ("forget after", f"{profile.forget_after_days} days: then deleted objects are erased")
        )
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


@click.group()
def feed() -> None:
    """
    Show and change the settings of a feed: links, compatibility mode, resources, passwords.

    A change takes effect within five seconds, without a deployment. Select the AWS account as for
    other tools, with AWS_PROFILE and AWS_REGION.

    \b
    Examples:
      tidings feed show --stage dev
      tidings feed set --stage dev --object-url 'http://api/{{type}}/{{id}}' --compat oplog
      tidings feed password read --stage dev --generate
    """


@feed.command()
@target_options
@click.option("--json", "in_json", is_flag=True, help="Print one line of JSON.")
def show(target: Target, in_json: bool) -> None:
    """Show the settings of a feed. For a password, only the time when it was set is shown."""
    profile = target.read()
    if in_json:
        click.echo(json.dumps(settings_json(target.feed, profile)))
        return
    click.echo("\n".join(settings_lines(target.feed, profile)))


@feed.command("set")
@target_options
@click.option(
    "--object-url", metavar="TEMPLATE", help="Template of the field `ref`; if empty, no `ref`."
)
@click.option("--compat", type=click.Choice([OPLOG, NONE]), help="Behave as oplog did, or not.")
@click.option(
    "--leave",
    type=click.Choice(["on", "off"]),
    help="Store removed parents, for consumers with `leave=true`.",
)
@click.option(
    "--resource",
    "resources",
    multiple=True,
    metavar="NAME:SUB,SUB[=/ROUTE]",
    help="Declare a resource to listeners; repeatable. Replaces all earlier declarations.",
)
@click.option("--no-resources", is_flag=True, help="Declare no resources.")
@click.option(
    "--max-age", type=int, help="Seconds that items are kept; 0: as long as other operations."
)
@click.option(
    "--push-lanes", type=int, help="Number of followers that push to the WebSockets of a stage."
)
@click.option(
    "--ids-personal",
    type=click.Choice(["on", "off"]),
    help="Whether an erasure also removes the id of the object from earlier entries.",
)
@click.option(
    "--forget-after",
    "forget_after_days",
    type=int,
    metavar="DAYS",
    help="Erase objects this many days after they were deleted; 0: never.",
)
def set_(
    target: Target,
    object_url: str | None,
    compat: str | None,
    leave: str | None,
    resources: tuple[str, ...],
    no_resources: bool,
    max_age: int | None,
    push_lanes: int | None,
    ids_personal: str | None,
    forget_after_days: int | None,
) -> None:
    """Change the given settings of a feed, and keep the others."""
    if resources and no_resources:
        raise click.UsageError("--resource and --no-resources cannot be combined")
    options: dict[str, object] = {
        "object_url": object_url,
        "compat": COMPATS[0] if compat == NONE else compat,
        "leave": None if leave is None else leave == "on",
        "max_age_s": max_age,
        "push_lanes": push_lanes,
        "ids_personal": None if ids_personal is None else ids_personal == "on",
        "forget_after_days": forget_after_days,
    }
    named = {name: value for name, value in options.items() if value is not None}
    if resources or no_resources:
        named["resources"] = tuple(parse(text, target.feed) for text in resources)
    if not named:
        raise click.UsageError(
            "name what to set: --object-url, --compat, --leave, --resource, --max-age,"
            " --push-lanes, --ids-personal or --forget-after"
        )
    profile = target.change(lambda old: replace(old, **named))  # type: ignore[arg-type]
    click.echo("\n".join(settings_lines(target.feed, profile)))


@feed.command()
@click.argument("role", type=click.Choice([role.value for role in PASSWORD_ROLES]))
@target_options
@click.option(
    "--password-file",
    type=click.File(encoding="utf-8"),
    help="Read the password from FILE; - for stdin.",
)
@click.option("--generate", is_flag=True, help="Generate a strong password and print it once.")
@click.option("--keep-old", is_flag=True, help="Keep the current password valid as well.")
@click.option("--remove-old", is_flag=True, help="Remove all passwords but the newest.")
@click.option("--remove", is_flag=True, help="Remove all passwords; the role is closed.")
def password(
    role: str,
    target: Target,
    password_file: IO[str] | None,
    generate: bool,
    keep_old: bool,
    remove_old: bool,
    remove: bool,
) -> None:
    """
    Set or remove the password to read a feed, or to post to it (ingest).

    The command prompts for the password twice, or reads it from a file or stdin. Only a hash of the
    password is stored.

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
    wanted = Role(role)
    if remove:
        profile = target.change(lambda old: with_passwords(old, wanted, ()))
    elif remove_old:
        profile = target.change(lambda old: without_old(old, wanted))
    else:
        text = secrets.token_urlsafe(GENERATED_BYTES) if generate else _read_given(password_file)
        stored = hash_password(text, salt=os.urandom(SALT_BYTES), now_ms=now_ms())
        profile = target.change(lambda old: with_password(old, wanted, stored, keep_old=keep_old))
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

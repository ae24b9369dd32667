"""`tidings context`: name feeds in a file of the user, so that commands need no address."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from tidings.client import contexts as stored
from tidings.client.address import base_url
from tidings.client.cli.main import EXIT_CODES
from tidings.client.cli.options import CONTEXT_VARIABLE, URL_VARIABLE, json_option
from tidings.client.cli.render import answer, compact, failures, printable, rows, show
from tidings.client.contexts import Context, Contexts
from tidings.client.errors import WrongUrl

_COLUMNS = ("current", "name", "address", "feed", "password")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)

_name = click.argument("name")


@click.group(epilog=EXIT_CODES)
def context() -> None:
    """Name feeds, so that commands need no --url, --feed and --password-file.

    The contexts are in a file that only you can read, tidings/contexts.json below
    XDG_CONFIG_HOME or ~/.config. It has no passwords, but names the files or commands that
    provide them.

    \b
    A command uses the first address that is given by:
      1. --url, --stage or --context
      2. the variable TIDINGS_URL, then TIDINGS_CONTEXT
      3. the context of `tidings context use`
      4. the default, http://127.0.0.1:8042

    \b
    Examples:
      tidings context set prod --url https://feed.example --password-file ~/key
      tidings context set dev --stage dev --feed orders
      tidings context use prod
      tidings status --context dev
    """


@context.command("list", epilog=EXIT_CODES)
@json_option
def list_(as_json: bool) -> None:
    """Show all contexts, without passwords.

    \b
    Examples:
      tidings context list
      tidings context list --json | jq -r '.[].name'
    """
    known = _load()
    found = [_document(known, name) for name in sorted(known.named)]
    if as_json:
        click.echo(compact(found))
    else:
        show(rows(found, _COLUMNS, empty="no contexts", row=_row))
    set_by = next((name for name in (URL_VARIABLE, CONTEXT_VARIABLE) if _environment(name)), "")
    if set_by and not as_json:
        click.echo(f"{set_by} is set and has precedence over the current context", err=True)


@context.command(epilog=EXIT_CODES)
@_name
@json_option
def use(name: str, as_json: bool) -> None:
    """Use the context NAME in all commands without an address.

    \b
    Example:
      tidings context use prod
    """
    with failures():
        known = _load().use(name)
        stored.save(_path(), known)
    answer(_document(known, name), f"the current context is {name}", as_json=as_json)


@context.command("set", epilog=EXIT_CODES)
@_name
@click.option("--url", metavar="URL", help="Address of Tidings.")
@click.option("--stage", metavar="NAME", help="Stage on AWS, instead of an address.")
@click.option("--feed", help="Name of the feed.  [default: main]")
@click.option(
    "--password-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File with the password or key; it is read by each command.",
)
@click.option(
    "--password-command",
    metavar="TEXT",
    help="Program, with arguments, that prints the password, such as that of a keyring.",
)
@click.option("--no-password", is_flag=True, help="Send no password.")
@json_option
def set_(name: str, no_password: bool, as_json: bool, **given: Any) -> None:
    """Create the context NAME, or change the given fields of an existing one.

    The first context becomes the current one. The password command runs without a shell, each
    time a command needs the password.

    \b
    Examples:
      tidings context set prod --url https://feed.example --password-file ~/key
      tidings context set prod --feed orders
      tidings context set prod --password-command 'secret-tool lookup app tidings'
      tidings context set dev --stage dev
    """
    if not _NAME.fullmatch(name):
        raise click.UsageError("NAME must be 1 to 63 letters, digits, dots, hyphens, underscores")
    with failures(usage=WrongUrl):
        known = _load()
        context = _changed(known.named.get(name, Context()), given, no_password=no_password)
        if not context.url and not context.stage:
            raise click.UsageError("a new context needs --url or --stage")
        if context.url:
            base_url(context.url)
        known = known.put(name, context)
        known = known if known.current else known.use(name)
        stored.save(_path(), known)
    line = f"{name} is {context.url or f'the stage {context.stage}'}"
    answer(_document(known, name), line, as_json=as_json)


def _changed(old: Context, given: dict[str, Any], *, no_password: bool) -> Context:
    if given["url"] and given["stage"]:
        raise click.UsageError("give either --url or --stage")
    file, command = given["password_file"], given["password_command"]
    if bool(file) + bool(command) + no_password > 1:
        rule = "give one of --password-file, --password-command and --no-password"
        raise click.UsageError(rule)
    changes: dict[str, Any] = {}
    if given["feed"] is not None:
        changes["feed"] = given["feed"]
    if given["url"] or given["stage"]:
        changes |= {"url": given["url"] or "", "stage": given["stage"] or ""}
    if no_password or file or command:
        path = str(file.expanduser().absolute()) if file else ""
        changes |= {"password_file": path, "password_command": _words(command or "")}
    return replace(old, **changes)


def _words(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise click.UsageError(f"--password-command: {error}") from None


@context.command(epilog=EXIT_CODES)
@_name
@json_option
def remove(name: str, as_json: bool) -> None:
    """Remove the context NAME. The file of its password is kept.

    \b
    Example:
      tidings context remove dev
    """
    with failures():
        stored.save(_path(), _load().remove(name))
    answer({"removed": name}, f"{name} is removed", as_json=as_json)


def _environment(name: str) -> str:
    environment = os.environ  # noqa: TID251 (the environment of the user, not of a function)
    return environment.get(name, "")


def _path() -> Path:
    return stored.path_of({"XDG_CONFIG_HOME": _environment("XDG_CONFIG_HOME")})


def _load() -> Contexts:
    with failures():
        return stored.load(_path())


def _document(known: Contexts, name: str) -> dict[str, Any]:
    """Return a context as JSON, with the source of its password but without the password."""
    return {"name": name, "current": known.current == name, **known.named[name].document()}


def _row(document: Any) -> dict[str, Any]:
    command = printable(shlex.join(document.get("password_command") or ()))
    return {
        "current": "*" if document["current"] else "",
        "name": document["name"],
        "address": document.get("url") or f"stage {document['stage']}",
        "feed": document.get("feed", "main"),
        "password": command or document.get("password_file", ""),
    }

"""The options of a command that give it a password."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from tidings.client import auth
from tidings.client.errors import NoPassword

VARIABLE = "TIDINGS_PASSWORD"


def password_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds --password-file and --password to a command, which is given one *password*."""

    @functools.wraps(command)
    def with_password(password_file: Path | None, password: str | None, **others: Any) -> None:
        command(password=_chosen(password_file, password), **others)

    in_file = click.option(
        "--password-file",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Read the password from this file.",
    )
    in_text = click.option(
        "--password",
        metavar="TEXT",
        envvar=VARIABLE,
        show_envvar=True,
        help="The password. Given here, other users of this machine can see it.",
    )
    return in_file(in_text(with_password))


def _chosen(path: Path | None, text: str | None) -> str:
    """A file that is named goes before a variable that happens to be set."""
    if path is None:
        return text or ""
    source = click.get_current_context().get_parameter_source("password")
    if source is ParameterSource.COMMANDLINE:
        raise click.UsageError("give the password either with --password-file or with --password")
    try:
        return auth.from_file(path)
    except NoPassword as error:
        raise click.ClickException(str(error)) from None

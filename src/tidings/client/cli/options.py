"""
The options by which a command learns which feed it is about, for all commands alike.

A feed is asked over HTTP, by its address or the name of a stage that has one, and a password or
key; or its tables are used, by the name of its stage and credentials of AWS, or by the address of
a twin's DynamoDB.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem
from tidings.client import auth
from tidings.client.address import DEFAULT_FEED, DEFAULT_URL
from tidings.client.cli.render import failures
from tidings.client.errors import NoPassword
from tidings.client.subscription import FIELDS, from_text

if TYPE_CHECKING:
    from tidings.client.consume.named_consumers import NamedConsumers

Command = Callable[..., None]

LOCAL = "local"  # the twin at its own port: nobody has to be asked
_KNOWN = ("dev", "staging", "prod", LOCAL)  # what a shell completes; others are taken, too
_LOOKED_UP = "tidings.admin.target"  # imported where a stage is named: it needs AWS
_PASSWORD_VARIABLE = "TIDINGS_PASSWORD"

feed_option = click.option("--feed", default=DEFAULT_FEED, show_default=True, help="Which feed.")
stage_option = click.option(
    "--stage", metavar="NAME", help="Its stage, by its tables: dev, staging, prod, as AWS has it."
)
endpoint_option = click.option(
    "--endpoint-url", metavar="URL", help="Instead: the DynamoDB of a twin."
)
json_option = click.option("--json", "as_json", is_flag=True, help="The answer as JSON, one line.")


def filter_options(command: Command) -> Command:
    """Adds the options of a filter to a command, which is given *wanted*: lists by field."""

    @functools.wraps(command)
    def with_filter(**others: Any) -> None:
        given = {name: others.pop(name) for name in FIELDS}
        wanted = {name: _listed(name, text) for name, text in given.items() if text}
        command(wanted=wanted, **others)

    for name, metavar, text in (
        ("--ids", "I,J", "Only objects with these ids; x* begin with x."),
        ("--parents", "X,Y", "Only objects below one of these."),
        ("--types", "A,B", "Only objects of these types."),
    ):
        with_filter = click.option(name, default="", metavar=metavar, help=text)(with_filter)
    return with_filter


def _listed(name: str, text: str) -> list[str]:
    try:
        return from_text(text)
    except ValueError as error:
        rule = f'--{name} {text}: a list that begins with [" must be a JSON array of strings'
        raise click.UsageError(f"{rule}: {error}") from None


def password_options(command: Command) -> Command:
    """Adds --password-file and --password to a command, which is given one *password*."""

    @functools.wraps(command)
    def with_password(password_file: Path | None, password: str | None, **others: Any) -> None:
        command(password=_password(password_file, password), **others)

    in_file = click.option(
        "--password-file",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Read the password from this file.",
    )
    in_text = click.option(
        "--password",
        metavar="TEXT",
        envvar=_PASSWORD_VARIABLE,
        show_envvar=True,
        help="The password. Given here, other users of this machine can see it.",
    )
    return in_file(in_text(with_password))


def _password(path: Path | None, text: str | None) -> str:
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


def address_options(command: Command) -> Command:
    """
    Adds --url and --stage to a command, which is given *url*.

    With --stage that is where the command has to ask, and *ws_url* the stage's own, if the
    command has such an option and it is not used. A command may have an argument *address*, too.
    """

    @functools.wraps(command)
    def with_address(url: str | None, stage: str | None, **others: Any) -> None:
        address = others.pop("address", None)
        if sum(map(bool, (url, stage, address))) > 1:
            raise click.UsageError("say once where it is: as an address, or with --stage")
        if stage and stage != LOCAL:
            url, others = _on(stage, others)
        command(url=url or address or DEFAULT_URL, **others)

    at = click.option("--url", help=f"Where Tidings is.  [default: {DEFAULT_URL}]")
    named = click.option(
        "--stage",
        metavar="NAME",
        shell_complete=_completed,
        help="Its stage instead: dev, staging, prod, as AWS has it; local.",
    )
    return at(named(with_address))


def _on(stage: str, others: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Where the command asks on *stage*, and what is different for it there."""
    if others.get("sse"):
        raise click.UsageError("--sse goes with --url: a stage streams at an address of its own")
    addresses = _looked_up(stage)
    if "ws_url" in others:
        others = others | {"ws_url": others["ws_url"] or addresses.sockets}
    return addresses.stream if others.get("transport") == "sse" else addresses.feed, others


def _looked_up(stage: str) -> Any:
    """
    Where the stage is, for each kind of request: `feed`, `stream` and `sockets`.

    Raises:
        ClickException: AWS cannot be asked, or knows no such stage.
    """
    if find_spec("boto3") is None:
        raise click.ClickException(
            "--stage needs boto3, not installed here; install the extra: pip install 'tidings[aws]'"
        )
    return importlib.import_module(_LOOKED_UP).addresses(stage)


def _completed(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in _KNOWN if name.startswith(incomplete)]


@dataclass(frozen=True, slots=True)
class Place:
    """Which feed, where over HTTP, and the password for it."""

    url: str
    feed: str
    password: str = field(repr=False)

    @contextmanager
    def asking(self) -> Iterator[NamedConsumers]:
        """An error of the client becomes the one line that a person reads, and exit code 1."""
        from tidings.client.consume.named_consumers import NamedConsumers

        with failures(), NamedConsumers(self.url, self.feed, password=self.password) as api:
            yield api


def place_options(command: Command) -> Command:
    """Adds --url, --stage, --feed and a password's to a command, which is given one *place*."""
    return address_options(feed_option(password_options(_with_place(command))))


def place_of_argument(command: Command) -> Command:
    """The same without --feed: *feed* is an argument of the command, or the default one."""
    return address_options(password_options(_with_place(command)))


def _with_place(command: Command) -> Command:
    @functools.wraps(command)
    def with_place(url: str, password: str, feed: str = DEFAULT_FEED, **others: Any) -> None:
        command(place=Place(url, feed, password), **others)

    return with_place


@dataclass(frozen=True, slots=True)
class NamedFeed:
    """*feed*, and where: one of *url*, *stage* and *endpoint_url* is not empty."""

    feed: str
    url: str = ""
    stage: str = ""
    endpoint_url: str = ""
    password: str = field(default="", repr=False)


def named_feed_options(command: Command) -> Command:
    """Adds all of them and a password's to a command, which is given one *named* feed."""

    @functools.wraps(command)
    def with_feed(
        feed: str,
        url: str | None,
        stage: str | None,
        endpoint_url: str | None,
        password: str,
        **others: Any,
    ) -> None:
        check_once(url, stage, endpoint_url)
        if stage == LOCAL:
            stage, url = None, DEFAULT_URL
        if not stage and not endpoint_url:
            url = url or DEFAULT_URL
        named = NamedFeed(feed, url or "", stage or "", endpoint_url or "", password)
        command(named=named, **others)

    at = click.option("--url", help=f"Where it is, over HTTP.  [default: {DEFAULT_URL}]")
    return feed_option(at(stage_option(endpoint_option(password_options(with_feed)))))


def check_once(*places: str | None) -> None:
    """
    Raises:
        UsageError: more than one of *places* is named.
    """
    if sum(map(bool, places)) > 1:
        raise click.UsageError("say once where the feed is: --url, --stage or --endpoint-url")

"""
The options that name a feed, shared by all commands.

Most commands use a feed over HTTP. They need the URL of the feed or the name of its stage, and a
password or key. The other commands use the tables of a feed directly. They need the name of the
stage and AWS credentials, or the address of the DynamoDB of a twin.
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

from tidings.client.address import DEFAULT_FEED, DEFAULT_URL, FIELDS, from_text
from tidings.client.cli.render import failures
from tidings.client.errors import NoPassword
from tidings.client.files import read_password

if TYPE_CHECKING:
    from tidings.client.feed_api import NamedConsumers

Command = Callable[..., None]

LOCAL = "local"  # the name of the twin at the default port, so its address needs no lookup
_KNOWN = ("dev", "staging", "prod", LOCAL)  # names for shell completion; others are also accepted
_TARGET_MODULE = "tidings.admin.target"  # imported only for a stage, because it needs boto3
_PASSWORD_VARIABLE = "TIDINGS_PASSWORD"

feed_option = click.option(
    "--feed", default=DEFAULT_FEED, show_default=True, help="Name of the feed."
)
stage_option = click.option(
    "--stage",
    metavar="NAME",
    help="Stage of the feed: dev, staging, prod. The command uses the tables of the stage.",
)
endpoint_option = click.option(
    "--endpoint-url", metavar="URL", help="Address of the DynamoDB of a twin, instead of a stage."
)
erasures_option = click.option(
    "--erasures",
    is_flag=True,
    help="Receive an erasure as `erase` with its reason, instead of as `delete`.",
)
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print the answer as one line of JSON."
)


def filter_options(command: Command) -> Command:
    """Add the options of a filter to a command, which receives *wanted*: a list for each field."""

    @functools.wraps(command)
    def with_filter(**others: Any) -> None:
        given = {name: others.pop(name) for name in FIELDS}
        wanted = {name: _parse_list(name, text) for name, text in given.items() if text}
        command(wanted=wanted, **others)

    for name, metavar, text in (
        ("--ids", "I,J", "Only objects with these ids; x* matches ids that begin with x."),
        ("--parents", "X,Y", "Only objects with one of these parents."),
        ("--types", "A,B", "Only objects of these types."),
    ):
        with_filter = click.option(name, default="", metavar=metavar, help=text)(with_filter)
    return with_filter


def _parse_list(name: str, text: str) -> list[str]:
    try:
        return from_text(text)
    except ValueError as error:
        rule = f'--{name} {text}: a list that begins with [" must be a JSON array of strings'
        raise click.UsageError(f"{rule}: {error}") from None


def password_options(command: Command) -> Command:
    """Add --password-file and --password to a command, which receives one *password*."""

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
        help="The password. Other users of this machine can see it in the process list.",
    )
    return in_file(in_text(with_password))


def _password(path: Path | None, text: str | None) -> str:
    """Return the password. A file option takes precedence over the environment variable."""
    if path is None:
        return text or ""
    if is_given("password"):
        raise click.UsageError("give the password either with --password-file or with --password")
    try:
        return read_password(path)
    except NoPassword as error:
        raise click.ClickException(str(error)) from None


def is_given(parameter: str) -> bool:
    """Return True if the user wrote the *parameter* of the current command."""
    source = click.get_current_context().get_parameter_source(parameter)
    return source is ParameterSource.COMMANDLINE


def address_options(command: Command) -> Command:
    """
    Add --url and --stage to a command, which receives *url*.

    With --stage, *url* is the address of the stage. If the command has the option *ws_url* and the
    user does not set it, *ws_url* becomes the stage's WebSocket address. A command may also have an
    argument *address*, which can be used in place of --url.
    """

    @functools.wraps(command)
    def with_address(url: str | None, stage: str | None, **others: Any) -> None:
        address = others.pop("address", None)
        if sum(map(bool, (url, stage, address))) > 1:
            raise click.UsageError("name the feed once: by its address, or with --stage")
        if stage and stage != LOCAL:
            url, others = _on(stage, others)
        command(url=url or address or DEFAULT_URL, **others)

    at = click.option("--url", help=f"Address of Tidings.  [default: {DEFAULT_URL}]")
    named = click.option(
        "--stage",
        metavar="NAME",
        shell_complete=_complete,
        help="Stage instead of an address: dev, staging, prod, or local for a twin.",
    )
    return at(named(with_address))


def _on(stage: str, others: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the URL of *stage*, and *others* with the stage's WebSocket address."""
    if others.get("sse"):
        rule = "give the address of the stage's streams with --url"
        raise click.UsageError(f"--sse cannot be used with --stage; {rule}")
    addresses = _addresses_of(stage)
    if "ws_url" in others:
        others = others | {"ws_url": others["ws_url"] or addresses.sockets}
    return addresses.stream if others.get("transport") == "sse" else addresses.feed, others


def _addresses_of(stage: str) -> Any:
    """
    Return the addresses of the stage: `feed`, `stream` and `sockets`.

    Raises:
        ClickException: AWS cannot be queried, or has no such stage.
    """
    if find_spec("boto3") is None:
        raise click.ClickException(
            "--stage needs boto3, which is not installed here; install the extra:"
            " pip install 'tidings[aws]'"
        )
    return importlib.import_module(_TARGET_MODULE).addresses(stage)


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in _KNOWN if name.startswith(incomplete)]


@dataclass(frozen=True, slots=True)
class Place:
    """A feed, its URL and its password."""

    url: str
    feed: str
    password: str = field(repr=False)

    def ask(self, method: str, path: str, **sent: Any) -> dict[str, Any]:
        """Return the answer to one request, see `FeedApi.ask`; report errors as `asking` does."""
        with self.asking() as api:
            return api.ask(method, path, **sent)

    @contextmanager
    def asking(self) -> Iterator[NamedConsumers]:
        """Yield a client. Report errors of the client in one line, with exit code 1."""
        from tidings.client.feed_api import NamedConsumers

        with failures(), NamedConsumers(self.url, self.feed, password=self.password) as api:
            yield api


def place_options(command: Command) -> Command:
    """Add --url, --stage, --feed and the password options to a command, which receives *place*."""
    return address_options(feed_option(password_options(_with_place(command))))


def place_of_argument(command: Command) -> Command:
    """Do the same as `place_options` without --feed, which may be an argument of the command."""
    return address_options(password_options(_with_place(command)))


def _with_place(command: Command) -> Command:
    @functools.wraps(command)
    def with_place(url: str, password: str, feed: str = DEFAULT_FEED, **others: Any) -> None:
        command(place=Place(url, feed, password), **others)

    return with_place


@dataclass(frozen=True, slots=True)
class NamedFeed:
    """A feed with its location; exactly one of *url*, *stage* and *endpoint_url* is not empty."""

    feed: str
    url: str = ""
    stage: str = ""
    endpoint_url: str = ""
    password: str = field(default="", repr=False)


def named_feed_options(command: Command) -> Command:
    """Add --feed, all locations and the password options to a command, which receives *named*."""

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

    at = click.option("--url", help=f"Address of the feed over HTTP.  [default: {DEFAULT_URL}]")
    return feed_option(at(stage_option(endpoint_option(password_options(with_feed)))))


def check_once(*places: str | None) -> None:
    """
    Check that at most one location is given.

    Raises:
        UsageError: *places* has more than one value.
    """
    if sum(map(bool, places)) > 1:
        raise click.UsageError("name the feed once: by --url, --stage or --endpoint-url")

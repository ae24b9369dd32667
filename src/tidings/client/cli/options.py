"""The options that name a feed, shared by all commands.

Most commands use a feed over HTTP. They need the URL of the feed or the name of its stage, and a
password or key. The other commands use the tables of a feed directly. They need the name of the
stage and AWS credentials, or the address of a DynamoDB.
"""

from __future__ import annotations

import functools
import getpass
import importlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from tidings.client.address import DEFAULT_FEED, DEFAULT_URL, SWITCHES, from_text
from tidings.client.cli.render import DEFAULT_SOURCE, HAS_PASSWORD, SOURCE, failures
from tidings.client.errors import ClientError, NoPassword
from tidings.client.files import read_password
from tidings.core.model.filters import FIELDS
from tidings.core.version import how_to_install

if TYPE_CHECKING:
    from tidings.client.contexts import Context
    from tidings.client.feed_api import NamedConsumers

Command = Callable[..., None]

_KNOWN = ("dev", "staging", "prod")  # names for shell completion; others are also accepted
_TARGET_MODULE = "tidings.admin.target"  # imported only for a stage, because it needs boto3
URL_VARIABLE, CONTEXT_VARIABLE = "TIDINGS_URL", "TIDINGS_CONTEXT"
_PASSWORD_VARIABLE = "TIDINGS_PASSWORD"
_OF_ADDRESS = ("url", "stage", "context", "password_file", "password", "timeout_s")
_URL = "--url"
_URL_HELP = f"Address of Tidings.  [env var: {URL_VARIABLE}; default: {DEFAULT_URL}]"

feed_option = click.option(
    "--feed", default=DEFAULT_FEED, show_default=True, help="Name of the feed."
)
# Like `feed_option`, for commands that may use a context, which may name another feed.
context_feed_option = click.option(
    "--feed", help=f"Name of the feed.  [default: the feed of the context, or {DEFAULT_FEED}]"
)
context_option = click.option(
    "--context",
    metavar="NAME",
    help="Use the address or stage, feed and password of this context; see `tidings context`.",
    shell_complete=lambda *given: _complete_context(*given),
)
timeout_option = click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Give up after this time without an answer.",
)
stage_option = click.option(
    "--stage",
    metavar="NAME",
    help="Stage of the feed: dev, staging, prod. The command uses the tables of the stage.",
)
endpoint_option = click.option(
    "--endpoint-url",
    metavar="URL",
    help="Address of a DynamoDB with the tables of the stage `local`, instead of AWS.",
)
data_option = click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of a server's data, instead of a stage or an address.",
)
JSON_HELP = "Print the answer as one line of JSON."
json_option = click.option("--json", "as_json", is_flag=True, help=JSON_HELP)


def switch_options(command: Command) -> Command:
    for name, text in reversed(SWITCHES.items()):
        command = click.option(f"--{name}", is_flag=True, help=text)(command)
    return command


def filter_options(command: Command) -> Command:
    """Add the options of a filter to a command, which receives *wanted*: a list for each field."""

    @functools.wraps(command)
    def with_filter(**others: Any) -> None:
        given = {name: others.pop(name) for name in FIELDS}
        wanted = {name: _parse_list(name, text) for name, text in given.items() if text is not None}
        command(wanted=wanted, **others)

    for name, metavar, text in (
        ("--ids", "I,J", "Only objects with these ids; x* matches ids that begin with x."),
        ("--parents", "X,Y", "Only objects with one of these parents."),
        ("--types", "A,B", "Only objects of these types."),
    ):
        with_filter = click.option(name, metavar=metavar, help=text)(with_filter)
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
    """Return the password: of an option, else of the environment, else of the context."""
    context = click.get_current_context()
    if path is None:
        location: Location | None = context.meta.get(_LOCATION)
        if not text and location is not None and location.context is not None:
            with failures():
                text = location.context.password()
        context.meta[HAS_PASSWORD] = bool(text)
        return text or ""
    if is_given("password"):
        raise click.UsageError("give the password either with --password-file or with --password")
    try:
        return read_password(path)
    except NoPassword as error:
        raise click.ClickException(str(error)) from None


def user_name() -> str:
    """Return the name of the user of this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # in a container, the user may have no name
        return "somebody"


def is_given(parameter: str) -> bool:
    """Return True if the user wrote the *parameter* of the current command."""
    source = click.get_current_context().get_parameter_source(parameter)
    return source is ParameterSource.COMMANDLINE


_LOCATION = "tidings.location"  # the key of the `Location` in click's context


@dataclass(frozen=True, slots=True)
class Location:
    """The place of the feed that the user gave: at most one of the addresses is not empty.

    *source* is the option, variable or context that has the address. *context* is None if the
    address is not from a context, because its password must not be sent to another address.
    """

    source: str
    url: str = ""
    stage: str = ""
    endpoint_url: str = ""
    context: Context | None = None

    @property
    def is_given(self) -> bool:
        return bool(self.url or self.stage or self.endpoint_url)

    def feed(self, given: str | None) -> str:
        """Return the name of the feed; *given* is the value of --feed."""
        return given or (self.context.feed if self.context else "") or DEFAULT_FEED


def locate(context: str | None, given: Mapping[str, str | None]) -> Location:
    """Return where the feed is: of an option, else of the environment, else of the current context.

    *context* is the value of --context, and *given* has the values of all other options and
    arguments that name a location. Without a location, all addresses of the result are empty.

    Raises:
        UsageError: more than one location is given.
        ClickException: the context does not exist, or the file of contexts is invalid.
    """
    named = {name: value for name, value in given.items() if value}
    if len(named) + bool(context) > 1:
        raise click.UsageError(f"name the feed once: by {', '.join(given)} or --context")
    environment = os.environ  # noqa: TID251 (the environment of the user, not of a function)
    url = environment.get(URL_VARIABLE, "")
    if named:
        ((option, value),) = named.items()
        member: dict[str, Any] = {option.removeprefix("--").replace("-", "_").lower(): value}
        found = Location(option, **member)
    elif url and not context:
        found = Location(URL_VARIABLE, url=url)
    else:
        found = _of_context(context, environment)
    meta = click.get_current_context().meta
    meta[_LOCATION], meta[SOURCE] = found, found.source
    return found


def _of_context(name: str | None, environment: Mapping[str, str]) -> Location:
    from tidings.client import contexts

    with failures():
        known = contexts.load(contexts.path_of(environment))
        name = name or environment.get(CONTEXT_VARIABLE) or known.current
        if not name:
            return Location(DEFAULT_SOURCE)
        context = known.find(name)
    return Location(f"the context {name}", context.url, context.stage, context=context)


def address_options(command: Command) -> Command:
    """Add --url, --stage, --context and --timeout to a command, receiving *url* and *timeout_s*.

    With a stage, *url* is the address of the stage. If the command has the option *ws_url* and the
    user does not set it, *ws_url* becomes the stage's WebSocket address. A command may also have an
    argument *address*, which can be used in place of --url. If the command has the option *feed*,
    its default is the feed of the context.
    """

    @functools.wraps(command)
    def with_address(
        url: str | None, stage: str | None, context: str | None, **others: Any
    ) -> None:
        given = {_URL: url, "--stage": stage}
        if "address" in others:
            given["URL"] = others.pop("address")
        location = locate(context, given)
        url = location.url or DEFAULT_URL
        if location.stage:
            url, others = _on(location.stage, others)
        if "feed" in others:
            others["feed"] = location.feed(others["feed"])
        command(url=url, **others)

    at = click.option(_URL, help=_URL_HELP)
    named = click.option(
        "--stage",
        metavar="NAME",
        shell_complete=_complete,
        help="Stage instead of an address: dev, staging, prod.",
    )
    return at(named(context_option(timeout_option(with_address))))


def url_options(command: Command) -> Command:
    """Add --url, --feed, --context and the password options to a command that has no --stage.

    The command receives *url*, which is empty if no address is given, *feed* and *password*.
    """
    return address_without_password(password_options(command))


def address_without_password(command: Command) -> Command:
    """Add the options of `url_options` without the password to a command."""

    @functools.wraps(command)
    def with_url(url: str | None, context: str | None, feed: str | None, **others: Any) -> None:
        location = locate(context, {_URL: url})
        url = location.url
        if location.stage:
            url = _addresses_of(location.stage).feed
        command(url=url, feed=location.feed(feed), **others)

    return click.option(_URL, help=_URL_HELP)(context_feed_option(context_option(with_url)))


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
    """Return the addresses of the stage: `feed`, `stream` and `sockets`."""
    if find_spec("boto3") is None:
        raise click.ClickException(
            f"--stage needs boto3, which is not installed here; {how_to_install('aws')}"
        )
    return importlib.import_module(_TARGET_MODULE).addresses(stage)


def _complete_context(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the contexts whose names begin with *incomplete*, for the shell."""
    from tidings.client import contexts

    environment = os.environ  # noqa: TID251 (the environment of the user, not of a function)
    try:
        known = contexts.load(contexts.path_of(environment)).named
    except ClientError:
        return []
    return [CompletionItem(name) for name in known if name.startswith(incomplete)]


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in _KNOWN if name.startswith(incomplete)]


@dataclass(frozen=True, slots=True)
class Access:
    """A feed, its URL and its password.

    *timeout_s* is the maximum time of a request with its repetitions, None for the defaults.
    """

    url: str
    feed: str
    password: str = field(repr=False)
    timeout_s: float | None = None

    @property
    def access(self) -> dict[str, Any]:
        """Return the arguments of a client that are the same for all feeds of the host."""
        return {"password": self.password, "timeout_s": self.timeout_s}

    def ask(self, method: str, path: str, **sent: Any) -> dict[str, Any]:
        """Return the answer to one request, see `FeedApi.ask`; report errors as `asking` does."""
        with self.asking() as api:
            return api.ask(method, path, **sent)

    @contextmanager
    def asking(self) -> Iterator[NamedConsumers]:
        """Yield a client. Report errors of the client in one line, with exit code 1."""
        from tidings.client.feed_api import NamedConsumers

        with failures(), NamedConsumers(self.url, self.feed, **self.access) as api:
            yield api


def access_options(command: Command) -> Command:
    """Add the options of `address_options`, --feed and a password; the command gets *feed*."""
    return address_options(context_feed_option(password_options(_with_access(command))))


def access_of_argument(command: Command) -> Command:
    """Do the same as `access_options` without --feed, which may be an argument of the command."""
    return address_options(password_options(_with_access(command)))


def managed_options(command: Command, reached: Callable[[Command], Command]) -> Command:
    """Add the options of *reached*, one of the above, and --data to a command."""
    asked = reached(command)

    @functools.wraps(asked)
    def with_place(data: Path | None, **others: Any) -> None:
        if data is None:
            asked(**others)
            return
        if any(map(is_given, _OF_ADDRESS)):
            raise click.UsageError("--data cannot be used with an address, a password or --timeout")
        given = {name: value for name, value in others.items() if name not in _OF_ADDRESS}
        feed = given.pop("feed", None) or DEFAULT_FEED
        command(feed=importlib.import_module(_TARGET_MODULE).InFolder(feed, data), **given)

    return data_option(with_place)


def _with_access(command: Command) -> Command:
    @functools.wraps(command)
    def with_access(
        url: str, password: str, timeout_s: float | None, feed: str = DEFAULT_FEED, **others: Any
    ) -> None:
        command(feed=Access(url, feed, password, timeout_s), **others)

    return with_access


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

    def with_feed(location: Location, feed: str, password: str, **others: Any) -> None:
        url, stage = location.url, location.stage
        if not stage and not location.endpoint_url:
            url = url or DEFAULT_URL
        named = NamedFeed(feed, url, stage, location.endpoint_url, password)
        command(named=named, **others)

    return location_options(functools.wraps(command)(with_feed))


def location_options(command: Command) -> Command:
    """Add --feed, all locations and the password options to a command.

    The command receives *location*, *feed* and *password*.
    """
    with_password = password_options(command)

    @functools.wraps(with_password)
    def with_location(
        feed: str | None,
        url: str | None,
        stage: str | None,
        endpoint_url: str | None,
        context: str | None,
        **others: Any,
    ) -> None:
        given = {_URL: url, "--stage": stage, "--endpoint-url": endpoint_url}
        location = locate(context, given)
        with_password(location=location, feed=location.feed(feed), **others)

    at = click.option(_URL, help=_URL_HELP)
    return context_feed_option(at(stage_option(endpoint_option(context_option(with_location)))))

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
from collections.abc import Callable, Iterable, Iterator, Mapping
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
from tidings.core.version import how_to_install

if TYPE_CHECKING:
    from tidings.client.contexts import Context
    from tidings.client.feed_api import NamedConsumers

Command = Callable[..., None]
Decorator = Callable[[Command], Command]
Given = dict[str, Any]  # the values of options, by the names of their parameters

_KNOWN = ("dev", "staging", "prod")  # names for shell completion; others are also accepted
_TARGET_MODULE = "tidings.admin.target"  # imported only for a stage, because it needs boto3
URL_VARIABLE, CONTEXT_VARIABLE = "TIDINGS_URL", "TIDINGS_CONTEXT"
_PASSWORD_VARIABLE = "TIDINGS_PASSWORD"
_OF_ADDRESS = ("url", "stage", "context", "password_file", "password", "timeout_s")
# The options and the argument that are the location of a feed, by the names of their parameters.
_LOCATIONS = {
    "url": "--url",
    "stage": "--stage",
    "endpoint_url": "--endpoint-url",
    "data": "--data",
    "address": "URL",
}


def adding(make: Callable[[Given, Given], Given], *options: Decorator) -> Decorator:
    """Return a decorator that adds *options* to a command.

    The command does not receive their values, but the arguments that *make* returns for these
    values. *make* also receives the values of all other options, and may change them.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_options(**others: Any) -> None:
            given = {name: others.pop(name) for name in names}
            command(**make(given, others), **others)

        for option in reversed(options):
            option(with_options)
        added = vars(with_options)["__click_params__"][: -len(options) - 1 : -1]
        names = [each.name for each in added]
        return with_options

    return decorate


url_option = click.option(
    "--url", help=f"Address of Tidings.  [env var: {URL_VARIABLE}; default: {DEFAULT_URL}]"
)
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


def _parse_list(name: str, text: str) -> list[str]:
    try:
        return from_text(text)
    except ValueError as error:
        rule = f'--{name} {text}: a list that begins with [" must be a JSON array of strings'
        raise click.UsageError(f"{rule}: {error}") from None


def _filter(given: Given, others: Given) -> Given:
    return {
        "wanted": {
            name: _parse_list(name, text) for name, text in given.items() if text is not None
        }
    }


# For a command that receives *wanted*, a list for each field.
filter_options = adding(
    _filter,
    click.option("--types", metavar="A,B", help="Only objects of these types."),
    click.option("--parents", metavar="X,Y", help="Only objects with one of these parents."),
    click.option(
        "--ids",
        metavar="I,J",
        help="Only objects with these ids; x* matches ids that begin with x.",
    ),
)
password_options = (
    click.option(
        "--password-file",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Read the password from this file.",
    ),
    click.option(
        "--password",
        metavar="TEXT",
        envvar=_PASSWORD_VARIABLE,
        show_envvar=True,
        help="The password. Other users of this machine can see it in the process list.",
    ),
)


def password_of(given: Given, location: Location) -> str:
    """Return the password: of an option, else of the environment, else of the context."""
    path, text = given["password_file"], given["password"]
    if path is None:
        if not text and location.context is not None:
            with failures():
                text = location.context.password()
        click.get_current_context().meta[HAS_PASSWORD] = bool(text)
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
    data: Path | None = None
    context: Context | None = None

    @property
    def is_given(self) -> bool:
        return self.source != DEFAULT_SOURCE

    def feed(self, given: str | None) -> str:
        """Return the name of the feed; *given* is the value of --feed."""
        return given or (self.context.feed if self.context else "") or DEFAULT_FEED


def locate(given: Given) -> Location:
    """Return where the feed is: of an option, else of the environment, else of the current context.

    *given* has --context, and all other options and arguments of the command that are a location.
    Without a location, all addresses of the result are empty.

    Raises:
        UsageError: more than one location is given.
        ClickException: the context does not exist, or the file of contexts is invalid.
    """
    named = {name: given[name] for name in _LOCATIONS if given.get(name)}
    if len(named) + bool(given["context"]) > 1:
        options = ", ".join(option for name, option in _LOCATIONS.items() if name in given)
        raise click.UsageError(f"name the feed once: by {options} or --context")
    environment = os.environ  # noqa: TID251 (the environment of the user, not of a function)
    url = environment.get(URL_VARIABLE, "")
    if named:
        ((name, value),) = named.items()
        member: Given = {"url" if name == "address" else name: value}
        found = Location(_LOCATIONS[name], **member)
    elif url and not given["context"]:
        found = Location(URL_VARIABLE, url=url)
    else:
        found = _of_context(given["context"], environment)
    click.get_current_context().meta[SOURCE] = found.source
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


def _address(given: Given, others: Given) -> Given:
    """Return *url* and *timeout_s*, and the *feed* of the context if the command has that option.

    With a stage, *url* is the address of the stage. If the command has the option *ws_url* and the
    user does not set it, *ws_url* becomes the stage's WebSocket address. A command may also have an
    argument *address*, which can be used in place of --url.
    """
    if "address" in others:
        given["address"] = others.pop("address")
    location = locate(given)
    found = {"url": location.url or DEFAULT_URL, "timeout_s": given["timeout_s"]}
    if location.stage:
        found["url"] = _url_on(location.stage, others)
    if "feed" in given:
        found["feed"] = location.feed(given["feed"])
    if "password" in given:
        found["password"] = password_of(given, location)
    return found


def _access(given: Given, others: Given) -> Given:
    given.setdefault("feed", others.pop("feed", None))  # an argument of some commands
    if given.get("data") is None:
        return {"feed": Access(**_address(given, others))}
    if any(map(is_given, _OF_ADDRESS)):
        raise click.UsageError("--data cannot be used with an address, a password or --timeout")
    in_folder = importlib.import_module(_TARGET_MODULE).InFolder
    return {"feed": in_folder(given["feed"] or DEFAULT_FEED, given["data"])}


_address_options = (
    url_option,
    click.option(
        "--stage",
        metavar="NAME",
        shell_complete=lambda *given: _matching(_KNOWN, given[-1]),
        help="Stage instead of an address: dev, staging, prod.",
    ),
    context_option,
    timeout_option,
)
# For a command that receives *url*, *timeout_s* and *feed*.
address_options = adding(_address, *_address_options, context_feed_option)
# For a command that receives an `Access`.
access_options = adding(_access, *_address_options, context_feed_option, *password_options)
# With --data, it receives a folder instead (`Managed`); the feed may be an argument of the command.
managed_options = adding(
    _access, data_option, *_address_options, context_feed_option, *password_options
)
managed_of_argument = adding(_access, data_option, *_address_options, *password_options)


def _url(given: Given, others: Given) -> Given:
    location = locate(given)
    url = location.url
    if location.stage:
        url = _addresses_of(location.stage).feed
    found = {"url": url, "feed": location.feed(given["feed"])}
    return found | ({"password": password_of(given, location)} if "password" in given else {})


# For commands without --stage that receive *feed* and *url*, which is empty without an address.
address_without_password = adding(_url, url_option, context_feed_option, context_option)
url_options = adding(_url, url_option, context_feed_option, context_option, *password_options)


def _url_on(stage: str, others: Given) -> str:
    """Return the URL of *stage*; set the WebSocket address in *others* if it has that option."""
    if others.get("sse"):
        rule = "give the address of the stage's streams with --url"
        raise click.UsageError(f"--sse cannot be used with --stage; {rule}")
    addresses = _addresses_of(stage)
    if "ws_url" in others:
        others["ws_url"] = others["ws_url"] or addresses.sockets
    return str(addresses.stream if others.get("transport") == "sse" else addresses.feed)


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
    return _matching(known, incomplete)


def _matching(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


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


@dataclass(frozen=True, slots=True)
class NamedFeed:
    """A feed with its location; exactly one of *url*, *stage* and *endpoint_url* is not empty.

    *is_given* is False if the location is the default.
    """

    feed: str
    url: str = ""
    stage: str = ""
    endpoint_url: str = ""
    password: str = field(default="", repr=False)
    is_given: bool = True


def _named(given: Given, others: Given) -> Given:
    at = locate(given)
    url = "" if at.stage or at.endpoint_url else at.url or DEFAULT_URL
    feed, password = at.feed(given["feed"]), password_of(given, at)
    return {"named": NamedFeed(feed, url, at.stage, at.endpoint_url, password, at.is_given)}


# For a command that receives *named*: --feed, all locations and a password.
named_feed_options = adding(
    _named,
    context_feed_option,
    url_option,
    stage_option,
    endpoint_option,
    context_option,
    *password_options,
)

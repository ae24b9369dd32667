"""Commands that are made from the declarations of routes (`tidings.http.wire`).

The names in the path of a route are arguments of its command. Each field of the query and the body
is an option with the type, the rule and the text of its declaration. A command adds its sentence,
its examples, and the text or table for an answer.
"""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import click

from tidings.client.address import from_text
from tidings.client.cli import render
from tidings.client.cli.main import EXIT_CODES
from tidings.client.cli.options import (
    JSON_HELP,
    Access,
    Command,
    managed_of_argument,
    managed_options,
)
from tidings.client.retries import repeat
from tidings.core.model.feeds import HOST
from tidings.http.wire import Declared, Field, extras_of, fields_of

if TYPE_CHECKING:
    from tidings.client.feed_api import Answer

Names = Mapping[str, str]
_FEED = "feed"
_PAGING = ("after", "limit")  # fields of lists, of which a command reads all pages
ATTEMPTS = 5  # in half a minute, in which a server restarts
_NAMES = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, kw_only=True)
class Option:
    """The differences between an option of a command and the declaration of its field.

    *text* replaces the text of the declaration. With *is_argument*, the field is an argument, and
    with *is_repeated*, each occurrence of the option is a value of a list.
    """

    name: str = ""
    metavar: str | None = None
    default: Any = None
    text: str = ""
    is_argument: bool = False
    is_repeated: bool = False

    def parameter(self, name: str, declared: Field) -> click.Parameter:
        """Return the parameter for the field *name*. Its value is None if it is not given."""
        schema = declared.kind.schema if declared.kind else {"type": "boolean"}
        if self.is_argument:
            if "enum" in schema:
                return click.Argument([f"{name}_"], type=click.Choice(schema["enum"]))
            return click.Argument([f"{name}_"], metavar=self.metavar or name.upper())
        text = next((each for each in extras_of(declared.hint) if isinstance(each, str)), "")
        settings: dict[str, Any] = {"help": self.text or f"{text[:1].upper()}{text[1:]}."}
        if schema.get("type") == "boolean" or schema.get("enum") == ["true", "false"]:
            settings |= {"is_flag": True, "flag_value": True, "default": None}
        else:
            settings |= {
                "type": self._type(name, declared, schema),
                "metavar": self.metavar,
                "show_default": isinstance(self.default, str),
                "required": declared.is_required and self.default is None,
                "multiple": self.is_repeated,
            }
            if self.default is not None:
                settings["default"] = self.default
        return click.Option([self.name or f"--{name.replace('_', '-')}", f"{name}_"], **settings)

    def _type(self, name: str, declared: Field, schema: Mapping[str, Any]) -> Any:
        if schema.get("type") == "integer":
            return click.IntRange(schema.get("minimum"), schema.get("maximum"))
        values = (schema.get("items", {}) if self.is_repeated else schema).get("enum")
        return click.Choice(values) if values else _Text(name, declared, as_one=self.is_repeated)


class _Text(click.ParamType[Any]):
    """A text or a list with the rule of a field. With *as_one*, it is one value of a list."""

    name = "text"

    def __init__(self, field: str, declared: Field, *, as_one: bool) -> None:
        self._field, self._kind, self._as_one = field, declared.kind, as_one

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if self._kind is None or self._as_one or not isinstance(value, str):
            return value
        if self._kind.schema.get("type") == "array":
            try:
                return from_text(value)
            except ValueError as error:
                rule = f'--{self._field} {value}: a list that begins with [" must be a JSON array'
                raise click.UsageError(f"{rule} of strings: {error}") from None
        try:
            self._kind.parse(value, self._field)
        except ValueError as error:
            self.fail(f"{value!r} {error}", param, ctx)
        return value


class Transport(Protocol):
    """The way to the service of a route."""

    def call(
        self, route: Declared, names: Names, given: Mapping[str, Any], headers: Names | None = None
    ) -> Answer:
        """Return the answer of *route*, for the *names* in its path and the *given* fields."""


class Managed(Protocol):
    """The place of a feed, such as `Access`."""

    feed: str
    timeout_s: float | None

    def asking(self) -> AbstractContextManager[Transport]:
        """Return the transport of requests about the feed. Report errors in one line."""


@dataclass(frozen=True)
class Call:
    """A call of a command: the *names* in the path of its *route*, and the fields that are *given*.

    *others* are the values of the options that the command adds.
    """

    transport: Transport
    route: Declared
    names: Names
    given: dict[str, Any]
    place: Managed
    others: dict[str, Any] = field(default_factory=dict)

    @property
    def over_http(self) -> bool:
        """Return True if only routes can be called, and no operation that is local."""
        return isinstance(self.place, Access)

    @property
    def is_of_host(self) -> bool:
        """Return True if the command is about the host instead of a feed."""
        return bool(self.given.get("host")) or self.place.feed == HOST

    def send(self, route: Any = None, headers: Names | None = None, **fields: Any) -> Answer:
        """Return the answer of *route*, by default that of the command; *fields* are added."""
        declared = self.route if route is None else route.declared
        return self.transport.call(declared, self.names, {**self.given, **fields}, headers)


def repeated(call: Call, **sent: Any) -> Answer:
    """Send a request that may be repeated; repeat it if the connection is lost."""
    return repeat(
        lambda: call.send(**sent),
        attempts_max=ATTEMPTS,
        within_s=call.place.timeout_s,
        on_lost=render.retry_reporter(),
        wait=time.sleep,
    )


def command_of(
    name: str,
    route: Any,
    text: str,
    *examples: str,
    shows: Callable[[Any], Any],
    part: str = "",
    by: Callable[[Call], Answer] = Call.send,
    others: Sequence[Callable[[Command], Command]] = (),
    options: Mapping[str, Option | None] | None = None,
    feed_argument: str = "",
    placed: Callable[[Declared], Callable[[Command], Command]] | None = None,
    each: str = "",
    called: str = "tidings",
) -> click.Command:
    """Return the command *name* for *route*, a method of `Routes`.

    *text* is its help. Each of the *examples* has the words after the name of the command, or is a
    whole line. *shows* returns the text or table for the answer, or for its list *part* with those
    of all pages. *by* sends the request. *others* are decorators of further options. *options* are
    by field or name in the path; with None, a field has no option. With *feed_argument*, the feed
    is an argument of that name, otherwise an option. *placed* returns the decorator of the options
    of a place, by default those of `Access`. With *each*, the noun of a member, JSON has a line for
    each. *called* are the words before the name.
    """
    declared: Declared = route.declared

    def callback(feed: Managed, as_json: bool, **values: Any) -> Any:
        with feed.asking() as transport:
            call = _call(transport, declared, feed, values)
            answer = by(call)
            found = answer[part] if part else answer
            while part and answer.get("next") is not None:
                answer = call.send(after=answer["next"])
                found += answer[part]
        if as_json:
            for line in found if each and part else [found]:
                click.echo(render.compact(line))
        elif (shown := shows(found)) is not None:
            render.show(shown)
        return found

    command: Command = callback
    for decorate in others:
        command = decorate(command)
    params = [*_parameters(declared, options or {}, feed_argument)]
    params += vars(command).pop("__click_params__", [])[::-1]
    if placed is not None:
        command = placed(declared)(command)
    elif feed_argument or _FEED not in _NAMES.findall(declared.paths[0]):
        command = managed_of_argument(command)
    else:
        command = managed_options(command)
    text_of_json = f"Print a line of JSON for each {each}." if each else JSON_HELP
    command = click.option("--json", "as_json", is_flag=True, help=text_of_json)(command)
    params += vars(command)["__click_params__"][::-1]
    return click.Command(
        name,
        callback=command,
        params=sorted(params, key=lambda each: isinstance(each, click.Option)),
        help=_help(text, f"{called} {name}", examples),
        epilog=EXIT_CODES,
    )


def _help(text: str, called: str, examples: Sequence[str]) -> str:
    if not examples:
        return inspect.cleandoc(text)
    lines = (each if "tidings " in each else f"{called} {each}".rstrip() for each in examples)
    title = "Example:" if len(examples) == 1 else "Examples:"
    return "\n".join([inspect.cleandoc(text), "", "\b", title, *(f"  {each}" for each in lines)])


def _parameters(
    declared: Declared, options: Mapping[str, Option | None], feed_argument: str
) -> Iterator[click.Parameter]:
    """Yield the parameters for the names in the path and the fields of a route."""
    for name in _NAMES.findall(declared.paths[0]):
        if option := options.get(name):
            yield click.Option([f"--{name}", f"{name}_"], help=option.text, default="")
        elif name != _FEED:
            yield click.Argument([f"{name}_"], metavar=name.upper())
        elif feed_argument:
            yield click.Argument([_FEED], metavar=feed_argument)
    for kind in declared.parameters.values():
        for name, each in fields_of(kind).items():
            chosen = None if name in _PAGING else options.get(name, Option())
            if chosen is not None:
                yield chosen.parameter(name, each)


def _call(transport: Transport, route: Declared, feed: Managed, values: dict[str, Any]) -> Call:
    names = {name: values.pop(f"{name}_", feed.feed) for name in _NAMES.findall(route.paths[0])}
    fields = {name for kind in route.parameters.values() for name in fields_of(kind)}
    given = {name: values.pop(f"{name}_", None) for name in fields}
    given = {
        name: [*value] if isinstance(value, tuple) else value
        for name, value in given.items()
        if value not in (None, ())
    }
    return Call(transport, route, names, given, feed, values)


class Resource(click.Group):
    """A group of commands about one kind of resource; *settings* are those of each command."""

    def __init__(self, name: str, text: str, *examples: str, **settings: Any) -> None:
        called = f"tidings {name}"
        super().__init__(name, help=_help(text, called, examples), epilog=EXIT_CODES)
        self._settings = {"called": called, **settings}

    def add(self, name: str, route: Any, *words: str, **settings: Any) -> None:
        """Add a command; the arguments are those of `command_of`."""
        options = {**self._settings.get("options", {}), **settings.get("options", {})}
        all_of_it = {**self._settings, **settings, "options": options}
        self.add_command(command_of(name, route, *words, **all_of_it))

"""The options for the settings of a feed, of `tidings feed set` and `tidings feeds create`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import click

from tidings.client.cli.render import cell, printable
from tidings.core.errors import InvalidSetting
from tidings.core.settings.documents import SETTINGS, Setting, settings_document
from tidings.core.settings.profiles import Profile
from tidings.core.settings.values import parse

Command = Callable[..., None]
NONE = "none"  # as a value of an option, means the empty text
_OTHERS = [each for each in SETTINGS.values() if each.name != "resources"]
NAMES = f"{', '.join(f'--{each.option}' for each in _OTHERS)} or --resource"


def _option(setting: Setting) -> Any:
    values = setting.schema.get("enum")
    kinds: dict[str, Any] = {"boolean": click.Choice(["on", "off"]), "integer": int}
    kind = click.Choice([each or NONE for each in values]) if values else None
    return click.option(
        f"--{setting.option}",
        setting.name,
        type=kind or kinds.get(setting.schema["type"]),
        help=setting.meaning,
    )


def _value(setting: Setting, given: Any) -> Any:
    if setting.schema["type"] == "boolean":
        return given == "on"
    return "" if given == NONE and "enum" in setting.schema else given


def settings_options(command: Command) -> Command:
    """Add an option for each setting to a command, which receives *settings*.

    *settings* has only the settings that the user gave, in the form of a request (PROTOCOL 23.1).
    """

    @functools.wraps(command)
    def with_settings(resources: tuple[str, ...], no_resources: bool, **others: Any) -> None:
        if resources and no_resources:
            raise click.UsageError("--resource and --no-resources cannot be combined")
        given = ((each, others.pop(each.name)) for each in _OTHERS)
        settings = {each.name: _value(each, value) for each, value in given if value is not None}
        if resources or no_resources:
            settings["resources"] = [_resource(text) for text in resources]
        command(settings=settings, **others)

    for option in reversed((*map(_option, _OTHERS), *_OF_RESOURCES)):
        with_settings = option(with_settings)
    return with_settings


def settings_rows(settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the labelled *settings* that differ from those of a new feed."""
    of_new = settings_document(Profile())
    for name, value in settings.items():
        if isinstance(value, list) and value:
            named = (f"{each['resource']}: {', '.join(each['subResources'])}" for each in value)
            yield name, printable("; ".join(named))
        elif value != of_new.get(name):
            yield name.replace("_", " "), cell(value)


def _resource(text: str) -> dict[str, Any]:
    """Return the resource in *text*. Without a route, the host adds the route of the feed."""
    try:
        document = parse(text, "").document()
    except InvalidSetting as error:
        raise click.ClickException(str(error)) from None
    if "=" not in text:
        del document["bootstrapRoute"]
    return document


_OF_RESOURCES = (
    click.option(
        "--resource",
        "resources",
        multiple=True,
        metavar="NAME:SUB,SUB[=/ROUTE]",
        help="Declare a resource to listeners; repeatable. Replaces all earlier declarations.",
    ),
    click.option("--no-resources", is_flag=True, help="Declare no resources."),
)

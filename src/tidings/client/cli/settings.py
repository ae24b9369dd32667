"""The options for the settings of a feed, of `tidings feed set` and `tidings feeds create`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click

from tidings.client.cli.options import Given, adding
from tidings.client.cli.render import cell, printable
from tidings.core.errors import InvalidSetting
from tidings.core.settings.documents import SETTINGS, Setting, settings_document
from tidings.core.settings.profiles import Profile
from tidings.core.settings.values import parse

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


def _settings(given: Given, others: Given) -> Given:
    resources, no_resources = given.pop("resources"), given.pop("no_resources")
    if resources and no_resources:
        raise click.UsageError("--resource and --no-resources cannot be combined")
    settings = {
        name: _value(SETTINGS[name], value) for name, value in given.items() if value is not None
    }
    if resources or no_resources:
        settings["resources"] = [_resource(text) for text in resources]
    return {"settings": settings}


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


# Adds an option for each setting to a command, which receives *settings*: only those that the user
# gave, in the form of a request (PROTOCOL 23.1).
settings_options = adding(
    _settings,
    *map(_option, _OTHERS),
    click.option(
        "--resource",
        "resources",
        multiple=True,
        metavar="NAME:SUB,SUB[=/ROUTE]",
        help="Declare a resource to listeners; repeatable. Replaces all earlier declarations.",
    ),
    click.option("--no-resources", is_flag=True, help="Declare no resources."),
)

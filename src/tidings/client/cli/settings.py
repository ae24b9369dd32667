"""The options for the settings of a feed, of `tidings feed set` and `tidings feeds create`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from tidings.core.errors import InvalidSetting
from tidings.core.settings.values import parse

Command = Callable[..., None]
OPLOG, NONE = "oplog", "none"
_SWITCH = click.Choice(["on", "off"])
NAMES = (
    "--object-url, --compat, --leave, --resource, --max-age, --push-lanes, --ids-personal or"
    " --forget-after"
)


def settings_options(command: Command) -> Command:
    """Add an option for each setting to a command, which receives *settings*.

    *settings* has only the settings that the user gave, in the form of a request (PROTOCOL 23.1).
    """

    @functools.wraps(command)
    def with_settings(
        compat: str | None, resources: tuple[str, ...], no_resources: bool, **others: Any
    ) -> None:
        if resources and no_resources:
            raise click.UsageError("--resource and --no-resources cannot be combined")
        settings = {name: others.pop(name) for name in ("object_url", *_SWITCHES, *_NUMBERS)}
        settings |= {
            name: settings[name] == "on" for name in _SWITCHES if settings[name] is not None
        }
        settings["compat"] = "" if compat == NONE else compat
        if resources or no_resources:
            settings["resources"] = [_resource(text) for text in resources]
        given = {name: value for name, value in settings.items() if value is not None}
        command(settings=given, **others)

    for option in reversed(_OPTIONS):
        with_settings = option(with_settings)
    return with_settings


def _resource(text: str) -> dict[str, Any]:
    """Return the resource in *text*. Without a route, the host adds the route of the feed."""
    try:
        document = parse(text, "").document()
    except InvalidSetting as error:
        raise click.ClickException(str(error)) from None
    if "=" not in text:
        del document["bootstrapRoute"]
    return document


_SWITCHES = ("leave", "ids_personal")
_NUMBERS = ("max_age", "push_lanes", "forget_after_days")
_OPTIONS = (
    click.option(
        "--object-url", metavar="TEMPLATE", help="Template of the field `ref`; if empty, no `ref`."
    ),
    click.option("--compat", type=click.Choice([OPLOG, NONE]), help="Behave as oplog did, or not."),
    click.option(
        "--leave", type=_SWITCH, help="Store removed parents, for consumers with `leave=true`."
    ),
    click.option(
        "--resource",
        "resources",
        multiple=True,
        metavar="NAME:SUB,SUB[=/ROUTE]",
        help="Declare a resource to listeners; repeatable. Replaces all earlier declarations.",
    ),
    click.option("--no-resources", is_flag=True, help="Declare no resources."),
    click.option(
        "--max-age", type=int, help="Seconds that items are kept; 0: as long as other operations."
    ),
    click.option(
        "--push-lanes", type=int, help="Number of followers that push to the WebSockets of a stage."
    ),
    click.option(
        "--ids-personal",
        type=_SWITCH,
        help="Whether an erasure also removes the id of the object from earlier entries.",
    ),
    click.option(
        "--forget-after",
        "forget_after_days",
        type=int,
        metavar="DAYS",
        help="Erase objects this many days after they were deleted; 0: never.",
    ),
)

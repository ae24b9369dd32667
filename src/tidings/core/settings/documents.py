"""The settings of a feed as JSON: in requests (PROTOCOL 23.1), in records and in commands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidings.core import limits
from tidings.core.errors import InvalidSetting
from tidings.core.settings.profiles import COMPATS
from tidings.core.settings.values import Resource, own_route

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidings.core.settings.profiles import Profile

Document = dict[str, Any]
# The names of fields in the errors of `profiles.validate` that differ from those in a request.
_NAMES = {"maxAge": "max_age", "forget_after": "forget_after_days", "resource": "resources"}


def settings_of(profile: Profile) -> Document:
    """Return the fields of *profile* that are settings."""
    return {each.field: getattr(profile, each.field) for each in SETTINGS.values()}


def settings_document(profile: Profile) -> Document:
    """Return the settings in *profile*, without credentials, in the form of a request."""
    resources = [resource.document() for resource in profile.resources]
    of_profile = settings_of(profile)
    document = {name: of_profile[each.field] for name, each in SETTINGS.items()}
    return {**document, "resources": resources}


def profile_fields(document: Mapping[str, Any], feed: str) -> Document:
    """Return the fields of a `Profile` that *document* sets; *feed* is the name of the feed.

    Only the types of the values are checked. `profiles.validate` checks the result.

    Raises:
        InvalidSetting: a value has the wrong type.
    """
    return {
        SETTINGS[name].field: _PARSERS[SETTINGS[name].schema["type"]](value, name, feed)
        for name, value in document.items()
    }


def request_field(error: InvalidSetting) -> InvalidSetting:
    """Return *error* with the name that the field has in a request."""
    name = _NAMES.get(error.field, error.field)
    return InvalidSetting(error.rule, field=name, value=error.value)


def _text(value: object, name: str, feed: str) -> str:
    if not isinstance(value, str):
        raise InvalidSetting("must be a string", field=name, value=value)
    return value


def _switch(value: object, name: str, feed: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidSetting("must be true or false", field=name, value=value)
    return value


def _number(value: object, name: str, feed: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidSetting("must be a whole number", field=name, value=value)
    return value


def _resources(value: object, name: str, feed: str) -> tuple[Resource, ...]:
    if not isinstance(value, list):
        raise InvalidSetting("must be a list of resources", field=name, value=value)
    return tuple(_resource(each, name, feed) for each in value)


def _resource(value: object, name: str, feed: str) -> Resource:
    if not isinstance(value, dict) or not {*value} <= {*_RESOURCE["properties"]}:
        rule = f"must be a list of objects with {', '.join(_RESOURCE['properties'])}"
        raise InvalidSetting(rule, field=name, value=value)
    kind, subs = value.get("resource"), value.get("subResources", [])
    route = value.get("bootstrapRoute")
    texts = isinstance(subs, list) and all(isinstance(each, str) for each in subs)
    if not isinstance(kind, str) or not texts or not isinstance(route, str | None):
        rule = "has the strings resource and bootstrapRoute, and subResources, a list of strings"
        raise InvalidSetting(rule, field=name, value=value)
    return Resource(kind, tuple(subs), own_route(feed, kind) if route is None else route)


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting with its *name* in requests, its JSON Schema, and its *meaning* for help texts.

    *field* is the field of `Profile`, if it has another name. The *option* of commands has no unit.
    With *of_host*, the setting is also an option of the commands that start a host.
    """

    name: str
    schema: Document
    meaning: str
    field: str = ""
    of_host: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "field", self.field or self.name)

    @property
    def option(self) -> str:
        return self.name.removesuffix("_days").replace("_", "-")


_BOOLEAN: Document = {"type": "boolean"}
_INTEGER: Document = {"type": "integer", "format": "int64", "minimum": 0}
_RESOURCE: Document = {
    "type": "object",
    "required": ["resource"],
    "properties": {
        "resource": {"type": "string", "minLength": 1, "maxLength": limits.TYPE_BYTES_MAX},
        "subResources": {
            "type": "array",
            "items": {"type": "string", "minLength": 1, "maxLength": limits.PARENT_BYTES_MAX},
            "maxItems": limits.TAGS_MAX,
        },
        "bootstrapRoute": {
            "type": "string",
            "minLength": 1,
            "maxLength": limits.OBJECT_URL_CHARS_MAX,
        },
    },
    "additionalProperties": False,
}
_PARSERS: dict[str, Callable[[object, str, str], Any]] = {
    "string": _text,
    "boolean": _switch,
    "integer": _number,
    "array": _resources,
}
_SETTINGS = (
    Setting(
        "object_url",
        {"type": "string", "maxLength": limits.OBJECT_URL_CHARS_MAX},
        "Template of `ref`, the link to an object, e.g. http://api/{{type}}/{{id}}; if empty, no"
        " `ref`.",
    ),
    Setting(
        "compat",
        {"type": "string", "enum": [*COMPATS]},
        "With oplog, answer clients of oplog as oplog did.",
    ),
    Setting(
        "leave",
        _BOOLEAN,
        "Store removed parents, which readers with `leave=true` need.",
    ),
    Setting(
        "resources",
        {"type": "array", "items": _RESOURCE, "maxItems": limits.RESOURCES_MAX},
        "The resources of Triton for which listeners register.",
    ),
    Setting(
        "max_age",
        _INTEGER,
        "Seconds for which items of resources are kept; 0: as long as other operations.",
        field="max_age_s",
    ),
    Setting(
        "push_lanes",
        {"type": "integer", "minimum": 1, "maximum": limits.PUSH_LANES_MAX},
        "Number of followers that push to the WebSockets of a stage.",
        of_host=False,
    ),
    Setting(
        "ids_personal",
        _BOOLEAN,
        "Erasures also remove the id of the object from earlier entries.",
    ),
    Setting(
        "forget_after_days",
        {**_INTEGER, "maximum": limits.FORGET_AFTER_DAYS_MAX},
        "Erase objects this many days after they were deleted; 0: never.",
    ),
)
SETTINGS = {each.name: each for each in _SETTINGS}

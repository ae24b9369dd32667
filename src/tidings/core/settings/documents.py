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
        SETTINGS[name].field: SETTINGS[name].parse(value, name, feed)
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
    """A setting: its *field* in `Profile`, its JSON Schema, and the function that parses a value.

    *parse* is called with the value, the name of the setting and the name of the feed.
    """

    field: str
    parse: Callable[[object, str, str], Any]
    schema: Document


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
# The settings by name.
SETTINGS = {
    "object_url": Setting(
        "object_url", _text, {"type": "string", "maxLength": limits.OBJECT_URL_CHARS_MAX}
    ),
    "compat": Setting("compat", _text, {"type": "string", "enum": [*COMPATS]}),
    "leave": Setting("leave", _switch, _BOOLEAN),
    "resources": Setting(
        "resources",
        _resources,
        {"type": "array", "items": _RESOURCE, "maxItems": limits.RESOURCES_MAX},
    ),
    "max_age": Setting("max_age_s", _number, _INTEGER),
    "push_lanes": Setting(
        "push_lanes", _number, {"type": "integer", "minimum": 1, "maximum": limits.PUSH_LANES_MAX}
    ),
    "ids_personal": Setting("ids_personal", _switch, _BOOLEAN),
    "forget_after_days": Setting(
        "forget_after_days", _number, {**_INTEGER, "maximum": limits.FORGET_AFTER_DAYS_MAX}
    ),
}

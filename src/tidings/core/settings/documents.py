"""The settings of a feed as JSON: in requests (PROTOCOL 23.1), in records and in commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidings.core.errors import InvalidSetting
from tidings.core.settings.values import Resource, own_route

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidings.core.settings.profiles import Profile

Document = dict[str, Any]
_RESOURCE_FIELDS = ("resource", "subResources", "bootstrapRoute")
# The names of fields in the errors of `profiles.validate` that differ from those in a request.
_NAMES = {"maxAge": "max_age", "forget_after": "forget_after_days", "resource": "resources"}


def settings_document(profile: Profile) -> Document:
    """Return the settings in *profile*, without credentials, in the form of a request."""
    return {
        "object_url": profile.object_url,
        "compat": profile.compat,
        "leave": profile.leave,
        "resources": [resource.document() for resource in profile.resources],
        "max_age": profile.max_age_s,
        "push_lanes": profile.push_lanes,
        "ids_personal": profile.ids_personal,
        "forget_after_days": profile.forget_after_days,
    }


def profile_fields(document: Mapping[str, Any], feed: str) -> Document:
    """Return the fields of a `Profile` that *document* sets; *feed* is the name of the feed.

    Only the types of the values are checked. `profiles.validate` checks the result.

    Raises:
        InvalidSetting: a field is unknown, or its value has the wrong type.
    """
    for name in document:
        if name not in _FIELDS:
            rule = f"is not known here; the known fields are {', '.join(_FIELDS)}"
            raise InvalidSetting(rule, field=name)  # omit the value, which may be a secret
    fields = {}
    for name, value in document.items():
        field, parse = _FIELDS[name]
        fields[field] = parse(value, name, feed)
    return fields


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
    if not isinstance(value, dict) or not {*value} <= {*_RESOURCE_FIELDS}:
        rule = f"must be a list of objects with {', '.join(_RESOURCE_FIELDS)}"
        raise InvalidSetting(rule, field=name, value=value)
    kind, subs = value.get("resource"), value.get("subResources", [])
    route = value.get("bootstrapRoute")
    texts = isinstance(subs, list) and all(isinstance(each, str) for each in subs)
    if not isinstance(kind, str) or not texts or not isinstance(route, str | None):
        rule = "has the strings resource and bootstrapRoute, and subResources, a list of strings"
        raise InvalidSetting(rule, field=name, value=value)
    return Resource(kind, tuple(subs), own_route(feed, kind) if route is None else route)


# By the field of a request: the field of the profile, and the function that parses the value.
_FIELDS: dict[str, tuple[str, Callable[[object, str, str], Any]]] = {
    "object_url": ("object_url", _text),
    "compat": ("compat", _text),
    "leave": ("leave", _switch),
    "resources": ("resources", _resources),
    "max_age": ("max_age_s", _number),
    "push_lanes": ("push_lanes", _number),
    "ids_personal": ("ids_personal", _switch),
    "forget_after_days": ("forget_after_days", _number),
}

"""
Resources, for which listeners register: a type of objects, its sub-resources, and the route from
which a listener reads all objects before it goes live.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from tidings.core import limits
from tidings.core.errors import InvalidOperation, InvalidSetting, TooLarge
from tidings.core.model.operations import check_text, lower_case

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_CHANGE = "change"  # the type of changes in the log; see `changes`
_ROUTE = re.compile(r"/[!-~]*")


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource that the owner of a feed declared; listeners receive *route* unchanged."""

    name: str
    subs: tuple[str, ...]
    route: str

    def document(self) -> dict[str, object]:
        """Return it as in `/changefeeds` and the response to a registration."""
        return {
            "resource": self.name,
            "subResources": list(self.subs),
            "bootstrapRoute": self.route,
        }


def own_route(feed: str, name: str) -> str:
    """Return the route of the feed for all objects of a type, for services without their own."""
    return f"/feeds/{feed}/objects?type={quote(name, safe='')}"


def parse(text: str, feed: str) -> Resource:
    """
    Parse a resource in an operator's syntax: `NAME:SUB,SUB` or `NAME:SUB,SUB=/ROUTE`.

    Raises:
        InvalidSetting: a part is missing or breaks its rule.
    """
    kind, equals, route = text.partition("=")
    name, colon, subs = kind.partition(":")
    if not colon:
        raise InvalidSetting("must be NAME:SUB,SUB or NAME:SUB,SUB=/ROUTE", field=_F, value=text)
    given = tuple(sub for sub in subs.split(",") if sub)
    return check(Resource(name, given, route if equals else own_route(feed, name)))


def check(resource: Resource) -> Resource:
    """
    Return *resource* if it can be declared.

    Raises:
        InvalidSetting: see the rule in the error.
    """
    _check_name(resource.name, limits.TYPE_BYTES_MAX)
    if lower_case(resource.name) != resource.name:
        raise InvalidSetting("must be in lower case, as types are", field=_F, value=resource.name)
    if resource.name == _CHANGE:
        raise InvalidSetting("is what changes without an object are", field=_F, value=_CHANGE)
    if len(resource.subs) > limits.TAGS_MAX:
        rule = f"has at most {limits.TAGS_MAX} sub-resources, got {len(resource.subs)}"
        raise InvalidSetting(rule, field=_F, value=resource.name)
    for sub in resource.subs:
        _check_name(sub, limits.PARENT_BYTES_MAX)
    if not _ROUTE.fullmatch(resource.route) or len(resource.route) > limits.OBJECT_URL_CHARS_MAX:
        rule = f"must be a path of at most {limits.OBJECT_URL_CHARS_MAX} printable ASCII characters"
        raise InvalidSetting(rule, field="bootstrapRoute", value=resource.route)
    return resource


def check_all(resources: Sequence[Resource], max_age_s: int) -> None:
    """
    Return if *resources* and *max_age_s* can be the configuration of a feed.

    Raises:
        InvalidSetting: a resource appears twice or breaks its rule, or `maxAge` is missing.
    """
    seen: set[str] = set()
    for resource in resources:
        if check(resource).name in seen:
            rule = f'Resource "{resource.name}" appears multiple times in configuration'
            raise InvalidSetting(rule)
        seen.add(resource.name)
    if len(resources) > limits.RESOURCES_MAX:
        rule = f"a feed declares at most {limits.RESOURCES_MAX}, got {len(resources)}"
        raise InvalidSetting(rule, field="resources")
    if not isinstance(max_age_s, int) or isinstance(max_age_s, bool):
        raise InvalidSetting("must be a whole number of seconds", field="maxAge", value=max_age_s)
    if resources and not max_age_s:
        raise InvalidSetting("is required beside resources, in seconds", field="maxAge")
    if max_age_s and max_age_s < limits.MAX_AGE_S_MIN:
        rule = f"must be at least {limits.MAX_AGE_S_MIN} seconds"
        raise InvalidSetting(rule, field="maxAge", value=max_age_s)


def declared(resources: Iterable[Resource]) -> Mapping[str, Resource]:
    """Return *resources* by name."""
    return {resource.name: resource for resource in resources}


_F = "resource"


def _check_name(name: str, bytes_max: int) -> None:
    try:
        check_text(name, _F, bytes_max)
    except (InvalidOperation, TooLarge) as error:
        raise InvalidSetting(error.rule, field=_F, value=name) from None

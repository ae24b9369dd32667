"""The resources that listeners of a feed register for, and the admissions of connections.

A listener is a client of Triton's protocol. A resource is a type of objects, with its sub-resources
and the route from which a listener reads all objects before it receives items.

An admission is the credential with which a connection was accepted, and the time when it ends. The
key of an open stream or WebSocket is not read again. The process that serves the connection reads
the profile of the feed every few seconds anyway, and the profile lists the keys that ended. An open
connection therefore costs no read of its key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from tidings.core import limits
from tidings.core.errors import InvalidOperation, InvalidSetting, TooLarge
from tidings.core.model.operations import check_text, lower_case

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


_CHANGE = "change"  # the type of changes in the log; see `changeagent.changes`
_ROUTE = re.compile(r"/[!-~]*")


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource that the owner of a feed declared; listeners receive *route* unchanged."""

    name: str
    subs: tuple[str, ...]
    route: str

    def document(self) -> dict[str, object]:
        """Return the resource as in `/changefeeds` and the response to a registration."""
        return {
            "resource": self.name,
            "subResources": list(self.subs),
            "bootstrapRoute": self.route,
        }


def own_route(feed: str, name: str) -> str:
    """Return the route of the feed itself for all objects of the type *name*."""
    return f"/feeds/{feed}/objects?type={quote(name, safe='')}"


def parse(text: str, feed: str) -> Resource:
    """Parse a resource as an operator writes it: `NAME:SUB,SUB` or `NAME:SUB,SUB=/ROUTE`.

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
    """Return *resource* if it can be declared.

    Raises:
        InvalidSetting: the resource breaks a rule, which the error names.
    """
    _check_name(resource.name, limits.TYPE_BYTES_MAX)
    if lower_case(resource.name) != resource.name:
        raise InvalidSetting("must be in lower case, as types are", field=_F, value=resource.name)
    if resource.name == _CHANGE:
        raise InvalidSetting("is reserved for changes without an object", field=_F, value=_CHANGE)
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
    """Check that *resources* and *max_age_s* can be the configuration of a feed.

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
    texts = (text for each in resources for text in (each.name, *each.subs, each.route))
    if (size := sum(len(text.encode()) for text in texts)) > limits.RESOURCES_BYTES_MAX:
        rule = f"hold at most {limits.RESOURCES_BYTES_MAX} bytes together, got {size}"
        raise InvalidSetting(rule, field="resources")
    if not isinstance(max_age_s, int) or isinstance(max_age_s, bool):
        raise InvalidSetting("must be a whole number of seconds", field="maxAge", value=max_age_s)
    if resources and not max_age_s:
        raise InvalidSetting("is required with resources, in seconds", field="maxAge")
    if max_age_s and max_age_s < limits.MAX_AGE_S_MIN:
        rule = f"must be at least {limits.MAX_AGE_S_MIN} seconds"
        raise InvalidSetting(rule, field="maxAge", value=max_age_s)


def by_name(resources: Iterable[Resource]) -> Mapping[str, Resource]:
    """Return *resources* by name."""
    return {resource.name: resource for resource in resources}


_F = "resource"


def _check_name(name: str, bytes_max: int) -> None:
    try:
        check_text(name, _F, bytes_max)
    except (InvalidOperation, TooLarge) as error:
        raise InvalidSetting(error.rule, field=_F, value=name) from None


FORGOTTEN = "*"  # in place of a key id, means all keys with an `Ended` that was dropped
# The time for which a process may still accept a key after the end of the key was recorded.
_LET_IN_MS = limits.KEY_AGE_MS + limits.CLOCK_SKEW_MS_MAX

Endings = Mapping[str, int]  # by key id, the time from which the key's connections must be closed


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a key. Connections admitted with *key* are closed at *from_ms*; 0 means at once.

    *noted_ms* is the time when this ending was recorded, by the clock of the recording process.
    """

    key: str
    noted_ms: int
    from_ms: int = 0


@dataclass(frozen=True, slots=True)
class Admission:
    """The credential of a connection.

    *key* is the id of the key, or empty for a password. *until_ms* is 0 if the credential does not
    expire. *rate* is the maximum of requests per second, or 0 if it is unlimited.
    """

    key: str = ""
    until_ms: int = 0
    rate: int = 0

    @property
    def may_end(self) -> bool:
        return bool(self.key or self.until_ms)

    def has_ended(self, endings: Endings, now_ms: int) -> bool:
        """Return True if the credential has expired, or if its key has ended by *endings*."""
        if 0 < self.until_ms <= now_ms:
            return True
        return self.key in endings and endings[self.key] <= now_ms


FOR_GOOD = Admission()


def may_be_forgotten(endings: Endings, since_ms: int, now_ms: int) -> bool:
    """Return True if the key of a connection accepted at *since_ms* may have a dropped ending.

    Streams and the sweep close such a connection, because an ending may have been dropped before
    the sweep reached the connection. If the key is still valid, the client reconnects.
    """
    return since_ms < endings.get(FORGOTTEN, 0) <= now_ms


def with_ending(endings: tuple[Ended, ...], ended: Ended) -> tuple[Ended, ...]:
    """Return *endings* with *ended* added at the end, and without obsolete endings.

    An ending is obsolete after `limits.CONNECTION_MS_MAX`, because no connection lives longer. If
    there are more than `limits.ENDED_MAX` endings, the oldest are dropped. Then every connection
    with a key is closed if it was accepted before all processes refused the keys of the dropped
    endings.
    """
    useful = ended.noted_ms - limits.CONNECTION_MS_MAX
    kept = [
        each
        for each in endings
        if each.key != ended.key and max(each.noted_ms, each.from_ms) > useful
    ]
    every = (*kept, ended)
    if len(every) <= limits.ENDED_MAX:
        return every
    named = [each for each in every if each.key != FORGOTTEN]
    room = limits.ENDED_MAX - 1
    lost = [each for each in every if each.key == FORGOTTEN] + named[:-room]
    return (Ended(FORGOTTEN, ended.noted_ms, max(map(_last_let_in, lost))), *named[-room:])


def _last_let_in(ended: Ended) -> int:
    """Return the time after which no process accepts the key of *ended*.

    If *ended* stands for dropped endings, no process accepts any of their keys after this time.
    """
    if ended.key == FORGOTTEN:
        return ended.from_ms
    return max(ended.noted_ms, ended.from_ms) + _LET_IN_MS

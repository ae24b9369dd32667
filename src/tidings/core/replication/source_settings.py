"""
What TIDINGS_SOURCES says: which feeds are chained.

`{"main": {"url": "https://HOST/feeds/main"}}` chains the feed main. What else a source may say are
the keys of `_FIELDS`; one that nobody knows is refused, because it would be ignored.
"""

from __future__ import annotations

import json
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from tidings.core import limits
from tidings.core.errors import Rejected
from tidings.core.model import filters
from tidings.core.model.feeds import NAME, check_known
from tidings.core.model.json_body import unique
from tidings.core.replication.selection import Selection, Share, parse_share
from tidings.core.replication.source import FallOff, Role, Source

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

URL_RULE = "must be https://HOST/feeds/NAME, without user, query and fragment"
CLUSTER_CHARS_MAX = 256  # as long as an address may well be; it becomes part of a key
RESTART_OFFSET_MAX = 1_000_000  # pages: more is the entire log, which an empty checkpoint reads


class WrongSource(Exception):
    """The rule, with the feed and the field that breaks it."""


def parse(text: str, feeds: frozenset[str], *, coordinated: bool) -> dict[str, Source]:
    """
    The chained ones among *feeds*; *coordinated* tells that there is a coordinator.

    Raises:
        WrongSource: a source breaks its rule.
    """
    try:
        document = json.loads(text, object_pairs_hook=unique) if text else {}
    except ValueError as error:
        raise WrongSource(f"must be JSON: {error}") from None
    if not isinstance(document, dict):
        raise WrongSource("must be a JSON object of feeds")
    return {feed: _source(feed, values, feeds, coordinated) for feed, values in document.items()}


def encoded(source: Source) -> dict[str, Any]:
    """What `parse` reads, of the fields that are not as they are by themselves."""
    wanted = source.selection.filter
    fields: dict[str, Any] = {
        **wanted.values(),
        "share": source.selection.share.encoded() if source.selection.share else None,
        "fall_off": source.fall_off.value if source.fall_off is not FallOff.BOOTSTRAP else None,
        "restart_offset": source.restart_offset or None,
        "role": source.role.value if source.role is not Role.LEADER else None,
        "leader": source.leader or None,
        "address": source.address or None,
        "cluster": source.cluster if source.cluster not in ("", source.url) else None,
        "leaders": source.leaders if source.leaders != 1 else None,
    }
    return {"url": source.url} | {
        name: value for name, value in fields.items() if value is not None
    }


def addresses(sources: Mapping[str, Source]) -> str:
    """
    As TIDINGS_SOURCES says it, but for what only a relay has to know; "" for none.

    So that a command knows which feeds it must not write to.
    """
    urls = {feed: {"url": source.url} for feed, source in sorted(sources.items())}
    return json.dumps(urls, separators=(",", ":")) if urls else ""


def _source(feed: str, values: object, feeds: frozenset[str], coordinated: bool) -> Source:
    try:
        check_known(feed, feeds)
        if not isinstance(values, dict):
            raise WrongSource("must be a JSON object")
        _check_fields(values)
        source = _read(values)
        _check_role(source, coordinated)
    except Rejected as error:
        raise WrongSource(f"{feed}: {error}") from None
    except WrongSource as error:
        raise WrongSource(f"{feed}: {error}") from None
    return source


def _check_fields(values: Mapping[str, Any]) -> None:
    for name in values:
        if name not in _FIELDS:
            raise WrongSource(f"{name}: is not known here; there are {', '.join(_FIELDS)}")
    if "url" not in values:
        raise WrongSource("url: is missing")


def _read(fields: Mapping[str, Any]) -> Source:
    """What is null is as if it were not said, but for the address that every source has."""
    given = {name: value for name, value in fields.items() if value is not None or name == "url"}
    values = {name: _FIELDS[name](value, name) for name, value in given.items()}
    sets = {name: values.pop(name, None) for name in filters.FIELDS}
    chosen = filters.wanting(**sets, leave=sets["parents"] is not None)
    source = Source(selection=Selection(chosen, values.pop("share", None)), **values)
    unnamed = source.role is Role.ELECTED and not source.cluster
    return replace(source, cluster=source.url) if unnamed else source


def _check_role(source: Source, coordinated: bool) -> None:
    """What a role needs, and what would be ignored with it."""
    elected = source.role is Role.ELECTED
    if source.role is Role.FOLLOWER and not source.leader:
        raise WrongSource("leader: a follower needs the address of the leader that it reads")
    if source.leader and source.role is not Role.FOLLOWER:
        raise WrongSource("leader: only a follower reads one that is named")
    if elected and not source.address:
        raise WrongSource("address: who is elected needs the address that others read it at")
    if elected and not coordinated:
        raise WrongSource("role: elections need TIDINGS_COORDINATOR")
    if not elected and (source.cluster or source.leaders != 1):
        raise WrongSource("role: a cluster and its leaders are for the role elected")


def feed_url(value: object, field: str) -> str:
    """
    The address of a feed, as others chain it.

    Raises:
        WrongSource: it is none.
    """
    try:
        parts = urlsplit(_text(value, field))
        plain = not (parts.query or parts.fragment or parts.username or parts.password)
        named = parts.path.rpartition("/feeds/")[2]
        reached = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        if reached and plain and "/feeds/" in parts.path and NAME.fullmatch(unquote(named)):
            return parts.geturl()
    except ValueError:  # a port that is none, a bracket that is not closed
        pass
    raise WrongSource(f"{field}: {URL_RULE}")


def _text(value: object, field: str) -> str:
    if not isinstance(value, str):
        raise WrongSource(f"{field}: must be a text")
    return value


def _names(value: object, field: str) -> frozenset[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise WrongSource(f"{field}: must be a list of texts")
    return filters.checked(value, field)


def _share(value: object, field: str) -> Share | None:
    return parse_share(_text(value, field))


def _fall_off(value: object, field: str) -> FallOff:
    return FallOff(_one_of(FallOff, value, field))


def _role(value: object, field: str) -> Role:
    return Role(_one_of(Role, value, field))


def _one_of(known: type[Enum], value: object, field: str) -> object:
    values = [each.value for each in known]
    if value not in values:
        raise WrongSource(f"{field}: must be one of {', '.join(values)}")
    return value


def _offset(value: object, field: str) -> int:
    return _whole(value, field, 0, RESTART_OFFSET_MAX)


def _leaders(value: object, field: str) -> int:
    return _whole(value, field, 1, limits.LEADERS_MAX)


def _whole(value: object, field: str, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise WrongSource(f"{field}: must be a whole number from {least} to {most}")
    return value


def _cluster(value: object, field: str) -> str:
    name = _text(value, field)
    if len(name) > CLUSTER_CHARS_MAX or not name.isprintable():
        raise WrongSource(f"{field}: must have at most {CLUSTER_CHARS_MAX} characters")
    return name


_FIELDS: dict[str, Callable[[object, str], Any]] = {
    "url": feed_url,
    **dict.fromkeys(filters.FIELDS, _names),
    "share": _share,
    "fall_off": _fall_off,
    "restart_offset": _offset,
    "role": _role,
    "leader": feed_url,
    "address": feed_url,
    "cluster": _cluster,
    "leaders": _leaders,
}

"""Sources of chained feeds (TIDINGS_SOURCES), and the part of the upstream that each feed copies.

Producers post to a local feed. A chained feed copies another feed page by page, with the same event
ids. A deployment may have both kinds. For example, `{"main": {"url": "https://HOST/feeds/main"}}`
chains the feed main. The keys of `_FIELDS` are all fields that a source may have; an unknown field
is refused instead of ignored.

A selection names types, parents and ids, like the filter of a consumer, and a share of the objects.
The hash of an object's key decides whether the object is in the share. A share is either a set of
remainders of the hash (`mod`) or a range of hashes (`range`). The hash is CRC-32 in every process
and every release, so that several feeds with different shares can together hold all objects.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from tidings.core import limits
from tidings.core.errors import InvalidFilter, Rejected
from tidings.core.model import filters
from tidings.core.model.feeds import NAME, check_known
from tidings.core.model.filters import EVERYTHING, Filter
from tidings.core.model.json_body import unique
from tidings.core.model.operations import as_event, has_object, is_erasure, object_key, parse_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidings.core.model.pages import Page
    from tidings.core.state.removed_parents import RemovedBySlot


_MOD = re.compile(r"mod:(\d{1,4}):(\d{1,4}(?:\+\d{1,4})*)", re.ASCII)
_RANGE = re.compile(r"range:([0-9a-f]{8})-([0-9a-f]{8})", re.ASCII)
SHARE_RULE = (
    f"must be mod:PARTS:PART+PART..., with at most {limits.SHARE_PARTS_MAX} parts counted from 0, "
    "or range:FIRST-LAST with 8 hex digits each"
)


def hash_of(key: str) -> int:
    return zlib.crc32(key.encode())


@dataclass(frozen=True, slots=True)
class Mod:
    """The objects for which the hash modulo *parts* is one of *chosen*."""

    parts: int
    chosen: frozenset[int]

    def holds(self, key: str) -> bool:
        return hash_of(key) % self.parts in self.chosen

    def encode(self) -> str:
        return f"mod:{self.parts}:{'+'.join(map(str, sorted(self.chosen)))}"


@dataclass(frozen=True, slots=True)
class Range:
    """The objects with a hash from *first* to *last*, both included."""

    first: int
    last: int

    def holds(self, key: str) -> bool:
        return self.first <= hash_of(key) <= self.last

    def encode(self) -> str:
        return f"range:{self.first:08x}-{self.last:08x}"


Share = Mod | Range


@dataclass(frozen=True, slots=True)
class Selection:
    """The part of a feed to copy.

    An entry without an object (`has_object`) is in every share, but is copied only if *filter*
    selects everything. An entry that records an erasure is copied even if *filter* and *share* do
    not select its object, but only if it is within *bound*, the bound of the reader's key. If
    *filter* names parents, it also selects operations that remove these parents from an object, so
    that the copy removes the object.
    """

    filter: Filter = EVERYTHING
    share: Share | None = None
    bound: Filter = EVERYTHING

    @property
    def is_everything(self) -> bool:
        return self.filter.is_everything and self.share is None

    def keeps(self, line: str, removed: tuple[str, ...] | None = ()) -> str | None:
        """Return the line to copy: *line*, a deletion if the object left the selection, or None.

        *removed* are the parents that the operation removed, or None if they are unknown.
        """
        if is_erasure(line):
            return line if self.is_within_bound(line) else None
        if not has_object(line):
            return line if self.filter.is_everything else None
        if not (self.filter.leave or self.filter.may_match(line)):
            return None  # avoids most of the parsing
        operation = parse_line(line)
        if self.share is not None and not self.share.holds(object_key(operation)):
            return None
        if self.filter.matches(operation):
            return line
        return as_event(line, "delete") if self.filter.left_by(operation, removed) else None

    def is_within_bound(self, line: str) -> bool:
        return self.bound.is_everything or self.bound.matches(parse_line(line))


ALL = Selection()


def select(page: Page, selection: Selection, removed: RemovedBySlot | None = None) -> Page:
    """Return *page* with only the operations that *selection* keeps, each in its slot.

    *removed* are the parents that the operations of *page* removed, or None if they are unknown.
    """
    if selection.is_everything:
        return page
    kept = [
        (slot, kept_line)
        for slot, line in page.entries()
        if (kept_line := selection.keeps(line, None if removed is None else removed.get(slot, ())))
    ]
    return page.only(kept)


def parse_share(text: str) -> Share | None:
    """Parse the output of `Mod.encode` or `Range.encode`. Return None for an empty text.

    Raises:
        InvalidFilter: *text* is not a share.
    """
    if not text:
        return None
    if match := _MOD.fullmatch(text):
        parts, chosen = int(match[1]), frozenset(map(int, match[2].split("+")))
        if 0 < parts <= limits.SHARE_PARTS_MAX and max(chosen) < parts:
            return Mod(parts, chosen)
    elif match := _RANGE.fullmatch(text):
        first, last = int(match[1], 16), int(match[2], 16)
        if first <= last:
            return Range(first, last)
    raise InvalidFilter(SHARE_RULE, field="share", value=text)


class FallOff(Enum):
    """The action of a chained feed if the upstream trimmed pages that were not copied yet."""

    BOOTSTRAP = "bootstrap"  # copy the upstream's state, then continue in its log
    WAIT = "wait"  # stop until an operator acts
    LATEST = "latest"  # delete all rows of the state, and continue with the upstream's next page


class Role(Enum):
    """The role in a cluster: a leader reads the master, and a follower reads a leader."""

    LEADER = "leader"
    FOLLOWER = "follower"
    ELECTED = "elected"  # an election decides between the two


@dataclass(frozen=True, slots=True)
class Source:
    """The configuration of a chained feed.

    *url* is the address of the feed at the master. *leader* is the address that a feed with the
    role follower reads instead. *address* is the address at which other members of the cluster read
    this feed. The members of *cluster* elect *leaders* leaders. If an operator resets an empty copy
    to an event, the copy starts *restart_offset* pages before the event.
    """

    url: str
    selection: Selection = ALL
    fall_off: FallOff = FallOff.BOOTSTRAP
    restart_offset: int = 0
    role: Role = Role.LEADER
    leader: str = ""
    address: str = ""
    cluster: str = ""
    leaders: int = 1


Sources = Mapping[str, Source]  # the source of each chained feed, by name; other feeds are local


URL_RULE = "must be https://HOST/feeds/NAME, without user, query and fragment"
CLUSTER_CHARS_MAX = 256  # a cluster is named by an address, which becomes part of a key
RESTART_OFFSET_MAX = 1_000_000  # pages; to start earlier, read the entire log from its beginning


class WrongSource(Exception):
    """A source is invalid. The message names the feed, the field and the rule."""


def parse_sources(text: str, feeds: frozenset[str], *, coordinated: bool) -> dict[str, Source]:
    """Parse TIDINGS_SOURCES. *coordinated* is True if the deployment has a coordinator.

    Raises:
        WrongSource: a source is invalid.
    """
    try:
        document = json.loads(text, object_pairs_hook=unique) if text else {}
    except ValueError as error:
        raise WrongSource(f"must be JSON: {error}") from None
    if not isinstance(document, dict):
        raise WrongSource("must be a JSON object of feeds")
    return {feed: _source(feed, values, feeds, coordinated) for feed, values in document.items()}


def addresses(sources: Mapping[str, Source]) -> str:
    """Return TIDINGS_SOURCES with only the addresses, or "" without sources.

    Commands use this value to know the feeds to which they must not write.
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
            known = ", ".join(_FIELDS)
            raise WrongSource(f"{name}: is not known here; the known fields are {known}")
    if "url" not in values:
        raise WrongSource("url: is missing")


def _read(fields: Mapping[str, Any]) -> Source:
    """Build a source. A field that is null gets its default, except the required field `url`."""
    given = {name: value for name, value in fields.items() if value is not None or name == "url"}
    values = {name: _FIELDS[name](value, name) for name, value in given.items()}
    sets = {name: values.pop(name, None) for name in filters.FIELDS}
    chosen = filters.wanting(**sets, leave=sets["parents"] is not None)
    source = Source(selection=Selection(chosen, values.pop("share", None)), **values)
    unnamed = source.role is Role.ELECTED and not source.cluster
    return replace(source, cluster=source.url) if unnamed else source


def _check_role(source: Source, coordinated: bool) -> None:
    """Refuse a role without the fields that it needs, or with fields that it would ignore."""
    elected = source.role is Role.ELECTED
    if source.role is Role.FOLLOWER and not source.leader:
        raise WrongSource("leader: a follower needs the address of the leader that it reads")
    if source.leader and source.role is not Role.FOLLOWER:
        raise WrongSource("leader: is valid only with the role follower")
    if elected and not source.address:
        raise WrongSource("address: an elected feed needs its address, at which others read it")
    if elected and not coordinated:
        raise WrongSource("role: elections need TIDINGS_COORDINATOR")
    if not elected and (source.cluster or source.leaders != 1):
        raise WrongSource("role: a cluster and its leaders are valid only with the role elected")


def parse_feed_url(value: object, field: str) -> str:
    """Return *value* if it is the address of a feed.

    Raises:
        WrongSource: *value* is not the address of a feed.
    """
    try:
        parts = urlsplit(_text(value, field))
        plain = not (parts.query or parts.fragment or parts.username or parts.password)
        named = parts.path.rpartition("/feeds/")[2]
        reached = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        if reached and plain and "/feeds/" in parts.path and NAME.fullmatch(unquote(named)):
            return parts.geturl()
    except ValueError:  # the port is invalid, or a bracket is not closed
        pass
    raise WrongSource(f"{field}: {URL_RULE}")


def _text(value: object, field: str) -> str:
    if not isinstance(value, str):
        raise WrongSource(f"{field}: must be a string")
    return value


def _names(value: object, field: str) -> frozenset[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise WrongSource(f"{field}: must be an array of strings")
    return filters.validate_values(value, field)


def _one_of(known: type[Enum], value: object, field: str) -> object:
    values = [each.value for each in known]
    if value not in values:
        raise WrongSource(f"{field}: must be one of {', '.join(values)}")
    return value


def _integer(value: object, field: str, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise WrongSource(f"{field}: must be a whole number from {least} to {most}")
    return value


def _cluster(value: object, field: str) -> str:
    name = _text(value, field)
    if len(name) > CLUSTER_CHARS_MAX or not name.isprintable():
        raise WrongSource(f"{field}: must have at most {CLUSTER_CHARS_MAX} printable characters")
    return name


_FIELDS: dict[str, Callable[[object, str], Any]] = {
    "url": parse_feed_url,
    **dict.fromkeys(filters.FIELDS, _names),
    "share": lambda value, field: parse_share(_text(value, field)),
    "fall_off": lambda value, field: FallOff(_one_of(FallOff, value, field)),
    "restart_offset": lambda value, field: _integer(value, field, 0, RESTART_OFFSET_MAX),
    "role": lambda value, field: Role(_one_of(Role, value, field)),
    "leader": parse_feed_url,
    "address": parse_feed_url,
    "cluster": _cluster,
    "leaders": lambda value, field: _integer(value, field, 1, limits.LEADERS_MAX),
}

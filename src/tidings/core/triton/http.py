"""
What a feed tells listeners over HTTP: its resources, who is registered, and every object there
is, page by page, for services that have no route to bootstrap from.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.auth.guard import READ, READ_ALL
from tidings.core.auth.quotas import free
from tidings.core.errors import InvalidCursor, InvalidFilter
from tidings.core.model.feeds import check_known
from tidings.core.model.operations import data_of, event_of, object_key, parse_line, type_prefix

if TYPE_CHECKING:
    from tidings.core.auth.guard import Credential, Guard
    from tidings.core.auth.quotas import Charges
    from tidings.core.model.filters import Filter
    from tidings.core.state.rows import Lines, StateStore
    from tidings.core.triton.stores import Registry

_AFTER = re.compile(r"([0-9]{1,3})/(.*)", re.DOTALL | re.ASCII)


@dataclass(slots=True)
class ObjectPage:
    """
    *objects* as JSON; *after* asks for the next page, None at the end. *read* is the size of what
    was read for it, as `limits.KEY_READ_SIZE` counts.
    """

    objects: list[str] = field(default_factory=list)
    size: int = 0
    read: int = 0
    after: str | None = None

    @property
    def full(self) -> bool:
        return len(self.objects) >= limits.OBJECTS_MAX or self.size >= limits.OBJECTS_BYTES_MAX

    def add(self, line: str) -> None:
        self.objects.append(data_of(line))
        self.size += len(line)


@dataclass(frozen=True, slots=True)
class ChangeFeeds:
    registry: Registry
    states: StateStore
    guard: Guard
    feeds: frozenset[str]
    charges: Charges = free

    def resources(self, name: str) -> dict[str, object]:
        """
        What may be registered for; no secret, so no password.

        Raises:
            InvalidFeed, UnknownFeed: no such feed here.
        """
        resources = self.guard.profiles.profile(check_known(name, self.feeds)).resources
        return {"resources": [resource.document() for resource in resources]}

    def stats(self, name: str, given: Credential | None) -> dict[str, object]:
        """
        Who is registered now. A listener of several resources is one, with an entry for each.

        Raises:
            InvalidFeed, UnknownFeed: no such feed here.
            NoPasswordSet, WrongPassword, WrongKey, OutsideKey: who asks may not know.
        """
        feed = check_known(name, self.feeds)
        READ_ALL.admit(self.guard, feed, given)
        entries = self.registry.registered(feed)
        return {
            "listeners": len({entry.connection_id for entry in entries}),
            "registrations": [entry.document() for entry in entries],
        }

    def objects(self, name: str, kind: str, after: str, given: Credential | None) -> ObjectPage:
        """
        The objects of the type *kind*, empty for all, behind *after*, empty for the first page.

        A page may hold few or none before the last one: it is the answer to a bounded search.

        Raises:
            InvalidFeed, UnknownFeed: no such feed here.
            NoPasswordSet, WrongPassword, WrongKey, OutsideKey: who asks may not know.
            InvalidCursor: *after* is none that we gave.
        """
        feed = check_known(name, self.feeds)
        allowed = READ.admit(self.guard, feed, given)
        bucket, key = _place(after)
        page, prefix = ObjectPage(), type_prefix(kind) if kind else ""
        for _ in range(limits.OBJECTS_READS_MAX):
            read = self.states.lines(feed, bucket, max(key, prefix) or None)
            last = _take(page, read, prefix, allowed.bound)
            bucket, key = (bucket, last) if last else (bucket + 1, "")
            if page.full or bucket == limits.BUCKETS:
                break
        self.charges(feed, allowed.admission).add(page.read)
        page.after = None if bucket == limits.BUCKETS else f"{bucket}/{key}"
        return page

    def one(self, name: str, kind: str, object_id: str, given: Credential | None) -> ObjectPage:
        """
        The object of the type *kind* with this id, where it lives; the page is the last.

        Raises:
            InvalidFeed, UnknownFeed: no such feed here.
            NoPasswordSet, WrongPassword, WrongKey, OutsideKey: who asks may not know.
            InvalidFilter: *kind* is empty.
        """
        feed = check_known(name, self.feeds)
        bound = READ.admit(self.guard, feed, given).bound
        if not kind:
            raise InvalidFilter("must be given with an id", field="type", value=kind)
        page = ObjectPage()
        for row in self.states.find(feed, [f"{type_prefix(kind)}{object_id}"]):
            if not row.deleted and bound.matches(parse_line(row.line)):
                page.add(row.line)
        return page


def _place(after: str) -> tuple[int, str]:
    if not after:
        return 0, ""
    given = _AFTER.fullmatch(after)
    if given is None or int(given[1]) >= limits.BUCKETS:
        raise InvalidCursor("must be what the page before gave", field="after", value=after)
    return int(given[1]), given[2]


def _take(page: ObjectPage, read: Lines, prefix: str, bound: Filter) -> str:
    """
    Add what lives of *read*, within *bound*, until the page is full.

    Where to go on, "" at the bucket's end.
    """
    page.read += sum(map(len, read.lines))
    for line in read.lines:
        operation = parse_line(line)
        key = object_key(operation)
        if not key.startswith(prefix):
            return ""
        if event_of(line) != "delete" and bound.matches(operation):
            page.add(line)
        if page.full:
            return key
    return read.after or ""

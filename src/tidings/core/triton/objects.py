"""Read the latest operation of each object, page by page.

A listener (a client of Triton's protocol) requests the objects if the service that publishes the
items has no bootstrap route of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.auth.quotas import free
from tidings.core.errors import InvalidCursor, InvalidFilter
from tidings.core.model.filters import EVERYTHING, Filter
from tidings.core.model.operations import (
    data_of,
    event_of,
    object_key,
    parse_line,
    seek,
    type_prefix,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidings.core.auth.guard import Allowed
    from tidings.core.auth.quotas import Charges
    from tidings.core.state.rows import StateStore

_AFTER = re.compile(r"([0-9]{1,3})/(.*)", re.DOTALL | re.ASCII)


@dataclass(slots=True)
class ObjectPage:
    """A page of *objects* as JSON.

    *size* is the length of the objects' lines. *after* is the value that requests the next page, or
    None after the last page. *read* is the number of characters that were read for the page, which
    count towards the rate of the key (`limits.KEY_READ_SIZE`).
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

    def take(self, lines: Sequence[str], wanted: Filter) -> str:
        """Add the existing objects of *lines* that *wanted* selects, until the page is full.

        Return the key of the last object that *wanted* selects, or "" if there is none.
        """
        last = ""
        self.read += sum(map(len, lines))
        for line in lines:
            operation = parse_line(line)
            if wanted.matches(operation):
                last = object_key(operation)
                if event_of(line) != "delete":
                    self.add(line)
            if self.full:
                break
        return last


@dataclass(frozen=True, slots=True)
class ObjectReader:
    states: StateStore
    charges: Charges = free

    def page(self, feed: str, kind: str, after: str, allowed: Allowed) -> ObjectPage:
        """Return a page of the objects of the type *kind*, or of all types if *kind* is empty.

        *after* is `ObjectPage.after` of the previous page, or empty for the first page. A page may
        have few or no objects even if it is not the last page, because its reads are limited.

        Raises:
            InvalidCursor: *after* was not returned with a page.
        """
        wanted = allowed.narrow(Filter(frozenset((kind,))) if kind else EVERYTHING)
        page, reads = ObjectPage(), 0
        # The next page continues at *shown*, which names no object outside the bound of the key.
        bucket, key = start = shown = _place(after)
        while bucket < limits.BUCKETS and not page.full:
            place = seek(wanted.types, key)
            read = None if place is None else self.states.lines(feed, bucket, place or None)
            last = page.take(read.lines, wanted) if read else ""
            shown = (bucket, last) if last else shown
            key = (read.after if read else None) or ""
            if not key and not page.full:
                bucket, key = shown = bucket + 1, ""
            reads += 1
            if reads >= limits.OBJECTS_READS_MAX and shown != start:
                break
        self.charges(feed, allowed.admission).add(page.read)
        page.after = None if shown[0] == limits.BUCKETS else f"{shown[0]}/{shown[1]}"
        return page

    def one(self, feed: str, kind: str, object_id: str, allowed: Allowed) -> ObjectPage:
        """Return a page with the object of the type *kind* with this id, if the object exists.

        Raises:
            InvalidFilter: *kind* is empty.
        """
        if not kind:
            raise InvalidFilter("must be given with an id", field="type", value=kind)
        page = ObjectPage()
        for row in self.states.find(feed, [f"{type_prefix(kind)}{object_id}"]):
            if not row.deleted and allowed.bound.matches(parse_line(row.line)):
                page.add(row.line)
        return page


def _place(after: str) -> tuple[int, str]:
    if not after:
        return 0, ""
    given = _AFTER.fullmatch(after)
    if given is None or int(given[1]) >= limits.BUCKETS:
        raise InvalidCursor("must be the value from the previous page", field="after", value=after)
    return int(given[1]), given[2]

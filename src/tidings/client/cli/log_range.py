"""Find the part of a feed's log that a command shows: since a time, or the last operations."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

import click

from tidings.client.feed_api import NamedConsumers
from tidings.core.consumers.position import OLDEST, oldest
from tidings.core.model import filters
from tidings.core.model.cursors import PAGE_END, Place, Replication, parse_cursor
from tidings.core.model.operations import Operation
from tidings.core.model.timestamps import normal_form, to_ms

Entry = Mapping[str, Any]  # an operation of the log, with `id`, `at_ms`, `event` and `data`
Matches = Callable[[Entry], bool]
_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_AGO = re.compile(r"(\d{1,6})([smhd])", re.ASCII)
_MINUTES = re.compile(r"([T ]\d\d:\d\d)(?=[Zz+-])", re.ASCII)
_IS_TIME = re.compile(r"\d{4}-")
_HINT = "a time with its zone (2026-11-28T21:00Z, 2026-11-28T21:00+01:00) or an age (90s, 1h, 2d)"


class Moment(click.ParamType[Any]):
    """A time in milliseconds since 1970: given with its zone, or as an age such as `1h`.

    With *cursors*, a cursor is left unchanged.
    """

    name = "time"

    def __init__(self, *, cursors: bool = False) -> None:
        self._cursors = cursors

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if ago := _AGO.fullmatch(value):
            return time.time_ns() // 1_000_000 - int(ago[1]) * _UNITS_MS[ago[2]]
        if self._cursors and not _IS_TIME.match(value):
            if value == OLDEST:
                return 0
            if parse_cursor(value) is None:
                rule = f"is not `0`, `oldest`, `now`, an event id, {_HINT}"
                self.fail(f"{value!r} {rule}", param, ctx)
            return value
        try:
            return to_ms(normal_form(_MINUTES.sub(r"\1:00", value).replace(" ", "T")))
        except ValueError:
            self.fail(f"{value!r} is not {_HINT}", param, ctx)


def matching(wanted: Mapping[str, Sequence[str]]) -> Matches:
    """Return a function that applies the filter *wanted*, a list for each field, to an entry."""
    chosen = filters.of(wanted)

    def matches(entry: Entry) -> bool:
        data = entry["data"]
        parents = tuple(data.get("parents") or ())
        return chosen.matches(Operation(entry["event"], data["type"], data["id"], parents))

    return matches


class LogRange:
    """The log of one feed, read by *api*."""

    def __init__(self, api: NamedConsumers) -> None:
        self._api = api
        ends = api.log()
        first, end = parse_cursor(ends["oldest"]), parse_cursor(ends["end"])
        self.end = str(ends["end"])
        # The first page, and the page after the last one; they are equal if the log is empty.
        self.floor = first.page if isinstance(first, Place) else 0
        self.head = end.page + 1 if isinstance(first, Place) and isinstance(end, Place) else 0

    def page_at(self, ms: int) -> int:
        """Return the first page that was committed at or after *ms*, or else `head`."""
        low, high = self.floor, self.head
        while low < high:
            middle = (low + high) // 2
            found = self._api.log({"from": _start(middle), "limit": "1"})["entries"]
            if not found or found[0]["at_ms"] >= ms:
                high = middle
            else:
                low = _page(found[0]) + 1
        return low

    def cursor_at(self, page: int) -> str:
        """Return the cursor from which a reader receives *page* and all later pages."""
        return self.end if page >= self.head else oldest(page)

    def last(self, count: int, matches: Matches, high: int | None = None) -> list[Entry]:
        """Return the last *count* entries that match, of the pages below *high*."""
        found: list[Entry] = []
        high, step = self.head if high is None else high, 1
        while high > self.floor and len(found) < count:
            low = max(self.floor, high - step)
            found = [*filter(matches, self.between(low, high)), *found]
            high, step = low, step * 2
        return found[-count:]

    def between(self, low: int, high: int, after: str = "") -> Iterator[Entry]:
        """Yield the entries of the pages from *low* to the one before *high*, after *after*."""
        begun, seen = _start(low), after
        while True:
            page = self._api.log({"from": begun, "to": Place(high - 1, PAGE_END - 1, 0).encode()})
            entries = [each for each in page["entries"] if each["id"] != seen]
            yield from entries
            if not entries:
                return
            begun = seen = entries[-1]["id"]

    def until(self, cursor: str, ms: int) -> Iterator[Entry]:
        """Yield the entries after *cursor* that were committed before *ms*."""
        place, low = parse_cursor(cursor), self.head
        if isinstance(place, Place | Replication):
            low = place.page + (isinstance(place, Replication) or place.slot >= PAGE_END)
        entries = self.between(max(low, self.floor), self.head)
        if isinstance(place, Place):
            entries = (each for each in entries if each["id"][8:] > cursor[8:])
        return takewhile(lambda each: each["at_ms"] < ms, entries)


def before(entry: Entry) -> str:
    """Return the cursor from which a reader receives *entry* first."""
    place = parse_cursor(entry["id"])
    assert isinstance(place, Place)
    if place.slot == 0:
        return oldest(place.page)
    return Place(place.page, place.slot - 1, place.seconds).encode()


def _start(page: int) -> str:
    return Place(page, 0, 0).encode()


def _page(entry: Entry) -> int:
    place = parse_cursor(entry["id"])
    assert isinstance(place, Place)
    return place.page

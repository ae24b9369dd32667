"""The promises of the feed, written down a second time as simply as possible.

Nothing here uses the code under test: pages are read as plain JSON and cursors as plain hex.
A broken promise raises `Broken` at the moment it is seen.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Sequence
from math import inf
from typing import Any, NamedTuple

PAGE_END = 0x7FFFFF
REPLICATION = 0x800000
DELETED = None

Position = tuple[int, int]


class Broken(BaseException):
    """A promise was broken; the message says which and where.

    It is not an error of the code under test: no handler of errors may continue after it.
    """


class Op(NamedTuple):
    at: Position
    at_ms: int
    event: str
    key: tuple[str, str]
    parents: tuple[str, ...]
    data: dict[str, Any]  # without its event, as consumers get it
    marker: str  # names the request it came in
    left: frozenset[str] = frozenset()  # the parents it took away
    erases: bool = False  # it records an erasure: the earlier ones of its object lose their content


class Wanted(NamedTuple):
    """A filter; None does not filter. *leave*: leaves of its parents are sent too."""

    types: frozenset[str] | None = None
    parents: frozenset[str] | None = None
    leave: bool = False

    def matches(self, op: Op) -> bool:
        return self.wants(op.key[0], op.parents)

    def wants(self, type: str, parents: Sequence[str]) -> bool:
        if self.types is not None and type not in self.types:
            return False
        return self.parents is None or any(parent in self.parents for parent in parents)

    def left_by(self, op: Op) -> bool:
        """Return True if it does not match any more, but its object did."""
        before = op._replace(parents=tuple(op.left))
        return self.leave and self.matches(before) and not self.matches(op)


class Place(NamedTuple):
    seconds: int
    page: int
    slot: int

    @staticmethod
    def of(text: str) -> Place:
        return Place(int(text[:8], 16), int(text[8:18], 16), int(text[18:], 16))

    @property
    def replicates(self) -> bool:
        return self.slot >= REPLICATION

    @property
    def at(self) -> Position:
        return self.page, self.slot


class Log:
    """Every page that was ever written, whatever became of it."""

    def __init__(self) -> None:
        self.frontier = 0
        self.ops: list[Op] = []  # of the pages up to the frontier, in order
        self.seconds: dict[int, int] = {}
        self.of_marker: dict[str, int] = {}
        self._pages: dict[int, tuple[str, ...]] = {}
        self._waiting: dict[int, list[Op]] = {}
        self._positions: list[Position] = []
        self._parents: dict[tuple[str, str], frozenset[str]] = {}
        self._last_erasure: Position = (0, 0)

    def written(self, number: int, lines: list[str], at_ms: int) -> None:
        """Note a page that a store accepted; *lines* is empty for a filler."""
        if number in self._pages:
            if self._pages[number] != tuple(lines):
                raise Broken(f"page {number} was written twice")
            return
        self._pages[number], self.seconds[number] = tuple(lines), at_ms // 1000
        ops = [_op(number, slot, at_ms, line) for slot, line in enumerate(lines)]
        for marker in {op.marker for op in ops}:
            if self.of_marker.setdefault(marker, number) != number:
                raise Broken(f"{marker} is on pages {self.of_marker[marker]} and {number}")
        self._waiting[number] = ops
        while (more := self._waiting.pop(self.frontier + 1, None)) is not None:
            self.frontier += 1
            self.ops += map(self._placed, more)
            self._positions += [op.at for op in more]

    @property
    def waits_since_s(self) -> float:
        """Return when the first page after a hole was written; infinity without a hole."""
        return min((self.seconds[number] for number in self._waiting), default=inf)

    def _placed(self, op: Op) -> Op:
        """Return *op* with the parents that it removed, now that its predecessor is known."""
        had = self._parents.get(op.key, frozenset())
        self._parents[op.key] = frozenset(() if op.event == "delete" else op.parents)
        if op.erases:
            self._last_erasure = op.at
        return op._replace(left=had.difference(op.parents))

    def check_acknowledged(self, ids: list[str], marker: str, count: int) -> None:
        """Promise 1: the ids of an answer are where the operations are."""
        for slot, place in enumerate(map(Place.of, ids)):
            page = self._pages.get(place.page)
            if page is None or place.slot != slot or len(page) != count:
                raise Broken(f"{marker} was acknowledged at page {place.page} without being there")
            if self.of_marker.get(marker) != place.page:
                raise Broken(f"{marker} was acknowledged at page {place.page}, not its own")
            if self.seconds[place.page] != place.seconds:
                raise Broken(f"{marker}: id of page {place.page} has another second")

    def page(self, number: int) -> tuple[tuple[str, ...], int]:
        """Return the lines of a page that was written, and its second."""
        return self._pages[number], self.seconds[number]

    def index(self, at: Position) -> int:
        """Return the number of operations before *at*."""
        return bisect_left(self._positions, at)

    def after(self, at: Position) -> int:
        """Return the index of the first operation after *at*."""
        found = self.index(at)
        return found + (found < len(self._positions) and self._positions[found] == at)

    def op(self, at: Position) -> Op | None:
        found = self.index(at)
        return self.ops[found] if found < len(self.ops) and self.ops[found].at == at else None

    def missed(self, behind: Position, before: Position, wanted: Wanted) -> Op | None:
        """Return the first matching operation strictly between two places."""
        for op in self.ops[self.after(behind) : self.index(before)]:
            if (wanted.matches(op) or wanted.left_by(op)) and not self.erasures_of(op):
                return op
        return None

    def erasures_of(self, op: Op) -> list[Op]:
        """Return the erasures after which *op* may have lost its content, and so its parents."""
        later = self.ops[self.index(op.at) :] if self.has_erasures else ()
        return [each for each in later if each.erases and each.key == op.key]

    @property
    def has_erasures(self) -> bool:
        return self._last_erasure != (0, 0) and self.op(self._last_erasure) is not None

    def shows(self, op: Op, data: dict[str, Any]) -> bool:
        """Return True if a consumer may get *data* for *op*, which may have been erased."""
        if op.data == data:
            return True
        kept = {"timestamp": op.data["timestamp"], "type": op.key[0], "parents": []}
        names = [f"erased:{each.at[0]:x}" for each in self.erasures_of(op)]
        return any({**kept, "id": name} == data for name in names)

    def is_same(self, at: Position, line: str, written: str) -> bool:
        """Return True if *line*, the entry at *at*, is as it was *written*, or was erased."""
        if line == written:
            return True
        op, data = self.op(at), json.loads(line)
        is_marked = data.pop("erased", None) is True and data.pop("event") == "delete"
        return op is not None and is_marked and self.shows(op, data)

    def lefts(self) -> dict[int, dict[int, tuple[str, ...]]]:
        """Return the parents that each page removed, by slot; of every page with operations."""
        found: dict[int, dict[int, tuple[str, ...]]] = {}
        for op in self.ops:
            page, slot = op.at
            of_page = found.setdefault(page, {})
            if op.left:
                of_page[slot] = tuple(sorted(op.left))
        return found

    def latest(self, wanted: Wanted) -> dict[tuple[str, str], Op]:
        """Return the fold: the last matching operation of each object."""
        return {op.key: op for op in self.ops if wanted.matches(op)}


def _op(page: int, slot: int, at_ms: int, line: str) -> Op:
    data = json.loads(line)
    event, key = data.pop("event"), (data["type"], data["id"])
    if data.pop("erase", False):
        marker = data.pop("data")["reason"]
        parents = tuple(data["parents"])
        return Op((page, slot), at_ms, event, key, parents, data, marker, erases=True)
    return Op((page, slot), at_ms, event, key, tuple(data["parents"]), data, data["data"]["of"])

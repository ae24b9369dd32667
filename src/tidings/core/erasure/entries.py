"""The entries of erasures: the entry that records an erasure, and entries without their content.

The erasure entry is a deletion of the object, so that the state, copies and consumers need no new
rule. Its `data` has the details, and it ends with a mark:

    {"event":"delete","timestamp":"...","parents":["user/1"],"type":"video","id":"x32",
     "data":{"by":"password ingest","reason":"..."},"erase":true}

Each earlier entry of the object keeps its page and slot, but not its content. The new id has the
page number of the erasure entry in hex:

    {"event":"delete","timestamp":"...","parents":[],"type":"video","id":"erased:1f","erased":true}

The functions of this module are pure.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.errors import InvalidOperation
from tidings.core.model.cursors import PAGE_END
from tidings.core.model.operations import (
    ERASED_MARK,
    ERASURE_MARK,
    build_line,
    is_erased,
    is_erasure,
    line_from,
    parse_line,
    parse_names,
    quoted,
)
from tidings.core.model.pages import encode, lines_of
from tidings.core.state import removed_parents

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from tidings.core.model.pages import Page
    from tidings.core.state.removed_parents import RemovedBySlot, RemovedParents

_PARENTS, _TYPE, _ID, _TAGS = '"parents":', ',"type":', ',"id":', ',"tags":'  # in this order
_NEEDLES_MAX = 8  # searching a page for more texts takes longer than parsing its lines
_DECODER = json.JSONDecoder()
Position = tuple[int, int]  # page and slot


@dataclass(frozen=True, slots=True)
class Entry:
    """The content of an erasure entry.

    Principal *by* requested the erasure of the object *type*, *id* for *reason*. *parents* are the
    parents that the object had. *before* is a cursor: only entries before it are erased; if it is
    "", all earlier entries are erased. With *as_parent*, the value `TYPE/ID` is also removed from
    the parents of other objects.
    """

    type: str
    id: str
    by: str
    reason: str
    parents: tuple[str, ...] = ()
    before: str = ""
    as_parent: bool = False

    @property
    def parent(self) -> str:
        """Return the value that is removed from the parents of other objects; "" if none is."""
        return f"{self.type}/{self.id}" if self.as_parent else ""


def encode_entry(entry: Entry, *, now_ms: int) -> str:
    """Return the line of the log for *entry*.

    Raises:
        InvalidOperation, TooLarge: see `build_line`.
    """
    data: dict[str, object] = {"by": entry.by, "reason": entry.reason}
    if entry.before:
        data["before"] = entry.before
    if entry.as_parent:
        data["parents"] = True
    names = entry.type, entry.id
    line = build_line(
        "delete", *names, None, list(entry.parents), (None, None, data), now_ms, where=""
    )
    return line[:-1] + ERASURE_MARK


def parse_entry(line: str) -> Entry:
    """Return the content of *line*, which is an erasure entry (`is_erasure`)."""
    fields = json.loads(line)
    data = fields["data"]
    return Entry(
        type=fields["type"],
        id=fields["id"],
        by=data["by"],
        reason=data["reason"],
        parents=tuple(fields["parents"]),
        before=data.get("before", ""),
        as_parent=bool(data.get("parents")),
    )


def pseudonym(page: int) -> str:
    """Return the id of the entries that the erasure with its entry on *page* has erased."""
    return f"erased:{page:x}"


def parse_request(raw: Mapping[str, object], *, by: str) -> Entry:
    """Return the erasure that a client requests with the fields *raw*.

    These are `type`, `id`, `reason`, and optionally `parents` (true or false) and `before` (an
    event id). Others are ignored.

    Raises:
        InvalidOperation: a field is missing, or breaks its rule.
        TooLarge: a field is too long.
    """
    reason, as_parent, before = raw.get("reason"), raw.get("parents", False), raw.get("before", "")
    if not isinstance(reason, str) or not 0 < len(reason) <= limits.WHY_CHARS_MAX:
        rule = f"must be a text of 1 to {limits.WHY_CHARS_MAX} characters"
        raise InvalidOperation(rule, field="reason", value=reason)
    if not isinstance(as_parent, bool):
        raise InvalidOperation("must be true or false", field="parents", value=as_parent)
    if not isinstance(before, str) or (not before and "before" in raw):
        raise InvalidOperation("must be an event id", field="before", value=before)
    # Building the line checks the type and the id in the same way as for an operation.
    asked = {name: raw[name] for name in ("type", "id") if name in raw}
    operation = parse_line(line_from({"event": "delete", **asked}, now_ms=0))
    names = operation.type, operation.id
    return Entry(*names, by, reason, before=before, as_parent=as_parent)


@dataclass(frozen=True, slots=True)
class Target:
    """The content that one erasure removes.

    It removes the content of each entry of the object *key*, with the id *id*, at a position before
    *until*, and the value *parent* from the parents and tags of entries before *until*, if it is
    not "". An object of the type `change` is also a change without an object. *name* replaces the
    id. The erasure entry itself is at *own*; it is erased only if *final*.
    """

    key: str
    id: str
    until: Position
    own: Position
    name: str
    parent: str = ""
    final: bool = False

    def needles(self) -> tuple[str, ...]:
        """Return texts one of which a line has if this erasure changes or has erased it."""
        parents = (quoted(self.parent),) if self.parent else ()
        return f'"id":{quoted(self.id)}', f'"id":{quoted(self.name)}', *parents


class _Targets:
    """Targets by names, which are keys of objects or parents."""

    def __init__(self, named: Iterable[tuple[str, Target]]) -> None:
        self._of: dict[str, list[Target]] = {}
        for name, target in named:
            of = self._of.setdefault(name, [])
            # A later one with the same name is only needed for later entries.
            if not of or of[-1].until < target.until:
                of.append(target)

    def first(self, name: str, at: Position) -> Target | None:
        """Return the first target with *name* that reaches the entry at *at*."""
        of = self._of.get(name)
        if of is None:
            return None
        found = bisect_right(of, at, key=lambda target: target.until)
        return of[found] if found < len(of) else None


@dataclass(frozen=True, slots=True)
class Scrubbed:
    """A page after an erasure; *page* is the same object if nothing had to be removed.

    The content of the entries in *slots* was removed; the value of a slot is `Target.name`.
    *entries* counts by `Target.name` the entries that were changed, and those that were erased
    before, for example by a run that was killed.
    """

    page: Page
    slots: Mapping[int, str]
    entries: Mapping[str, int]


class Scrubber:
    """Removes content of *targets* from pages. If *keeps_ids*, erased entries keep their ids.

    Each line is parsed once, whatever the number of targets. If several targets reach an entry, the
    first of them counts it. The result depends only on the arguments, so that a repeated run
    changes nothing.
    """

    def __init__(self, targets: Sequence[Target], keeps_ids: bool = False) -> None:
        self.targets, self._keeps_ids = targets, keeps_ids
        self._objects = _Targets((each.key, each) for each in targets)
        self._parents = _Targets((each.parent, each) for each in targets if each.parent)
        self._own = {each.own: each for each in targets if each.final}
        self._final_parents = {each.parent for each in self._own.values()}
        self._names = {each.name: each for each in targets if not each.final}
        self._needles = tuple(text for each in targets for text in each.needles())

    def scrub(self, page: Page) -> Scrubbed | None:
        """Return *page* with its new body, or None if it has no entry of a target.

        The page keeps its number, slots, commit time and trace.
        """
        text = page.text
        if not self.may_match(text):
            return None
        lines, slots, entries = lines_of(text), dict[int, str](), Counter[str]()
        before = lines.copy()
        for index, (slot, line) in enumerate(page.number_lines(before)):
            lines[index], names = self._scrub(line, (page.number, slot))
            entries.update(names)
            if lines[index] is not line and is_erased(lines[index]):
                slots[slot] = names[0] if names else self._own[page.number, slot].name
        if lines == before:
            return Scrubbed(page, slots, entries) if entries else None
        body = encode(lines, limits.ERASED_PAGE_BYTES_MAX)
        return Scrubbed(replace(page, body=body), slots, entries)

    def scrub_line(self, line: str, at: Position) -> str:
        """Return the entry *line* at the position *at* without the content to be removed."""
        return self.scrub_entry(line, at)[0]

    def scrub_entry(self, line: str, at: Position) -> tuple[str, Sequence[str]]:
        """Return the same as `scrub_line`, and the names of the targets that count the entry.

        These targets change the entry, or have erased it before.
        """
        return self._scrub(line, at) if self.may_match(line) else (line, ())

    def may_match(self, text: str) -> bool:
        """Return False if no line in *text* has content to be removed."""
        return len(self._needles) > _NEEDLES_MAX or any(each in text for each in self._needles)

    def scrub_removed(
        self, removed: RemovedParents, slots: Container[int]
    ) -> RemovedParents | None:
        """Return *removed* without the entries in *slots*, which are erased, and the parents.

        Return None if nothing has to be removed.
        """
        kept_by_slot: RemovedBySlot = {
            slot: kept
            for slot, parents in removed.by_slot.items()
            if slot not in slots
            and (kept := tuple(each for each in parents if not self._is_gone(each, removed.page)))
        }
        if kept_by_slot == removed.by_slot:
            return None
        body = removed_parents.encode(kept_by_slot)
        assert body is not None, "the result is smaller than the stored removed parents"
        return replace(removed, body=body)

    def _is_gone(self, parent: str, page: int) -> bool:
        """Return True if *parent* is to be removed from the removed parents of *page*."""
        if parent in self._final_parents:
            return True
        return self._parents.first(parent, (page, PAGE_END)) is not None

    def _scrub(self, line: str, at: Position) -> tuple[str, Sequence[str]]:
        if is_erasure(line):
            return (self._erased(line, self._own[at]), ()) if at in self._own else (line, ())
        key, values = parse_names(line)
        target = self._objects.first(key, at)
        if is_erased(line):
            target = self._names.get(key.rpartition("/")[2]) or (
                target if self._keeps_ids else None
            )
            return line, (target.name,) if target else ()
        if target is not None:
            return self._erased(line, target), (target.name,)
        found = {each: target for each in values if (target := self._parents.first(each, at))}
        if not found:
            return line, ()
        return without_values(line, found), [*{each.name: None for each in found.values()}]

    def _erased(self, line: str, target: Target) -> str:
        fields = json.loads(line)
        id_ = fields["id"] if self._keeps_ids else target.name
        return (
            f'{{"event":"delete","timestamp":{quoted(fields["timestamp"])},"parents":[],'
            f'"type":{quoted(fields["type"])},"id":{quoted(id_)}{ERASED_MARK}'
        )


def with_removed(removed: RemovedParents, slot: int, parents: Iterable[str]) -> RemovedParents:
    """Return *removed* with *parents* added to those of the entry in *slot*, if they fit."""
    there = removed.by_slot.get(slot, ())
    body = removed_parents.encode({**removed.by_slot, slot: tuple(sorted({*there, *parents}))})
    return removed if body is None else replace(removed, body=body)


def _array_spans(line: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the start and the end in *line* of the array of parents, and of that of tags."""
    start = line.index(_PARENTS) + len(_PARENTS)
    _, end = _DECODER.raw_decode(line, start)
    _, at = _DECODER.raw_decode(line, end + len(_TYPE))
    _, at = _DECODER.raw_decode(line, at + len(_ID))
    if not line.startswith(_TAGS, at):
        return (start, end), (at, at)
    at += len(_TAGS)
    return (start, end), (at, _DECODER.raw_decode(line, at)[1])


def without_values(line: str, gone: Container[str]) -> str:
    """Return *line* without the values *gone* in its parents and tags; the rest is the same."""
    parents, tags = _array_spans(line)
    for start, end in (tags, parents):  # the last one first, because the positions change
        values = json.loads(line[start:end] or "[]")
        kept = [each for each in values if each not in gone]
        if len(kept) < len(values):
            line = f"{line[:start]}[{','.join(map(quoted, kept))}]{line[end:]}"
    return line

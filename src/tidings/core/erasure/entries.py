"""
The entries of erasures: the entry that records an erasure, and entries without their content.

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
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.errors import InvalidOperation
from tidings.core.model.operations import (
    ERASED_MARK,
    ERASURE_MARK,
    build_line,
    has_object,
    is_erased,
    is_erasure,
    line_from,
    object_key,
    parse_line,
    quoted,
)
from tidings.core.model.pages import encode
from tidings.core.state import removed_parents

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from tidings.core.model.pages import Page
    from tidings.core.state.removed_parents import Left, RemovedParents

_PARENTS = '"parents":'
_DECODER = json.JSONDecoder()
Position = tuple[int, int]  # page and slot


@dataclass(frozen=True, slots=True)
class Entry:
    """
    The content of an erasure entry.

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
    """
    Return the line of the log for *entry*.

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


def parse_request(raw: object, *, by: str) -> Entry:
    """
    Return the erasure that a client requests with *raw*, a decoded JSON value.

    Its fields are `type`, `id`, `reason`, and optionally `parents` (true or false) and `before`
    (an event id).

    Raises:
        InvalidOperation: a field is missing, unknown, or breaks its rule.
        TooLarge: a field is too long.
    """
    if not isinstance(raw, dict):
        raise InvalidOperation("must be a JSON object", field="body", value=raw)
    for name in raw:
        if name not in {"type", "id", "reason", "parents", "before"}:
            raise InvalidOperation("is unknown", field=str(name))
    reason, as_parent, before = raw.get("reason"), raw.get("parents", False), raw.get("before")
    if not isinstance(reason, str) or not 0 < len(reason) <= limits.WHY_CHARS_MAX:
        rule = f"must be a text of 1 to {limits.WHY_CHARS_MAX} characters"
        raise InvalidOperation(rule, field="reason", value=reason)
    if not isinstance(as_parent, bool):
        raise InvalidOperation("must be true or false", field="parents", value=as_parent)
    if "before" in raw and (not isinstance(before, str) or not before):
        raise InvalidOperation("must be an event id", field="before", value=before)
    # Building the line checks the type and the id in the same way as for an operation.
    asked = {name: raw[name] for name in ("type", "id") if name in raw}
    operation = parse_line(line_from({"event": "delete", **asked}, now_ms=0))
    names = operation.type, operation.id
    return Entry(*names, by, reason, before=before or "", as_parent=as_parent)


@dataclass(frozen=True, slots=True)
class Target:
    """
    The content that one erasure removes.

    It removes the content of each entry of the object *key*, with the id *id*, at a position before
    *until*, and the value *parent* from the parents of entries before *until*, if it is not "".
    *name* replaces the id. The erasure entry itself is at *own*; it is erased only if *final*.
    """

    key: str
    id: str
    until: Position
    own: Position
    name: str
    parent: str = ""
    final: bool = False

    def erases(self, at: Position, line: str) -> bool:
        """Return True if the content of *line*, the entry at *at*, is to be removed."""
        if at == self.own:
            return self.final
        return at < self.until and not is_erasure(line) and object_key(parse_line(line)) == self.key

    def strips(self, at: Position, line: str) -> bool:
        """
        Return True if the parent is to be removed from *line*, the entry at *at*.

        The entry of another erasure keeps its parents until that erasure erases the entry.
        """
        is_old = at < self.until and not is_erasure(line)
        return is_old and self.parent != "" and quoted(self.parent) in line

    def changes(self, at: Position, line: str) -> bool:
        """Return True if this erasure alone would change *line*."""
        return self.erases(at, line) or (
            self.strips(at, line) and without_parent(line, self.parent) != line
        )

    def needles(self) -> tuple[str, ...]:
        """Return texts of which a line that this erasure changes has at least one."""
        parents = (quoted(self.parent),) if self.parent else ()
        return f'"id":{quoted(self.id)}', *parents


@dataclass(frozen=True, slots=True)
class Scrubbed:
    """
    A page after an erasure.

    The content of the entries in *slots* was removed; the value of a slot is `Target.name`.
    *entries* counts the changed entries by `Target.name`.
    """

    page: Page
    slots: Mapping[int, str]
    entries: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Scrubber:
    """
    Removes content of *targets* from pages. If *keeps_ids*, erased entries keep their ids.

    The result depends only on the arguments, so that a repeated run changes nothing.
    """

    targets: Sequence[Target]
    keeps_ids: bool = False
    _needles: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        needles = tuple(text for target in self.targets for text in target.needles())
        object.__setattr__(self, "_needles", needles)

    def scrub(self, page: Page) -> Scrubbed | None:
        """
        Return *page* with its new body, or None if nothing has to be removed.

        The page keeps its number, slots, commit time and trace.
        """
        text = page.text
        if not self.may_match(text):
            return None
        lines, slots, entries = page.lines.copy(), dict[int, str](), Counter[str]()
        for index, (slot, line) in enumerate(page.entries()):
            at = page.number, slot
            lines[index] = changed = self.scrub_line(line, at)
            if changed == line:
                continue
            if is_erased(changed):
                slots[slot] = next(each.name for each in self.targets if each.erases(at, line))
            entries.update(each.name for each in self.targets if each.changes(at, line))
        if not entries:
            return None
        body = encode(lines, limits.ERASED_PAGE_BYTES_MAX)
        return Scrubbed(replace(page, body=body), slots, entries)

    def scrub_line(self, line: str, at: Position) -> str:
        """Return the entry *line* at the position *at* without the content to be removed."""
        if is_erased(line) or not has_object(line) or not self.may_match(line):
            return line
        for target in self.targets:
            if target.erases(at, line):
                return self._erased(line, target)
        for target in self.targets:
            if target.strips(at, line):
                line = without_parent(line, target.parent)
        return line

    def may_match(self, text: str) -> bool:
        """Return False if no line in *text* has content to be removed."""
        return any(needle in text for needle in self._needles)

    def scrub_removed(
        self, removed: RemovedParents, slots: Container[int]
    ) -> RemovedParents | None:
        """
        Return *removed* without the entries in *slots*, which are erased, and without the parents.

        Return None if nothing has to be removed.
        """
        gone = {
            target.parent
            for target in self.targets
            if target.parent and (target.final or removed.page < target.until[0])
        }
        left: Left = {
            slot: kept
            for slot, parents in removed.left.items()
            if slot not in slots and (kept := tuple(each for each in parents if each not in gone))
        }
        if left == removed.left:
            return None
        body = removed_parents.encode(left)
        assert body is not None, "the result is smaller than the stored removed parents"
        return replace(removed, body=body)

    def _erased(self, line: str, target: Target) -> str:
        fields = json.loads(line)
        id_ = fields["id"] if self.keeps_ids else target.name
        return (
            f'{{"event":"delete","timestamp":{quoted(fields["timestamp"])},"parents":[],'
            f'"type":{quoted(fields["type"])},"id":{quoted(id_)}{ERASED_MARK}'
        )


def with_removed(removed: RemovedParents, slot: int, parents: Iterable[str]) -> RemovedParents:
    """Return *removed* with *parents* added to those of the entry in *slot*, if they fit."""
    there = removed.left.get(slot, ())
    body = removed_parents.encode({**removed.left, slot: tuple(sorted({*there, *parents}))})
    return removed if body is None else replace(removed, body=body)


def without_parent(line: str, parent: str) -> str:
    """Return *line* without the value *parent* in its parents; the rest of the line is the same."""
    if quoted(parent) not in line:
        return line
    at = line.index(_PARENTS) + len(_PARENTS)
    parents, end = _DECODER.raw_decode(line, at)
    kept = [each for each in parents if each != parent]
    if len(kept) == len(parents):
        return line
    return f"{line[:at]}[{','.join(map(quoted, kept))}]{line[end:]}"

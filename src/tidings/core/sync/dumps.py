"""Parse dumps, compare their objects with the state, and check a dump and a plan for mistakes.

A dump is newline-delimited JSON, one object per line. A line `{"tidings":"end","lines":N}` marks a
complete dump. The sum of N over all such lines is the number of lines that describe an object.
Blank lines are ignored.

Corrections are operations that make the feed agree with a dump. `event_for` decides the correction
of one object. All times are milliseconds since 1970.

| dump | state | correction |
|---|---|---|
| has or lacks the object | row changed after the dump's watermark (`sync.watermark`) | nothing |
| has the object | has no row | insert |
| has a newer timestamp | has a tombstone | insert |
| has a newer timestamp | has a row | update |
| has no newer timestamp | has a row or a tombstone | nothing |
| lacks the object | has a row | delete |
| lacks the object | has a tombstone or no row | nothing |

The checks reject a harmful dump or plan. For example, an export that failed half way looks as if
most objects were deleted. Each objection has a code, and says how the operator can continue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidings.core.errors import InvalidOperation
from tidings.core.model import timestamps
from tidings.core.model.json_body import decode_json
from tidings.core.model.operations import FIELDS, key_of, line_from, lower_case

if TYPE_CHECKING:
    from collections.abc import Mapping


YEAR_ONE_MS = -62_135_596_800_000  # the earliest possible timestamp


@dataclass(frozen=True, slots=True)
class StoredObject:
    """The row of an object in the state, with the object's timestamp *ms*.

    *later* is True if the object changed after the dump's watermark.
    """

    ms: int
    deleted: bool
    later: bool = False


def event_for(dumped: int | None, stored: StoredObject | None) -> str | None:
    """Return the event that corrects one object, or None if nothing has to change.

    *dumped* is the time of the object in the dump, or None if the dump lacks the object. *stored*
    is its row in the state, or None if there is no row.
    """
    if stored is not None and stored.later:
        return None
    if dumped is not None:
        if stored is None:
            return "insert"
        if dumped <= stored.ms:
            return None
        return "insert" if stored.deleted else "update"
    return None if stored is None or stored.deleted else "delete"


def dump_line(raw: Mapping[str, object], *, where: str = "") -> str:
    """Return *raw*, a decoded object of a dump, as an operation; ignore its field `event`.

    An object without a timestamp counts as older than any other object. It is inserted if the state
    has no row for it, and otherwise changes nothing.

    Raises:
        InvalidOperation, TooLarge: the object breaks a rule for operations of producers.
    """
    fields = {name: value for name, value in raw.items() if name.lower() != "event"}
    return line_from(fields | {"event": "insert"}, now_ms=YEAR_ONE_MS, where=where)


_END = "end"
# The first bytes of files of other formats. They are looked up only if a line is not UTF-8.
_FORMATS = {
    b"\x1f\x8b": "gzip data; name the file *.gz",
    b"\x28\xb5\x2f\xfd": "zstd data; use gzip",
    b"\xfd7zXZ": "xz data; use gzip",
    b"BZh": "bzip2 data; use gzip",
    b"PK": "a zip archive; use gzip",
    b"\xff\xfe\0\0": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}


@dataclass(frozen=True, slots=True)
class Described:
    """An object of the dump, with its operation as *line*; the event is not decided yet.

    *moment* is the timestamp of the operation without its Z. *note* says what the feed
    stores differently.
    """

    key: str
    moment: str
    line: str
    note: str | None = None


@dataclass(frozen=True, slots=True)
class End:
    """An end line: the number of *lines* that the dump should have, according to its writer."""

    lines: int


def read_line(text: bytes) -> Described | End | None:
    """Parse one line. Return None for a blank line.

    Raises:
        InvalidOperation: the line is not JSON in UTF-8, or a field is missing or breaks its rule.
        TooLarge: a field or the line is longer than `limits` allows.
    """
    if not text.strip():
        return None
    _check_utf8(text)
    raw = decode_json(text, "")
    if not isinstance(raw, dict):
        raise InvalidOperation("must be a JSON object", value=raw)
    if "tidings" in raw and "type" not in raw:
        return _end(raw)
    line = dump_line(raw)
    return Described(key_of(line), moment_of(line), line, _note(raw))


RENAMED = "the type ", " is stored as "


def _note(raw: dict[str, Any]) -> str | None:
    """Return what the feed does not store as the object *raw* of a dump has it; else None."""
    notes = [f"the field {name} is ignored" for name in sorted(raw) if name.lower() not in FIELDS]
    types = (str(value) for name, value in raw.items() if name.lower() == "type")
    notes += (each.join(RENAMED) + lower_case(each) for each in types if each != lower_case(each))
    return "; ".join(notes) or None


def _check_utf8(text: bytes) -> None:
    found = "the byte 0, as in UTF-16 or tar" if b"\0" in text else ""
    try:
        text.decode()
    except UnicodeDecodeError as error:
        known = (name for start, name in _FORMATS.items() if text.startswith(start))
        found = next(known, f"{error.reason} at byte {error.start + 1}")
    if found:
        raise InvalidOperation(f"must be UTF-8, but is not ({found})")


def moment_of(line: str) -> str:
    """Return the timestamp, without its Z, of a line of the log.

    Results that are sorted as text are in the order of time, unlike timestamps with Z.
    """
    start = _MOMENT_AT
    return line[start : line.index('"', start) - 1]


def moment(timestamp: str) -> str:
    """Return *timestamp*, which must have the normal form, without its Z."""
    return timestamp.removesuffix("Z")


def timestamp_of(moment: str) -> str:
    """Return the timestamp for *moment*, which has no Z, in the normal form."""
    return timestamps.normal_form(f"{moment}Z")


_MOMENT_AT = len('{"event":"insert","timestamp":"')


def _end(raw: dict[str, object]) -> End:
    lines = raw.get("lines")
    if raw["tidings"] != _END:
        raise InvalidOperation(f'must be "{_END}"', field="tidings", value=raw["tidings"])
    if not isinstance(lines, int) or isinstance(lines, bool) or lines < 0:
        raise InvalidOperation("must be a whole number", field="lines", value=lines)
    return End(lines)


ALIEN_SHARE_MAX = 0.10  # if a larger share of rows is wrong, the log was probably lost or replaced
DELETE_SHARE_MAX = 0.10  # if a dump lacks a larger share of the objects, it is probably incomplete


@dataclass(frozen=True, slots=True)
class Objection:
    """A reason to stop a sync. If *allowable* is True, an operator may approve the plan."""

    code: str
    sentence: str
    allowable: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """The size of a dump. *declared* is the sum of its end lines, or None without an end line."""

    lines: int
    declared: int | None = None


@dataclass(frozen=True, slots=True)
class Planned:
    """The size of a plan. *objects* counts the state's existing objects of the synced types."""

    deletes: int
    objects: int


def check_dump(dump: Found, *, expected: int | None = None) -> Objection | None:
    """Return an objection if the dump is empty or truncated."""
    if not dump.lines:
        return Objection("empty_dump", "the dump has no objects; this is probably a mistake")
    for source, wanted in (("its end line says", dump.declared), ("--expect says", expected)):
        if wanted is not None and wanted != dump.lines:
            sentence = f"the dump has {dump.lines:,} objects, but {source} {wanted:,}; export again"
            return Objection("truncated_dump", sentence)
    return None


def check_plan(planned: Planned, *, share_max: float = DELETE_SHARE_MAX) -> Objection | None:
    """Return an objection if the plan deletes an implausible share of the objects."""
    if planned.deletes <= share_max * planned.objects:
        return None
    share = planned.deletes / planned.objects
    return Objection(
        "too_many_deletes",
        f"{planned.deletes:,} of {planned.objects:,} objects ({share:.0%}) would be deleted,"
        f" more than {share_max:.0%}; if this is intended, allow it with --max-delete-share",
        allowable=True,
    )


def check_rebuild(
    aliens: int, rows: int, *, share_max: float = ALIEN_SHARE_MAX
) -> Objection | None:
    """Return an objection if a rebuild would undo an implausible share of the state.

    *rows* is the number of all rows. *aliens* is the number of rows that would be removed or
    reverted because the log does not contain them.
    """
    if aliens <= share_max * rows:
        return None
    return Objection(
        "too_many_aliens",
        f"the log does not have {aliens:,} of {rows:,} rows ({aliens / rows:.0%}), more than"
        f" {share_max:.0%}; check that this is the right log, or allow it with"
        " --max-alien-share",
    )

"""The schema of each type, which says which keys of `data` are columns of the type's table.

The columns of a type are declared in a file, or inferred from the data of its objects. Columns can
be added, but never change. If a value does not have the type of its column, or a key has no column,
the row keeps all data in the column `data`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidings.core import limits
from tidings.lake.warehouse import BadColumns

INFER = "infer"
# The maximum number of columns of a type. Athena and Glue reject tables with several thousand
# nested columns.
COLUMNS_MAX = 200
NAME_CHARS_MAX = 255  # the limit of Glue for the name of a column
KEY_CHARS_MAX = 255  # a key is the comment of its column, and Glue rejects a longer comment
# The first columns of every table of a type. The columns for the keys of `data` follow these
# columns.
FIXED = ("id", "parents", "tags", "timestamp", "at", "page", "slot", "cursor", "data")
# Names of Iceberg's metadata columns. A table that has a column of its own with one of these names
# cannot be read, or is read wrongly.
METADATA = (
    *("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_metadata"),
    *("_last_updated_sequence_number", "_change_type", "_change_ordinal", "_commit_snapshot_id"),
)
_INTERNAL = "__"  # the prefix of the columns that Spark adds to the plan of a MERGE
TEXT = "string"
# The column in which Spark puts the whole document if a value does not have the type of its column.
UNFIT = "_unfit"
_SCALARS = (TEXT, "boolean", "int", "bigint", "double", "timestamp", "date")
_NAME = re.compile(rf"[a-z_][a-z0-9_]{{0,{NAME_CHARS_MAX - 1}}}", re.ASCII)
_SCALAR = f"(?:{'|'.join(_SCALARS)})"
_KIND = re.compile(
    rf"{_SCALAR}|array<{_SCALAR}>|struct<[a-z_]\w*:{_SCALAR}(?:,[a-z_]\w*:{_SCALAR})*>", re.ASCII
)
_WORDS = re.compile(r"([a-z0-9])([A-Z])")
_ODD = re.compile(r"[^a-z0-9_]")
# The types of values, as Spark's `schema_of_variant` names them, and the types of their columns.
_UNKNOWN = {"VOID", "ARRAY<VOID>"}  # the types of null and of an empty list
_NUMBERS = {"DOUBLE", "FLOAT", "BIGINT"}
_KINDS = {
    "STRING": TEXT,
    "BOOLEAN": "boolean",
    "BIGINT": "bigint",
    "ARRAY<STRING>": "array<string>",
    "ARRAY<BIGINT>": "array<bigint>",
    "ARRAY<BOOLEAN>": "array<boolean>",
}


@dataclass(frozen=True, slots=True)
class DataColumn:
    """The column *name*, of Spark's SQL type *kind*, for the values of *key* in `data`."""

    name: str
    key: str
    kind: str

    @property
    def fields(self) -> tuple[str, ...]:
        """Return the names of the fields if the column is a struct; otherwise an empty tuple."""
        if not self.kind.startswith("struct<"):
            return ()
        return tuple(each.partition(":")[0] for each in self._parts)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return the types of `fields`, in the same order. The column must be a struct."""
        return tuple(each.partition(":")[2] for each in self._parts)

    @property
    def _parts(self) -> list[str]:
        return self.kind[len("struct<") : -1].split(",")


@dataclass(frozen=True, slots=True)
class TypeColumns:
    """The declared *columns* of a type. If *infers*, new keys get inferred columns."""

    columns: tuple[DataColumn, ...] = ()
    infers: bool = False


Schemas = Mapping[str, TypeColumns]


def from_file(path: Path) -> Schemas:
    """Read the schemas in the file *path*.

    Raises:
        BadColumns: the file cannot be read, or is invalid.
    """
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadColumns(f"--columns {path}: cannot be read: {error}") from None
    return parse(text)


def parse(text: str) -> Schemas:
    """Parse the schemas of types. A schema maps the name of each column to the type of the column.

    For example:

        {"video": {"title": "string", "views": {"key": "viewCount", "type": "bigint"}},
        "user": "infer"}

    Raises:
        BadColumns: the text is invalid; the message names the type, the column and the rule.
    """
    try:
        found = json.loads(text)
    except ValueError as error:
        raise BadColumns(f"columns: not JSON: {error}") from None
    if not isinstance(found, dict):
        raise BadColumns("columns: must be a JSON object with a schema for each type")
    return {_type(name): _columns(name, schema) for name, schema in found.items()}


def _type(name: str) -> str:
    if not name or len(name.encode()) > limits.TYPE_BYTES_MAX:
        raise BadColumns(f"columns: type {name!r}: must have 1 to {limits.TYPE_BYTES_MAX} bytes")
    return name


def _columns(type: str, schema: Any) -> TypeColumns:
    if schema == INFER:
        return TypeColumns(infers=True)
    if not isinstance(schema, dict) or not schema:
        raise BadColumns(f"columns of {type!r}: must be {INFER!r}, or an object with columns")
    made = tuple(_column(type, name, each) for name, each in schema.items())
    check(type, made)
    return TypeColumns(made)


def check(type: str, columns: Iterable[DataColumn]) -> None:
    """Check the columns of a type.

    Raises:
        BadColumns: there are too many columns, or a key has two columns.
    """
    keys = [each.key for each in columns]
    if len(keys) > COLUMNS_MAX:
        rule = f"has {len(keys)} columns, at most {COLUMNS_MAX} are allowed"
        raise BadColumns(f"columns of {type!r}: {rule}")
    folded = [key.lower() for key in keys]
    twice = next((key for key in keys if folded.count(key.lower()) > 1), None)
    if twice is not None:
        raise BadColumns(f"columns of {type!r}: the key {twice!r} has two columns")


def _column(type: str, name: str, given: Any) -> DataColumn:
    where = f"columns of {type!r}, {name!r}"
    if not _NAME.fullmatch(name):
        rule = "must have only small letters, digits and _, and not begin with a digit"
        raise BadColumns(f"{where}: {rule}")
    remedy = f"name the column 'data_{name}' and declare the key {name!r}"
    if name in FIXED:
        raise BadColumns(f"{where}: is a column of every table; {remedy}")
    if name in METADATA or name.startswith(_INTERNAL):
        raise BadColumns(f"{where}: is a name that Iceberg or Spark uses; {remedy}")
    if isinstance(given, dict) and set(given) == {"key", "type"}:
        key, kind = given["key"], given["type"]
    else:
        key, kind = name, given
    if not isinstance(key, str) or not _is_key(key):
        rule = f"must have 1 to {KEY_CHARS_MAX} characters, without ` and control characters"
        raise BadColumns(f"{where}: key {key!r}: {rule}, and not be {UNFIT!r}")
    kind = re.sub(r"\s", "", kind).lower() if isinstance(kind, str) else kind
    if not isinstance(kind, str) or not _KIND.fullmatch(kind):
        rule = f"must be {', '.join(_SCALARS)}, array<one of these> or struct<name:one of these,…>"
        raise BadColumns(f"{where}: type {given!r}: {rule}")
    made = DataColumn(name, key, kind)
    if len(set(made.fields)) < len(made.fields):
        raise BadColumns(f"{where}: type {given!r}: two fields have the same name, apart from case")
    return made


def missing_columns(
    known: Iterable[DataColumn], declared: Iterable[DataColumn]
) -> list[DataColumn]:
    """Return the *declared* columns that a table with the columns *known* does not have yet.

    Raises:
        BadColumns: the table has a declared column, but for another key, or with another type.
    """
    there = {each.name: each for each in known}
    for each in declared:
        if there.get(each.name, each) != each:
            other = there[each.name]
            raise BadColumns(
                f"column {each.name!r}: has the type {other.kind} and the key {other.key!r} in the"
                f" table, and columns never change; give the column with the type {each.kind}"
                f" and the key {each.key!r} another name"
            )
    return [each for each in declared if each.name not in there]


def infer_columns(known: Iterable[DataColumn], seen: Mapping[str, set[str]]) -> list[DataColumn]:
    """Return new columns for keys without a column.

    *known* are the present columns, and *seen* has the types of the values of each key. A key gets
    no column if it differs from another key only in case, or exceeds a limit.
    """
    columns = list(known)
    keys, names = {each.key.lower() for each in columns}, {each.name for each in columns}
    made: list[DataColumn] = []
    for key, kinds in seen.items():
        name = _name(key)
        kind = _kind_of(kinds - _UNKNOWN)
        is_used = key.lower() in keys or name in names or len(name) > NAME_CHARS_MAX
        if _is_key(key) and kind and not is_used and len(keys) < COLUMNS_MAX:
            made.append(DataColumn(name, key, kind))
            keys.add(key.lower())
            names.add(name)
    return made


def _is_key(key: str) -> bool:
    """Return True if *key* can be the comment of a column, also in Glue."""
    fits = 0 < len(key) <= KEY_CHARS_MAX and key.isprintable()
    return fits and "`" not in key and key != UNFIT


def _name(key: str) -> str:
    name = _ODD.sub("_", _WORDS.sub(r"\1_\2", key).lower())
    name = f"_{name}" if name[:1].isdigit() else name
    # Names of Iceberg's and Spark's own columns begin with an underscore, and later releases of
    # both may add columns.
    is_theirs = name[:1] == "_" and not name[1:2].isdigit()
    return f"data_{name}" if name in FIXED or is_theirs else name


def _kind_of(kinds: set[str]) -> str:
    """Return a column type that can hold values of all *kinds*; text holds any value, as JSON."""
    if not kinds:
        return ""
    if len(kinds) == 1:
        (kind,) = kinds
        return _KINDS.get(kind) or ("double" if _is_number(kind) else TEXT)
    return "double" if all(map(_is_number, kinds)) else TEXT


def _is_number(kind: str) -> bool:
    return kind in _NUMBERS or kind.startswith("DECIMAL(")

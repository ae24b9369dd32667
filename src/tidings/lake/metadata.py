"""
Read the metadata of an Iceberg table by its specification, without Spark.

The tables of a stage are found in Glue, those of a folder by the file `version-hint.text`, which
Iceberg's own folder catalog writes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from tidings.core.model.pages import GZIP, inflate

if TYPE_CHECKING:
    from tidings.lake.warehouse import Warehouse

THROUGH, TYPE = "tidings.through", "tidings.type"
_HINT = "version-hint.text"
METADATA_BYTES_MAX = 256 * 1024 * 1024  # of a table with about 100,000 snapshots
_FOLDER = "metadata"
_SUMMARY = {
    "records": "total-records",
    "files": "total-data-files",
    "bytes": "total-files-size",
    "added": "added-records",
}


@dataclass(frozen=True, slots=True)
class TableMetadata:
    """
    The metadata of a table.

    *snapshot* is the current one, or 0. *through* is the cursor of the last commit that has one, or
    empty if no kept snapshot has it. *records*, *files* (data and deletes) and *bytes* are those of
    the current snapshot, *added* the rows that it added, *snapshots* the number of snapshots.
    *type* is the type of its objects, None for all. *columns* are names and types in Iceberg's
    notation.
    """

    snapshot: int = 0
    through: str = ""
    records: int = 0
    files: int = 0
    bytes: int = 0
    added: int = 0
    snapshots: int = 0
    type: str | None = None
    columns: tuple[tuple[str, str], ...] = ()


def read(warehouse: Warehouse, table: str) -> TableMetadata | None:
    """Return the metadata of a table; None if it does not exist."""
    body = _in_glue(warehouse, table) if warehouse.glue else _in_folder(warehouse, table)
    return None if body is None else _parsed(json.loads(body))


def names(warehouse: Warehouse) -> list[str]:
    """Return the names of all tables of the database, sorted."""
    if warehouse.glue:
        pages = (
            _client("glue").get_paginator("get_tables").paginate(DatabaseName=warehouse.database)
        )
        return sorted(each["Name"] for page in pages for each in page["TableList"])
    folder = Path(warehouse.url) / warehouse.database
    return sorted(each.parent.name for each in folder.glob(f"*/{_FOLDER}"))


def location(warehouse: Warehouse, table: str) -> Path:
    """
    Return the file of the current metadata of a table in a folder.

    Raises:
        FileNotFoundError: the table does not exist.
    """
    folder = Path(warehouse.url) / warehouse.database / table / _FOLDER
    version = int((folder / _HINT).read_text())
    # The hint is written after the file, and may be older.
    while (folder / f"v{version + 1}.metadata.json").exists():
        version += 1
    return folder / f"v{version}.metadata.json"


def _in_folder(warehouse: Warehouse, table: str) -> bytes | None:
    try:
        return location(warehouse, table).read_bytes()
    except FileNotFoundError:
        return None


def _in_glue(warehouse: Warehouse, table: str) -> bytes | None:
    glue = _client("glue")
    try:
        found = glue.get_table(DatabaseName=warehouse.database, Name=table)["Table"]
    except glue.exceptions.EntityNotFoundException:
        return None
    parts = urlsplit(found["Parameters"]["metadata_location"])
    answer = _client("s3").get_object(Bucket=parts.netloc, Key=parts.path.lstrip("/"))
    body: bytes = answer["Body"].read()
    packed = parts.path.endswith(".gz.metadata.json")
    return inflate(body, METADATA_BYTES_MAX, GZIP) if packed else body


def _client(service: Literal["glue", "s3"]) -> Any:
    import boto3  # noqa: TID251 the job's own role, not a function's

    make: Any = boto3.client
    return make(service)


def _parsed(body: dict[str, Any]) -> TableMetadata:
    current: int = body.get("current-snapshot-id") or 0
    of = body.get("properties", {}).get(TYPE)
    kept = {each["snapshot-id"]: each for each in body.get("snapshots", ())}
    columns = tuple(_columns(body))
    if current not in kept:
        return TableMetadata(type=of, columns=columns)
    summary = kept[current]["summary"]
    counts = {name: int(summary.get(key, 0)) for name, key in _SUMMARY.items()}
    counts["files"] += int(summary.get("total-delete-files", 0))
    counts["records"] -= int(summary.get("total-position-deletes", 0))
    places = map(partial(_through, kept), _ancestors(kept, current))
    through = next(filter(None, places), "")
    return TableMetadata(current, through, snapshots=len(kept), type=of, columns=columns, **counts)


def _columns(body: dict[str, Any]) -> Iterator[tuple[str, str]]:
    schemas = {each["schema-id"]: each["fields"] for each in body["schemas"]}
    for each in schemas[body["current-schema-id"]]:
        yield each["name"], _kind(each["type"])


def _kind(kind: str | dict[str, Any]) -> str:
    """Return a type in SQL notation; nested types are lists and structs."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "list":
        return f"list<{_kind(kind['element'])}>"
    fields = (f"{each['name']}: {_kind(each['type'])}" for each in kind["fields"])
    return f"struct<{', '.join(fields)}>"


def _through(kept: dict[int, Any], snapshot: int) -> str:
    found: str = kept[snapshot]["summary"].get(THROUGH, "")
    return found


def _ancestors(kept: dict[int, Any], snapshot: int | None) -> Iterator[int]:
    """Yield *snapshot* and its kept ancestors, because maintenance commits have no place."""
    while snapshot in kept:
        yield snapshot
        snapshot = kept[snapshot].get("parent-snapshot-id")

"""Locate the tables, configure a session of Spark for them, and read their metadata.

The metadata are read without Spark, by Iceberg's specification. For a stage, Glue has the names of
the tables and the locations of their metadata. In a folder, the metadata files of a table are
numbered, and Iceberg writes the number of the current one to the file `version-hint.text`.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote, urlsplit

from tidings.core.model.pages import GZIP, inflate
from tidings.http.settings import ARCHIVE_RULE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class LakeError(Exception):
    """The base class of errors that the command and the job of a stage print."""


class NoIceberg(LakeError):
    """The jar of Iceberg is missing and cannot be downloaded, or its hash is wrong."""


class BadTable(LakeError):
    """The address of the tables is invalid, or the tables there are not those of the feed."""


class BadColumns(LakeError):
    """The schema of a type is invalid, or contradicts the columns of the table."""


class Raced(LakeError):
    """Another run writes the same tables. Nothing of this run's last commit was written."""


class PartGone(LakeError):
    """A part was removed after it was listed, because another process compacts the archive."""


class TypesFailed(LakeError):
    """The tables of some types could not be written; all other tables are complete."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        listed = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
        super().__init__(f"tables of types that were not updated: {listed}; run again")


class Stopped(LakeError):
    """A guard stopped the run: a check found that the run would do harm.

    Only the work that was reported is done.
    """


CATALOG = "lake"
DATABASE = "tidings"
# A setting that Spark reads at its start. Iceberg's SQL commands `SET IDENTIFIER FIELDS` and
# `WRITE ORDERED BY` need this extension.
EXTENSIONS = {
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
}
# The maximum length of the kind of a table, which is the part of the table's name after the feed.
# Glue allows 255 characters for the whole name.
KIND_CHARS_MAX = 160
HISTORY, LATEST = KINDS = "history", "latest"
_TYPE_PREFIX = "type_"
_PLAIN = frozenset(string.ascii_lowercase + string.digits)


@dataclass(frozen=True, slots=True)
class Warehouse:
    """The location of tables: their files are in the folder *url*; if *glue*, Glue lists them."""

    url: str
    database: str = DATABASE
    glue: bool = False

    def session(self, spark: SparkSession) -> SparkSession:
        """Return a new session of *spark* in which `CATALOG` contains the tables."""
        session = spark.newSession()
        for name, value in self._settings().items():
            session.conf.set(name, value)
        # Show Iceberg's times, which have a zone, in UTC.
        session.conf.set("spark.sql.session.timeZone", "UTC")
        # Do not substitute variables: a key of the data such as `${env:HOME}` is part of the SQL.
        session.conf.set("spark.sql.variable.substitute", "false")
        return session

    def _settings(self) -> dict[str, str]:
        catalog = f"spark.sql.catalog.{CATALOG}"
        kind = (
            {
                f"{catalog}.catalog-impl": "org.apache.iceberg.aws.glue.GlueCatalog",
                f"{catalog}.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            }
            if self.glue
            else {f"{catalog}.type": "hadoop"}
        )
        return kind | {
            catalog: "org.apache.iceberg.spark.SparkCatalog",
            f"{catalog}.warehouse": self.url.rstrip("/"),
            f"{catalog}.cache-enabled": "false",  # a cached table would lack commits of other runs
        }


def in_folder(url: str) -> Warehouse:
    """Return the warehouse in a folder on this machine, given as a path or `file:///FOLDER`.

    Raises:
        BadTable: *url* is not a folder on this machine. Commits to a folder on S3 need a lock.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("", "file") or parts.netloc or not parts.path.strip("/"):
        raise BadTable(
            f"--table {url!r}: must be a folder on this machine, a path or file:///FOLDER"
        )
    path = Path(unquote(parts.path) if parts.scheme else url)
    return Warehouse(str(path.resolve()))  # Java may run in another folder


def in_glue(url: str, database: str) -> Warehouse:
    """Return the warehouse of tables with files on S3, which the *database* in Glue lists.

    Raises:
        BadTable: *url* is not on S3, or *database* is not a valid name.
    """
    parts = urlsplit(url)
    if parts.scheme != "s3" or not parts.netloc:
        raise BadTable(f"--table {url!r}: {ARCHIVE_RULE.partition(' or ')[0]}")
    if not re.fullmatch(r"[a-z0-9_]{1,255}", database):
        raise BadTable(f"--glue {database!r}: must have only small letters, digits and _")
    return Warehouse(url, database, glue=True)


def of_stage(stage: str) -> Warehouse:
    """Return the warehouse of a stage. It is only for reads, because it lacks the files' folder."""
    return Warehouse("", f"tidings_{stage}_lake".replace("-", "_"), glue=True)


def table_name(feed: str, kind: str) -> str:
    """Return the name of a table of *feed*. The name is unique and must never change.

    *kind* is the kind of the table: `HISTORY`, `LATEST`, or the result of `type_kind`.

    Glue and Athena accept only letters, digits and `_`. All other characters, and `_`, are encoded.
    """
    return f"{_encode(feed)}_{kind}"


def type_kind(type: str) -> str:
    """Return the kind of the table with the objects of *type*.

    Names of tables are unambiguous: in `FEED_type_TYPE`, the text `_type_` cannot be part of the
    encoded feed, because an encoded character is `_` with two hex digits.

    Raises:
        BadColumns: the name would be too long.
    """
    kind = f"{_TYPE_PREFIX}{_encode(type)}"
    if len(kind) > KIND_CHARS_MAX:
        raise BadColumns(
            f"columns: type {type!r}: the name of its table has {len(kind)} characters without the"
            f" feed, at most {KIND_CHARS_MAX} are allowed"
        )
    return kind


def kind_of(feed: str, table: str) -> str | None:
    """Return the kind of the table *table*; None if the table does not belong to *feed*."""
    kind = table.removeprefix(f"{_encode(feed)}_")
    ours = kind != table and (kind in KINDS or kind.startswith(_TYPE_PREFIX))
    return kind if ours else None


def _encode(text: str) -> str:
    return "".join(chr(byte) if chr(byte) in _PLAIN else f"_{byte:02x}" for byte in text.encode())


THROUGH, TYPE = "tidings.through", "tidings.type"
# A property of the snapshots of `history`: the page of the first erasure entry that is not done.
ERASURES = "tidings.erasures"
# A property of `history`: the erasure entries up to this page are done.
ERASED = "tidings.erased"
_HINT = "version-hint.text"
METADATA_BYTES_MAX = 256 * 1024 * 1024  # the metadata of about 100,000 snapshots
_FOLDER = "metadata"
_SUMMARY = {
    "records": "total-records",
    "files": "total-data-files",
    "bytes": "total-files-size",
    "added": "added-records",
}


@dataclass(frozen=True, slots=True)
class TableMetadata:
    """The metadata of a table.

    *snapshot* is the id of the current snapshot, or 0. *through* is the cursor of the last snapshot
    that stores a cursor, or "" if no kept snapshot stores one. *records*, *files* (with data or
    deletes) and *bytes* are the numbers of rows, files and bytes of the current snapshot, and
    *added* is the number of rows that this snapshot added. *snapshots* is the number of snapshots.
    *erasures* is the page of the first erasure entry that is not done, or 0.
    *type* is the type of the table's objects, or None if the table has all types. *columns* has the
    name and the type of each column.
    """

    snapshot: int = 0
    through: str = ""
    records: int = 0
    files: int = 0
    bytes: int = 0
    added: int = 0
    snapshots: int = 0
    erasures: int = 0
    type: str | None = None
    columns: tuple[tuple[str, str], ...] = ()


def read_metadata(warehouse: Warehouse, table: str) -> TableMetadata | None:
    """Return the metadata of a table; None if it does not exist."""
    body = _in_glue(warehouse, table) if warehouse.glue else _in_folder(warehouse, table)
    return None if body is None else _parse(json.loads(body))


def table_names(warehouse: Warehouse) -> list[str]:
    """Return the names of all tables in the warehouse, sorted."""
    if warehouse.glue:
        pages = (
            _client("glue").get_paginator("get_tables").paginate(DatabaseName=warehouse.database)
        )
        return sorted(each["Name"] for page in pages for each in page["TableList"])
    folder = Path(warehouse.url) / warehouse.database
    return sorted(each.parent.name for each in folder.glob(f"*/{_FOLDER}"))


def metadata_file(warehouse: Warehouse, table: str) -> Path:
    """Return the file of the current metadata of a table in a folder.

    Raises:
        FileNotFoundError: the table does not exist.
    """
    folder = Path(warehouse.url) / warehouse.database / table / _FOLDER
    version = int((folder / _HINT).read_text())
    # Iceberg writes the hint after the metadata file, so the hint may name an earlier file.
    while (folder / f"v{version + 1}.metadata.json").exists():
        version += 1
    return folder / f"v{version}.metadata.json"


def _in_folder(warehouse: Warehouse, table: str) -> bytes | None:
    try:
        return metadata_file(warehouse, table).read_bytes()
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
    import boto3  # noqa: TID251 uses the role of the Spark job, not that of a function

    make: Any = boto3.client
    return make(service)


def _parse(body: dict[str, Any]) -> TableMetadata:
    current: int = body.get("current-snapshot-id") or 0
    properties = body.get("properties", {})
    of = properties.get(TYPE)
    kept = {each["snapshot-id"]: each for each in body.get("snapshots", ())}
    columns = tuple(_columns(body))
    if current not in kept:
        return TableMetadata(type=of, columns=columns)
    summary = kept[current]["summary"]
    counts = {name: int(summary.get(key, 0)) for name, key in _SUMMARY.items()}
    counts["files"] += int(summary.get("total-delete-files", 0))
    counts["records"] -= int(summary.get("total-position-deletes", 0))
    through = _last(kept, current, THROUGH)
    erasures = int(_last(kept, current, ERASURES) or 0)
    if erasures <= int(properties.get(ERASED, 0)):
        erasures = 0
    return TableMetadata(
        current, through, snapshots=len(kept), erasures=erasures, type=of, columns=columns, **counts
    )


def _columns(body: dict[str, Any]) -> Iterator[tuple[str, str]]:
    schemas = {each["schema-id"]: each["fields"] for each in body["schemas"]}
    for each in schemas[body["current-schema-id"]]:
        yield each["name"], _kind(each["type"])


def _kind(kind: str | dict[str, Any]) -> str:
    """Return a type of Iceberg as text. The only nested types are lists and structs."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "list":
        return f"list<{_kind(kind['element'])}>"
    fields = (f"{each['name']}: {_kind(each['type'])}" for each in kind["fields"])
    return f"struct<{', '.join(fields)}>"


def _last(kept: dict[int, Any], snapshot: int, name: str) -> str:
    """Return the property *name* of the last snapshot that has it; "" if none has it."""
    values = (kept[each]["summary"].get(name, "") for each in _ancestors(kept, snapshot))
    return next(filter(None, values), "")


def _ancestors(kept: dict[int, Any], snapshot: int | None) -> Iterator[int]:
    """Yield *snapshot*, its parent, the parent's parent and so on, as long as they are kept."""
    while snapshot in kept:
        yield snapshot
        snapshot = kept[snapshot].get("parent-snapshot-id")

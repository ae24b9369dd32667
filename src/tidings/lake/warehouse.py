"""Locate the tables, and configure a session of Spark for them."""

from __future__ import annotations

import re
import string
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pyspark.sql import SparkSession

from tidings.http.settings import ARCHIVE_RULE
from tidings.lake.errors import BadColumns, BadTable

CATALOG = "lake"
DATABASE = "tidings"
# Read at Spark's start: `SET IDENTIFIER FIELDS` and `WRITE ORDERED BY` are Iceberg's own.
EXTENSIONS = {
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
}
KIND_CHARS_MAX = 160  # of Glue's 255 for a table, in which the name of the feed is a prefix
HISTORY, LATEST = KINDS = "history", "latest"
_TYPE = "type_"
_PLAIN = frozenset(string.ascii_lowercase + string.digits)


@dataclass(frozen=True, slots=True)
class Warehouse:
    """The location of the tables: a folder *url* for the files; *glue* if Glue has their names."""

    url: str
    database: str = DATABASE
    glue: bool = False

    def session(self, spark: SparkSession) -> SparkSession:
        """Return a session of the same Spark with the tables in `CATALOG`."""
        session = spark.newSession()
        for name, value in self._settings().items():
            session.conf.set(name, value)
        # Iceberg stores times with a zone; they are shown in this one.
        session.conf.set("spark.sql.session.timeZone", "UTC")
        # A key of the data such as `${env:HOME}` is the comment of a column, in SQL.
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
            f"{catalog}.cache-enabled": "false",  # another run may have committed
        }


def in_folder(url: str) -> Warehouse:
    """
    Return the warehouse in a folder on this machine, given as a path or `file:///FOLDER`.

    Raises:
        BadTable: the address is elsewhere. Commits to a folder on S3 would need a lock.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("", "file") or parts.netloc or not parts.path.strip("/"):
        raise BadTable(f"--table {url!r}: must be a folder of this machine, file:///FOLDER")
    path = Path(unquote(parts.path) if parts.scheme else url)
    return Warehouse(str(path.resolve()))  # Java may run in another folder


def in_glue(url: str, database: str) -> Warehouse:
    """
    Return the warehouse of tables on S3 with names in Glue.

    Raises:
        BadTable: *url* is not on S3, or *database* is not a valid name.
    """
    parts = urlsplit(url)
    if parts.scheme != "s3" or not parts.netloc:
        raise BadTable(f"--table {url!r}: {ARCHIVE_RULE.partition(' or ')[0]}")
    if not re.fullmatch(r"[a-z0-9_]{1,255}", database):
        raise BadTable(f"--glue {database!r}: must be small letters, digits and _")
    return Warehouse(url, database, glue=True)


def of_stage(stage: str) -> Warehouse:
    """Return the tables of a stage, for reading: Glue knows the location of their files."""
    return Warehouse("", f"tidings_{stage}_lake".replace("-", "_"), glue=True)


def table_name(feed: str, kind: str) -> str:
    """
    Return the name of the table *kind* of *feed*, which is permanent and unique to the feed.

    Glue and Athena accept letters, digits and `_`. All other characters, and `_`, are encoded.
    """
    return f"{_encoded(feed)}_{kind}"


def type_kind(type: str) -> str:
    """
    Return the kind of the table of a type. No code begins with a t, so names are unambiguous.

    Raises:
        BadColumns: the name would be too long.
    """
    kind = f"{_TYPE}{_encoded(type)}"
    if len(kind) > KIND_CHARS_MAX:
        raise BadColumns(
            f"columns: type {type!r}: {len(kind)} characters as the name of a table, may be"
            f" {KIND_CHARS_MAX}"
        )
    return kind


def kind_of(feed: str, table: str) -> str | None:
    """Return the kind of *table*; None if it does not belong to *feed*."""
    kind = table.removeprefix(f"{_encoded(feed)}_")
    ours = kind != table and (kind in KINDS or kind.startswith(_TYPE))
    return kind if ours else None


def _encoded(text: str) -> str:
    return "".join(chr(byte) if chr(byte) in _PLAIN else f"_{byte:02x}" for byte in text.encode())

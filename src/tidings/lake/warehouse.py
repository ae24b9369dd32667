"""Where the tables are, and what a session of Spark is told of it."""

from __future__ import annotations

import re
import string
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pyspark.sql import SparkSession
from tidings.http.archive_url import RULE
from tidings.lake.errors import BadColumns, BadTable

CATALOG = "lake"
DATABASE = "tidings"
# Spark reads it as it starts: `SET IDENTIFIER FIELDS` and `WRITE ORDERED BY` are Iceberg's own.
EXTENSIONS = {
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
}
KIND_CHARS_MAX = 160  # of the 255 of a table in Glue: the name of the feed stands before it
HISTORY, LATEST = KINDS = "history", "latest"
_TYPE = "type_"
_PLAIN = frozenset(string.ascii_lowercase + string.digits)


@dataclass(frozen=True, slots=True)
class Warehouse:
    """*url* is of the folder below which the files are; *glue* names them in AWS's catalog."""

    url: str
    database: str = DATABASE
    glue: bool = False

    def session(self, spark: SparkSession) -> SparkSession:
        """A session of the same Spark that knows the tables by `CATALOG`."""
        session = spark.newSession()
        for name, value in self._settings().items():
            session.conf.set(name, value)
        # A table of Iceberg keeps a time with its zone; people read it in this one.
        session.conf.set("spark.sql.session.timeZone", "UTC")
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
            f"{catalog}.cache-enabled": "false",  # another run may have committed since
        }


def in_folder(url: str) -> Warehouse:
    """
    Of tables on this machine, whose folder is named by its path or as `file:///FOLDER`.

    Raises:
        BadTable: it is somewhere else. Commits to a folder on S3 would need a lock.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("", "file") or parts.netloc or not parts.path.strip("/"):
        raise BadTable(f"--table {url!r}: must be a folder of this machine, file:///FOLDER")
    path = Path(unquote(parts.path) if parts.scheme else url)
    return Warehouse(str(path.resolve()))  # Java may have been started in another folder


def in_glue(url: str, database: str) -> Warehouse:
    """
    Of tables on S3 that Glue names.

    Raises:
        BadTable: not an address on S3, or not the name of a database.
    """
    parts = urlsplit(url)
    if parts.scheme != "s3" or not parts.netloc:
        raise BadTable(f"--table {url!r}: {RULE.partition(' or ')[0]}")
    if not re.fullmatch(r"[a-z0-9_]{1,255}", database):
        raise BadTable(f"--glue {database!r}: must be small letters, digits and _")
    return Warehouse(url, database, glue=True)


def of_stage(stage: str) -> Warehouse:
    """The tables of a stage, to look at: where their files are Glue says itself."""
    return Warehouse("", f"tidings_{stage}_lake".replace("-", "_"), glue=True)


def table_name(feed: str, kind: str) -> str:
    """
    Of the table *kind* of *feed*, the same for ever and of no other feed.

    Glue and Athena take letters, digits and `_`: anything else is encoded by its code, `_` too.
    """
    return f"{_encoded(feed)}_{kind}"


def type_kind(type: str) -> str:
    """
    The kind of the table of a type. No code begins with a t, so it is no other feed's.

    Raises:
        BadColumns: its name would be longer than one may be.
    """
    kind = f"{_TYPE}{_encoded(type)}"
    if len(kind) > KIND_CHARS_MAX:
        raise BadColumns(
            f"columns: type {type!r}: {len(kind)} characters as the name of a table, may be"
            f" {KIND_CHARS_MAX}"
        )
    return kind


def kind_of(feed: str, table: str) -> str | None:
    """The kind of *table*; None where it is none of *feed*'s."""
    kind = table.removeprefix(f"{_encoded(feed)}_")
    ours = kind != table and (kind in KINDS or kind.startswith(_TYPE))
    return kind if ours else None


def _encoded(text: str) -> str:
    return "".join(chr(byte) if chr(byte) in _PLAIN else f"_{byte:02x}" for byte in text.encode())

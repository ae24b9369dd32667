"""Where the tables are, and what a session of Spark is told of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from pyspark.sql import SparkSession
from tidings.lake.errors import BadTable
from tidings.web.archive_url import RULE

CATALOG = "lake"
DATABASE = "tidings"
_ODD = re.compile(r"[^a-z0-9]")


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
    path = unquote(parts.path) if parts.scheme else url
    return Warehouse(path)


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


def table_name(feed: str, kind: str) -> str:
    """
    Of the table *kind* of *feed*, the same for ever and of no other feed.

    Glue and Athena take letters, digits and `_`: anything else is encoded by its code, `_` too.
    """
    plain = _ODD.sub(lambda match: f"_{ord(match[0]):02x}", feed)
    return f"{plain}_{kind}"

"""Names of datasets, as OpenLineage's conventions have them; a user or password is in none."""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

_S3, _FILE = "s3://", "file://"


@dataclass(frozen=True, slots=True)
class Dataset:
    """
    *columns* are names and types, none where it has none. *table*: namespace and name by which the
    catalog knows it, where it is one of Iceberg's.
    """

    namespace: str
    name: str
    columns: tuple[tuple[str, str], ...] = ()
    table: tuple[str, str] | None = None


def of_feed(url: str, feed: str) -> Dataset:
    """The *feed* of the host in *url*."""
    return Dataset(server(url), feed)


def of_files(address: str) -> Dataset:
    """
    A file or folder on this machine, or `s3://BUCKET/KEY`.

    Of a pattern, the folder that all its files are below.
    """
    if address.startswith(_S3):
        bucket, _, key = address.removeprefix(_S3).partition("/")
        return Dataset(f"{_S3}{bucket}", key.rstrip("/") or "/")
    path = unquote(urlsplit(address).path) if address.startswith(_FILE) else address
    return Dataset("file", os.path.abspath(_without_pattern(path)))


def server(url: str, scheme: str = "", port: int | None = None) -> str:
    """Scheme, host and port of *url*; *scheme* in place of its own, *port* where it has none."""
    parts = urlsplit(url)
    host = parts.hostname or "localhost"
    where = f"[{host}]" if ":" in host else host
    number = parts.port or port
    return f"{scheme or parts.scheme}://{where}{f':{number}' if number else ''}"


def _without_pattern(path: str) -> str:
    if os.path.exists(path):
        return path
    parts = Path(path).parts
    plain = next((at for at, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    return str(Path(*parts[:plain]))

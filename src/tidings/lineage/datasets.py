"""Datasets with names that follow OpenLineage's conventions, without users and passwords."""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

_S3, _FILE = "s3://", "file://"


@dataclass(frozen=True, slots=True)
class Dataset:
    """A dataset. *columns* has the name and the type of each column.

    If the dataset is an Iceberg table, *table* is its namespace and name in the catalog.
    """

    namespace: str
    name: str
    columns: tuple[tuple[str, str], ...] = ()
    table: tuple[str, str] | None = None


def of_feed(url: str, feed: str) -> Dataset:
    """Return the dataset of *feed* on the host in *url*."""
    return Dataset(server(url), feed)


def of_files(address: str) -> Dataset:
    """Return the dataset of a file or folder on this machine, or of `s3://BUCKET/KEY`.

    If *address* is a pattern, return the dataset of the folder that contains all matching files.
    """
    if address.startswith(_S3):
        bucket, _, key = address.removeprefix(_S3).partition("/")
        return Dataset(f"{_S3}{bucket}", key.rstrip("/") or "/")
    path = unquote(urlsplit(address).path) if address.startswith(_FILE) else address
    return Dataset("file", os.path.abspath(_without_pattern(path)))


def server(url: str, scheme: str = "", port: int | None = None) -> str:
    """Return the scheme, host and port of *url*.

    *scheme*, if given, replaces the scheme of *url*. *port* is used if *url* has no port.
    """
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

"""Where an archive is: `s3://BUCKET/PREFIX` or `file:///FOLDER`, and the store that is there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_s3 import S3Client

    from .folder_archive import FolderArchive
    from .s3_archive import S3Archive

FOLDER = "archive"  # where the feeds of an archive are, below its address
RULE = "must be s3://BUCKET/PREFIX or file:///FOLDER"


class WrongArchive(Exception):
    def __init__(self, url: str, rule: str = RULE) -> None:
        super().__init__(f"{url!r}: {rule}")


@dataclass(frozen=True, slots=True)
class ArchiveUrl:
    """*bucket* is empty for a folder. The keys of a feed are below `archive/{feed}/` of *path*."""

    bucket: str
    path: str


def parse(url: str) -> ArchiveUrl:
    """
    Raises:
        WrongArchive: it names neither.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        raise WrongArchive(url) from None
    plain = not (parts.query or parts.fragment)
    if parts.scheme == "s3" and parts.netloc and plain:
        prefix = parts.path.strip("/")
        return ArchiveUrl(parts.netloc, f"{prefix}/" if prefix else "")
    if parts.scheme == "file" and not parts.netloc and len(parts.path) > 1 and plain:
        return ArchiveUrl("", unquote(parts.path))
    raise WrongArchive(url)


def holding(url: str, feed: str, objects: Callable[[], S3Client]) -> S3Archive | FolderArchive:
    """
    The archive at *url* that has parts of *feed*. A url may name the folder `archive` in which the
    feeds are, as whoever looks for parts finds it, or the one above.

    Raises:
        WrongArchive: it names none, or nothing of *feed* is there.
    """
    above, _, last = url.rstrip("/").rpartition("/")
    for each in (url, above) if last == FOLDER else (url,):
        found = open_archive(each, objects)
        if found.list(feed, 0, 1):
            return found
    raise WrongArchive(url, f"holds no part of the feed {feed}")


def open_archive(url: str, objects: Callable[[], S3Client]) -> S3Archive | FolderArchive:
    """
    The archive at *url*; *objects* is asked for a client of S3 where one is needed.

    Raises:
        WrongArchive: it names none.
    """
    at = parse(url)
    if at.bucket:
        from .s3_archive import S3Archive

        return S3Archive(objects, at.bucket, at.path)
    from .folder_archive import FolderArchive

    return FolderArchive(Path(at.path))

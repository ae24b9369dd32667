"""The store of the archive that stands at an address."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tidings.http.archive_url import FOLDER, WrongArchive, parse

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_s3 import S3Client
    from tidings.aws.s3.archive import S3Archive
    from tidings.http.outbound.folder_archive import FolderArchive


def holding(url: str, feed: str, objects: Callable[[], S3Client]) -> S3Archive | FolderArchive:
    """
    The archive at *url* that has parts of *feed*. A url may name the folder `archive` in which the
    feeds are, as whoever looks for parts finds it, or the one above.

    Raises:
        WrongArchive: it names none, or nothing of *feed* is there.
    """
    above, _, last = url.rstrip("/").rpartition("/")
    for each in (url, above) if last == FOLDER else (url,):
        archive = open_archive(each, objects)
        if archive.list(feed, 0, 1):
            return archive
    raise WrongArchive(url, f"holds no part of the feed {feed}")


def open_archive(url: str, objects: Callable[[], S3Client]) -> S3Archive | FolderArchive:
    """
    The archive at *url*; *objects* is asked for a client of S3 where one is needed.

    Raises:
        WrongArchive: it names none.
    """
    at = parse(url)
    if at.bucket:
        from tidings.aws.s3.archive import S3Archive

        return S3Archive(objects, at.bucket, at.path)
    from tidings.http.outbound.folder_archive import FolderArchive

    return FolderArchive(Path(at.path))

"""Open the archive at a URL, and the ledger of erasures next to it.

Botocore is imported only for an archive on S3.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tidings.http.settings import ARCHIVE_FOLDER, WrongArchive, parse_archive_url

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_s3 import S3Client

    from tidings.aws.s3 import S3Archive, S3FeedFiles, S3Ledger
    from tidings.core.effects import Clock
    from tidings.http.outbound.folder_archive import FolderArchive, FolderFeedFiles, FolderLedger


def holding(url: str, feed: str, objects: Callable[[], S3Client]) -> S3Archive | FolderArchive:
    """Return the archive at *url* that contains *feed*.

    *url* is the folder `archive`, with one folder for each feed in it, or the parent of the folder
    `archive`.

    Raises:
        WrongArchive: *url* is not an archive, or contains no part of *feed*.
    """
    above, _, last = url.rstrip("/").rpartition("/")
    for each in (url, above) if last == ARCHIVE_FOLDER else (url,):
        archive = open_archive(each, objects)
        if archive.list(feed, 0, 1):
            return archive
    raise WrongArchive(url, f"holds no part of the feed {feed}")


def open_archive(url: str, objects: Callable[[], S3Client]) -> S3Archive | FolderArchive:
    """Return the archive at *url*; call *objects* for an S3 client only if one is needed.

    Raises:
        WrongArchive: *url* is not an archive.
    """
    at = parse_archive_url(url)
    if at.bucket:
        from tidings.aws.s3 import S3Archive

        return S3Archive(objects, at.bucket, at.path)
    from tidings.http.outbound.folder_archive import FolderArchive

    return FolderArchive(Path(at.path))


def open_ledger(url: str, objects: Callable[[], S3Client]) -> S3Ledger | FolderLedger:
    """Return the ledger of erasures next to the archive at *url*, as `open_archive` does.

    Raises:
        WrongArchive: *url* is not an archive.
    """
    at = parse_archive_url(url)
    if at.bucket:
        from tidings.aws.s3 import S3Ledger

        return S3Ledger(objects, at.bucket, at.path)
    from tidings.http.outbound.folder_archive import FolderLedger

    return FolderLedger(Path(at.path))


def open_files(
    url: str, objects: Callable[[], S3Client], steady: Clock
) -> S3FeedFiles | FolderFeedFiles:
    """Return what feeds have in the archive at *url* and in the ledger next to it, to remove it.

    Raises:
        WrongArchive: *url* is not an archive.
    """
    at = parse_archive_url(url)
    if at.bucket:
        from tidings.aws.s3 import S3FeedFiles

        return S3FeedFiles(objects, at.bucket, at.path, steady)
    from tidings.http.outbound.folder_archive import FolderFeedFiles

    return FolderFeedFiles(Path(at.path))

"""The archive of a feed as an operator finds it: on a stage, or at an address."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import boto3  # noqa: TID251 an operator's own credentials and profile, not a function's
import click
from tidings.aws.config.archive_url import WrongArchive
from tidings.aws.dynamodb.followers import DynamoDBFollowers
from tidings.aws.s3.archives import open_archive
from tidings.operate.state_target import StateTarget
from tidings.operate.state_target import find as find_tables

if TYPE_CHECKING:
    from tidings.aws.s3.archive import S3Archive
    from tidings.aws.s3.folder_archive import FolderArchive


@dataclass(frozen=True, slots=True)
class ArchiveTarget:
    """The parts of *feed* at *url*; *tables* are None where only the archive was named."""

    feed: str
    url: str
    store: S3Archive | FolderArchive
    tables: StateTarget | None

    @property
    def followers(self) -> DynamoDBFollowers | None:
        if self.tables is None:
            return None
        return DynamoDBFollowers(self.tables.client, self.tables.settings.control_table)


def find(
    feed: str, stage: str | None, endpoint_url: str | None, archive: str | None
) -> ArchiveTarget:
    """
    Raises:
        UsageError: nothing says where the archive is.
        NoStage, UnknownFeed: there is none.
    """
    tables = find_tables(feed, stage, endpoint_url) if stage or endpoint_url else None
    url = url_of(archive or "", tables)
    return ArchiveTarget(feed, url, store_at(url), tables)


def url_of(named: str, tables: StateTarget | None) -> str:
    """
    Where the archive is: as *named*, else as the stage says; a folder may be named by its path.

    Raises:
        UsageError: nothing says it.
    """
    url = named or (tables.settings.archive if tables else "")
    if not url:
        raise click.UsageError("name a --stage that has an archive, or where it is by --archive")
    return url if "://" in url else Path(url).resolve().as_uri()


def store_at(url: str) -> S3Archive | FolderArchive:
    """
    Raises:
        UsageError: no archive can be there.
    """
    try:
        return open_archive(url, lambda: boto3.client("s3"))
    except WrongArchive as error:
        raise click.UsageError(f"--archive {error}") from None

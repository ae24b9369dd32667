"""The archive of a feed for an operator: its location, its content, and its follower's lag."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import boto3  # noqa: TID251 an operator's own credentials and profile, not a function's
import click

from tidings.admin.state_target import StateTarget, uncounted
from tidings.admin.state_target import find as find_tables
from tidings.aws.archives import open_archive
from tidings.aws.effects import now_ms
from tidings.aws.s3 import S3Archive
from tidings.core.archive.reader import ArchiveReader, all_spans, holes
from tidings.core.followers.names import ARCHIVE
from tidings.core.model.pages import Page
from tidings.http.archive_url import WrongArchive
from tidings.http.outbound.folder_archive import FolderArchive


@dataclass(frozen=True, slots=True)
class ArchiveTarget:
    """The archive of *feed* at *url*. *tables* is None if only the archive was given."""

    feed: str
    url: str
    store: S3Archive | FolderArchive
    tables: StateTarget | None


def find(
    feed: str, stage: str | None, endpoint_url: str | None, archive: str | None
) -> ArchiveTarget:
    """
    Return the archive of *feed*.

    Raises:
        UsageError: the location of the archive is unknown.
        NoStage, UnknownFeed: the stage or the feed does not exist.
    """
    tables = find_tables(feed, stage, endpoint_url) if stage or endpoint_url else None
    url = url_of(archive or "", tables)
    return ArchiveTarget(feed, url, store_at(url), tables)


def url_of(named: str, tables: StateTarget | None) -> str:
    """
    Return the URL of the archive: *named*, else that of the stage. *named* may be a folder's path.

    Raises:
        UsageError: neither is known.
    """
    url = named or (tables.settings.archive if tables else "")
    if not url:
        raise click.UsageError("name a --stage that has an archive, or where it is by --archive")
    return url if "://" in url else Path(url).resolve().as_uri()


def store_at(url: str) -> S3Archive | FolderArchive:
    """
    Return the archive at *url*.

    Raises:
        UsageError: *url* cannot be an archive.
    """
    try:
        return open_archive(url, lambda: boto3.client("s3"))
    except WrongArchive as error:
        raise click.UsageError(f"--archive {error}") from None


@dataclass(frozen=True, slots=True)
class Lag:
    """The follower's lag: its last archived page, pages missing, and the age of the oldest one."""

    checkpoint: int
    pages: int
    ms: int
    floor: int


@dataclass(frozen=True, slots=True)
class ArchiveStatus:
    """
    The content of an archive. *gaps* are ranges of missing pages, each as first and last page.
    """

    feed: str
    archive: str
    parts: int
    bytes: int
    first: int | None
    last: int | None
    gaps: Sequence[tuple[int, int]]
    lag: Lag | None

    def as_json(self) -> dict[str, object]:
        return asdict(self)

    def as_lines(self) -> Iterator[str]:
        yield f"{self.feed} in {self.archive}"
        reach = "" if self.first is None else f", pages {self.first:,} to {self.last:,}"
        yield f"  {self.parts:,} parts of {self.bytes:,} bytes{reach}"
        for first, last in self.gaps:
            yield f"  missing: pages {first:,} to {last:,}"
        if self.lag is not None:
            behind = f"{self.lag.pages:,} pages behind, {self.lag.ms / 1000:,.0f} s"
            yield f"  the follower is at page {self.lag.checkpoint:,}, {behind}"
            yield f"  the log begins with page {self.lag.floor:,}"


def look(target: ArchiveTarget) -> ArchiveStatus:
    spans = list(all_spans(target.store, target.feed))
    return ArchiveStatus(
        target.feed,
        target.url,
        parts=len(spans),
        bytes=target.store.size(target.feed),
        first=min((span.first for span in spans), default=None),
        last=max((span.last for span in spans), default=None),
        gaps=holes(spans),
        lag=_lag(target),
    )


def pages(target: ArchiveTarget, first: int, last: int) -> Iterator[Page]:
    """Yield the archived pages from *first* to *last*, up to the first missing one."""
    reader = ArchiveReader(target.store, uncounted)
    while first <= last and (batch := reader.read(target.feed, first - 1, last)):
        yield from batch
        first = batch[-1].number + 1


def _lag(target: ArchiveTarget) -> Lag | None:
    tables = target.tables
    if tables is None:
        return None
    checkpoint = tables.followers().checkpoints(target.feed).get(ARCHIVE, 0)
    log = tables.log()
    waiting = log.read(target.feed, checkpoint, 1)
    ms = max(0, now_ms() - waiting[0].at_ms) if waiting else 0
    return Lag(checkpoint, log.head(target.feed) - checkpoint, ms, log.floor(target.feed))

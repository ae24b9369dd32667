"""The archive of a feed as an operator names it, what is in it, and how far its follower is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import boto3  # noqa: TID251 an operator's own credentials and profile, not a function's
import click
from tidings.admin.state_target import StateTarget, uncounted
from tidings.admin.state_target import find as find_tables
from tidings.aws.runtime.clock import now_ms
from tidings.aws.s3.archive import S3Archive
from tidings.aws.s3.archives import open_archive
from tidings.core.archive.reader import ArchiveReader, all_spans, holes
from tidings.core.followers.names import ARCHIVE
from tidings.core.model.pages import Page
from tidings.http.archive_url import WrongArchive
from tidings.http.outbound.folder_archive import FolderArchive


@dataclass(frozen=True, slots=True)
class ArchiveTarget:
    """The parts of *feed* at *url*; *tables* are None where only the archive was named."""

    feed: str
    url: str
    store: S3Archive | FolderArchive
    tables: StateTarget | None


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


@dataclass(frozen=True, slots=True)
class Lag:
    """*page* is the last one that the follower kept; *ms* the age of the oldest that it did not."""

    checkpoint: int
    pages: int
    ms: int
    floor: int


@dataclass(frozen=True, slots=True)
class ArchiveStatus:
    """*gaps* are first and last page of what no part holds, between the first and the last one."""

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
    """What the archive has of the pages *first* to *last*, as far as there is no hole."""
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

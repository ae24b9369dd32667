"""An archive in a folder, for hosts on one machine and for local copies of an archive."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tidings.core.archive.segments import Span, span_of
from tidings.http.settings import ARCHIVE_FOLDER

if TYPE_CHECKING:
    from collections.abc import Sequence


class FolderArchive:
    """Implements `ArchiveStore`; the files have the same names as on S3."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, feed: str, span: Span, body: bytes) -> None:
        """
        Write the file atomically: concurrent readers see either the old file or the whole new file.
        """
        path = self._path(feed, span)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, written = tempfile.mkstemp(dir=path.parent, prefix=".")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
            Path(written).replace(path)
        except BaseException:
            Path(written).unlink(missing_ok=True)
            raise
        _sync(path.parent)

    def get(self, feed: str, span: Span) -> bytes | None:
        try:
            return self._path(feed, span).read_bytes()
        except FileNotFoundError:
            return None

    def list(self, feed: str, after: int, limit: int) -> Sequence[Span]:
        names: list[str] = []
        with suppress(FileNotFoundError):
            names = os.listdir(self._of(feed))
        spans = (span_of(name) for name in names)
        return sorted(span for span in spans if span is not None and span.last > after)[:limit]

    def remove(self, feed: str, span: Span) -> None:
        self._path(feed, span).unlink(missing_ok=True)

    def size(self, feed: str) -> int:
        with suppress(FileNotFoundError):
            return sum(each.stat().st_size for each in self._of(feed).iterdir())
        return 0

    def _path(self, feed: str, span: Span) -> Path:
        return self._of(feed) / span.name

    def _of(self, feed: str) -> Path:
        return self._folder / ARCHIVE_FOLDER / feed


def _sync(folder: Path) -> None:
    """Flush *folder*, so that the file names in it are durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

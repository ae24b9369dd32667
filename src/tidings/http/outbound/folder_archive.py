"""An archive in a folder, for hosts on one machine and for local copies of an archive."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tidings.core.archive.generations import list_parts, parse_generations, record_name
from tidings.core.archive.segments import Span, decode, folder_of, span_of
from tidings.core.erasure.records import from_json, to_json
from tidings.core.errors import BrokenPart, Unavailable
from tidings.core.feeds.records import Removed
from tidings.http.outbound.files import sync_folder
from tidings.http.settings import ARCHIVE_FOLDER, LEDGER_FOLDER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidings.core.archive.segments import Generation
    from tidings.core.erasure.records import Erasure


class FolderArchive:
    """Implements `ArchiveStore`; the files have the same names as on S3."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, feed: str, span: Span, body: bytes) -> None:
        """See `ArchiveStore`.

        Raises:
            Unavailable: another host writes a feed of the same name to this folder.
        """
        for each in self.parts(feed, span.generation, span.first - 1, 1):
            if each.first <= span.last and (page := _conflict(self.get(feed, each), body)):
                raise Unavailable(
                    f"{self._of(feed)} has another page {page:,}, of a feed of another host; set"
                    " TIDINGS_ARCHIVE to a folder of this host"
                )
        _write(self._path(feed, span), body)

    def get(self, feed: str, span: Span) -> bytes | None:
        try:
            return self._path(feed, span).read_bytes()
        except FileNotFoundError:
            return None

    def list(self, feed: str, after: int, limit: int) -> Sequence[Span]:
        return list_parts(self, feed, after, limit)

    def parts(self, feed: str, generation: int, after: int, limit: int) -> Sequence[Span]:
        names, folder = list[str](), folder_of(generation)
        with suppress(FileNotFoundError):
            names = os.listdir(self._of(feed) / folder)
        spans = (span_of(folder + name) for name in names)
        return sorted(span for span in spans if span is not None and span.last > after)[:limit]

    def generations(self, feed: str) -> Mapping[int, Generation]:
        of_feed = self._of(feed)
        names = [
            f"{path.name}/" if path.is_dir() else path.name for path in of_feed.glob("generation-*")
        ]
        return parse_generations(names, lambda name: (of_feed / name).read_bytes())

    def begin(self, feed: str, number: int, generation: Generation) -> bool:
        path = self._of(feed) / record_name(number)
        new = path.with_name(f".{secrets.token_hex(8)}")
        _write(new, generation.to_json().encode())
        try:
            path.hardlink_to(new)  # fails if the record exists, and is never seen half written
        except FileExistsError:
            return False
        finally:
            new.unlink()
        sync_folder(path.parent)
        return True

    def remove(self, feed: str, span: Span) -> None:
        self._path(feed, span).unlink(missing_ok=True)

    def size(self, feed: str) -> int:
        with suppress(FileNotFoundError):
            return sum(each.stat().st_size for each in self._of(feed).rglob("*.gz"))
        return 0

    def _path(self, feed: str, span: Span) -> Path:
        return self._of(feed) / span.name

    def _of(self, feed: str) -> Path:
        return self._folder / ARCHIVE_FOLDER / feed


def _conflict(kept: bytes | None, body: bytes) -> int:
    """Return the number of a page that two parts have with different times, or 0."""
    with suppress(BrokenPart):
        at_ms = {page.number: page.at_ms for page in decode(kept or b"")}
        for page in decode(body):
            if at_ms.get(page.number, page.at_ms) != page.at_ms:
                return page.number
    return 0


class FolderLedger:
    """Implements `Ledger` with a file for each erasure, in *folder*/erasures."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / LEDGER_FOLDER

    def add(self, feed: str, erasure: Erasure) -> None:
        try:
            _write(self._path(feed, erasure.id), to_json(erasure).encode())
        except OSError as error:  # such as a full disk
            raise Unavailable(f"the ledger of erasures cannot be written: {error}") from error

    def entries(self, feed: str) -> Sequence[Erasure]:
        return [from_json(path.read_text()) for path in sorted(self._of(feed).glob("*.json"))]

    def feeds(self) -> Sequence[str]:
        """Return the feeds with entries, and possibly others."""
        with suppress(FileNotFoundError):
            return sorted(os.listdir(self._folder))
        return ()

    def remove(self, feed: str, erasure_id: str) -> None:
        self._path(feed, erasure_id).unlink(missing_ok=True)
        with suppress(OSError):  # the folder has other entries, or does not exist
            self._of(feed).rmdir()

    def _path(self, feed: str, erasure_id: str) -> Path:
        return self._of(feed) / f"{erasure_id}.json"

    def _of(self, feed: str) -> Path:
        return self._folder / feed


class FolderFeedFiles:
    """Implements `FeedData` with the files of `FolderArchive` and `FolderLedger` in *folder*."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def remove(self, key: str, resume_at: str, until_ms: int) -> Removed:
        """See `FeedData`. Removing files is fast, so one call removes all of them."""
        counts: dict[str, int] = {}
        for location, name in (("archive", ARCHIVE_FOLDER), ("erasures", LEDGER_FOLDER)):
            of_feed = self._folder / name / key
            with suppress(FileNotFoundError):
                counts[location] = len(os.listdir(of_feed))
                shutil.rmtree(of_feed, ignore_errors=True)  # a late writer may add a file
                sync_folder(of_feed.parent)
        return Removed(None, counts)


def _write(path: Path, body: bytes) -> None:
    """Write the file atomically: concurrent readers see either the old file or the new one."""
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
    sync_folder(path.parent)

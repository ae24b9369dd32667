"""The file after a loss of power: with any part of the writes that were not synced yet.

In a write-ahead log with `synchronous=FULL`, a commit writes the log and syncs it, and only then is
it acknowledged. A checkpoint writes the database after that, and the log starts again once that is
synced (https://www.sqlite.org/wal.html, https://www.sqlite.org/atomiccommit.html). So the files
before and after each commit are enough to build every state that a disk may have in between.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.model.pages import Page
from tidings.server.sqlite.database import Database
from tidings.server.sqlite.log import SqliteLog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest

FEED = "main"
COMMITS = 40
CHECKPOINT_PAGES = 30  # so that the log starts again several times
PAGE_BYTES, SECTOR_BYTES = 4096, 512
EXAMPLES = 8  # of each kind, of each commit
FULL = 2  # https://www.sqlite.org/pragma.html#pragma_synchronous


@dataclass(frozen=True)
class Image:
    """The files at a moment, when pages up to *acknowledged* were."""

    database: bytes
    log: bytes
    acknowledged: int


def images(path: Path) -> list[Image]:
    """Return a server's file after each of its commits; a commit has one to three pages."""
    database, taken = Database(path), []
    with database.transaction() as sql:
        assert sql.execute("PRAGMA synchronous").fetchone() == (FULL,)
        sql.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
    log, random = SqliteLog(database), Random(0)
    for _ in range(COMMITS):
        with database.transaction():
            for _ in range(random.randint(1, 3)):
                number = log.take(FEED)
                body = str(number) * random.randint(1, 4_000)
                log.put(FEED, Page(number, body, str(number), number, 0))
        taken.append(Image(path.read_bytes(), _log_of(path).read_bytes(), number))
    database.close()
    return taken


def half_written(before: Image, after: Image, random: Random) -> Iterator[Image]:
    """Yield images with a part of the log's unsynced writes: a prefix, or sectors in any order."""
    size = max(len(before.log), len(after.log))
    old, new = before.log.ljust(size, b"\0"), after.log.ljust(size, b"\0")
    first, last = _changed(old, new)
    for cut in (*random.choices(range(first, last), k=EXAMPLES), last + 1):
        yield Image(before.database, new[:cut] + old[cut:], before.acknowledged)
        yield Image(before.database, _mixed(old, new, SECTOR_BYTES, random), before.acknowledged)


def half_checkpointed(before: Image, after: Image, random: Random) -> Iterator[Image]:
    """Yield images with a complete log and a database with some new pages."""
    if before.database == after.database:
        return
    size = max(len(before.database), len(after.database))
    old = before.database + after.database[len(before.database) :]  # it grows before it is written
    for _ in range(EXAMPLES):
        mixed = _mixed(old.ljust(size, b"\0"), after.database, PAGE_BYTES, random)
        yield Image(mixed, after.log, after.acknowledged)


def recovered(image: Image, path: Path) -> int:
    """Return the last page that a server finds, which has all pages before it.

    Raises:
        CannotOpen: it would not serve the file.
    """
    path.write_bytes(image.database)
    _log_of(path).write_bytes(image.log)
    with contextlib.closing(Database(path)) as database:
        log = SqliteLog(database)
        pages = log.read(FEED, 0)
        assert not pages.more
        assert [page.number for page in pages] == list(range(1, log.head(FEED) + 1))
        for page in pages:
            assert set(page.text) <= set(str(page.number)), page.number
        return log.head(FEED)


def test_no_loss_of_power_takes_what_was_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit is there as a whole or not at all, and each before it is."""
    monkeypatch.setattr(limits, "SERVER_READ_BYTES_MAX", 1 << 30)
    (tmp_path / "served").mkdir()
    taken, path = images(tmp_path / "served" / "feed.db"), tmp_path / "feed.db"
    random, kept, checkpoints, begun_anew = Random(1), set(), 0, 0
    for before, after in pairwise(taken):
        begun_anew += before.log[:32] != after.log[:32]
        for image in half_written(before, after, random):
            last = recovered(image, path)
            assert last in (before.acknowledged, after.acknowledged)
            kept.add(last == after.acknowledged)
        for image in half_checkpointed(before, after, random):
            checkpoints += 1
            assert recovered(image, path) == after.acknowledged
    assert kept == {True, False}
    assert checkpoints and begun_anew


def _log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _changed(old: bytes, new: bytes) -> tuple[int, int]:
    """Return the first and the last byte that differ."""
    differ = [at for at in range(len(new)) if old[at] != new[at]]
    return differ[0], differ[-1]


def _mixed(old: bytes, new: bytes, unit: int, random: Random) -> bytes:
    """Return each *unit* of bytes from one of the two."""
    starts = range(0, len(new), unit)
    return b"".join(random.choice((old, new))[at : at + unit] for at in starts)

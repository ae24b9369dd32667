"""
The state: the latest operation of each object, in buckets. Deleted objects leave a tombstone.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from tidings.core import limits
from tidings.core.model.objects import is_change, key_of
from tidings.core.model.operations import event_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tidings.core.model.pages import Page


ABSENT = -1  # a number that a stored row lacks, as somebody who meddled left it


@dataclass(frozen=True, slots=True)
class Row:
    """
    The latest operation of the object *key*: *line* as it stands in the log at (page, slot).

    *at_ms* is when its page was committed; *expires_ms* is 0 for an object that lives.
    """

    key: str
    page: int
    slot: int
    at_ms: int
    line: str
    expires_ms: int = 0

    @property
    def whole(self) -> bool:
        """Whether nothing is absent: number or line."""
        return self.line != "" and ABSENT not in (self.page, self.slot, self.at_ms)

    @property
    def lives(self) -> bool:
        """Whether it counts in the sums of the state: whole, and no tombstone."""
        return not self.expires_ms and self.whole

    @property
    def deleted(self) -> bool:
        return event_of(self.line) == "delete"

    @property
    def bucket(self) -> int:
        return bucket_of(self.key)


class Overwritten(NamedTuple):
    """Where the row stood that another one took the place of, and whether its object lived."""

    page: int
    slot: int
    lives: bool


NOTHING = Overwritten(0, 0, lives=False)  # of an object that had no row


@dataclass(frozen=True, slots=True)
class Lines:
    """What a read of a bucket found, without positions; *after* is None at the bucket's end."""

    lines: list[str]
    after: str | None


def bucket_of(key: str) -> int:
    """The same in every process and for ever: the state is partitioned by it."""
    return zlib.crc32(key.encode()) % limits.BUCKETS


def project(pages: Iterable[Page], *, tombstone_ms: int, now_ms: int = 0) -> list[Row]:
    """
    The rows that *pages* leave behind: the last operation of each object, once.

    A tombstone that is written late, at *now_ms*, stands for an hour all the same: where it went
    at once, an earlier write of its object that is still under way would bring that back.
    """
    latest: dict[str, Row] = {}
    for page in pages:
        for row in rows_of(page, tombstone_ms=tombstone_ms):
            latest[row.key] = row
    soon_ms = now_ms + limits.RETENTION_MS_MIN
    return [
        row if not 0 < row.expires_ms < soon_ms else replace(row, expires_ms=soon_ms)
        for row in latest.values()
    ]


def rows_of(page: Page, *, tombstone_ms: int) -> Iterator[Row]:
    """Each operation of *page* as the row it would leave if none came behind it."""
    for slot, line in page.entries():
        if is_change(line):
            continue  # there is no object whose latest operation it could be
        expires = page.at_ms + tombstone_ms if event_of(line) == "delete" else 0
        yield Row(key_of(line), page.number, slot, page.at_ms, line, expires)

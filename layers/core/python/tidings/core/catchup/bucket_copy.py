"""Copying: which rows of a bucket are told, and under which cursor."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidings.core import limits

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidings.core.catchup.progress import Progress
    from tidings.core.state.rows import Row


def in_copy(row: Row, *, since_ms: int, tombstones: bool, now_ms: int) -> bool:
    """Whether a copy of what changed since tells *row*."""
    if row.at_ms < since_ms or 0 < row.expires_ms <= now_ms:
        return False
    return tombstones or not row.deleted


def in_parts(progress: Progress, living: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """The *living* objects behind *progress*, those that share a cursor together."""
    at = 0
    while at < len(living) or not at:
        begun = replace(progress, passed=progress.passed + at)
        room = limits.COPY_PART_ROWS - begun.passed % limits.COPY_PART_ROWS
        yield begun.cursor, living[at : at + room]
        at += room


def behind(progress: Progress, after: str | None, living: int) -> Progress:
    """Behind a read of *living* objects that ended at the key *after*, or at the bucket's end."""
    if after is None:
        return replace(progress, bucket=progress.bucket + 1, after_key=None, passed=0)
    return replace(progress, after_key=after, passed=progress.passed + living)

"""Where a catch-up stands."""

from __future__ import annotations

from dataclasses import replace

from tidings.core.catchup.progress import Progress, in_log
from tidings.core.model.cursors import Place, Replication, parse

PLACE = Place(7, 3, 1_763_000_000)


def test_progress_comes_back_as_it_was_kept() -> None:
    """A replay goes on with it in another process."""
    progress = replace(in_log(PLACE), copying=True, bucket=5, after_key="video/a", passed=9)
    assert Progress.decode(progress.encode()) == progress


def test_its_cursor_is_what_a_client_resumes_from() -> None:
    """A place of the log, or while it copies the bucket that it is at."""
    progress = in_log(PLACE)
    assert parse(progress.cursor) == PLACE
    copying = replace(progress, copying=True, bucket=5, tombstones=True)
    assert parse(copying.cursor) == Replication(0, 7, 5, tombstones=True)

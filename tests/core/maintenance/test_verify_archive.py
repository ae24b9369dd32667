"""Verifying and rebuilding the state by the archive and the log."""

from __future__ import annotations

import pytest
from tidings.core.archive.reader import ArchiveReader
from tidings.core.archive.segments import compacted, decode, encode
from tidings.core.errors import LogIncomplete
from tidings.core.maintenance.rebuild import Repaired

from tests.core.following import filled, trimmed
from tests.core.maintenance.verified import alter, compared, named, rebuilt, remove, rows, verifier
from tests.core.scene import FEED, Scene, op


@pytest.fixture
def given_up(scene: Scene) -> Scene:
    """a, b and c on three pages that the archive has and the log has not; d behind them."""
    filled(scene)
    scene.archived()
    trimmed(scene, 4)
    scene.projected(op("d", "insert"))
    return scene


@pytest.fixture
def archive(given_up: Scene) -> ArchiveReader:
    return ArchiveReader(given_up.archive, given_up.count)


def test_what_is_older_than_the_log_is_compared(given_up: Scene, archive: ArchiveReader) -> None:
    """By the log alone nothing can be said of it."""
    remove(given_up, "video/c")
    alter(given_up, "video/a", slot=0)

    assert named(given_up) == []
    assert named(given_up, archive) == ["missing video/c", "stale video/a"]


def test_it_is_put_right(given_up: Scene, archive: ArchiveReader) -> None:
    """Then the state is the fold of all that ever was."""
    before = rows(given_up.state)
    for key in ("video/a", "video/c"):
        remove(given_up, key)

    assert rebuilt(given_up, archive) == Repaired(2, 0)
    assert rows(given_up.state) == before
    assert named(given_up, archive) == []


def test_what_compaction_left_is_the_same_measure(given_up: Scene, archive: ArchiveReader) -> None:
    """The latest operation of each object, at the slot that it had."""
    for span in given_up.archive.list(FEED, 0, 9):
        pages = decode(given_up.archive.get(FEED, span) or b"")
        left = encode(compacted(pages, {(2, 0), (2, 1), (3, 0)}))
        given_up.archive.put(FEED, *left)

    assert named(given_up, archive) == []
    remove(given_up, "video/a")
    assert named(given_up, archive) == ["missing video/a"]


def test_it_begins_behind_the_last_hole(given_up: Scene, archive: ArchiveReader) -> None:
    """What is before it is older than what is known, and counted."""
    given_up.post_each("e", "e")
    given_up.project()
    given_up.archived()
    (first, _) = given_up.archive.list(FEED, 0, 9)
    trimmed(given_up, 6)
    assert verifier(given_up, archive=archive).floor == 1
    given_up.archive.remove(FEED, first)

    assert verifier(given_up, archive=archive).floor == 4
    assert sum(each.older for each in compared(given_up, archive)) == 3


def test_a_part_that_cannot_be_read_is_no_measure(given_up: Scene, archive: ArchiveReader) -> None:
    """Nothing is called wrong because of it."""
    (span,) = given_up.archive.list(FEED, 0, 9)
    given_up.archive.put(FEED, span, b"rubbish")

    with pytest.raises(LogIncomplete):
        compared(given_up, archive)


def test_without_a_floor_above_its_pages_the_archive_says_nothing(scene: Scene) -> None:
    """The log has all of it."""
    filled(scene)
    made = verifier(scene, archive=ArchiveReader(scene.archive, scene.count))

    assert (made.floor, made.page) == (1, 3)

"""Verifying and rebuilding the state by the archive and the log."""

from __future__ import annotations

import pytest
from tidings.core.archive.reader import ArchiveReader
from tidings.core.archive.segments import compacted, decode, encode
from tidings.core.errors import LogIncomplete
from tidings.core.maintenance.rebuild import Rebuilder
from tidings.core.maintenance.verify import Verifier

from tests.core.following import filled, trimmed
from tests.core.maintenance import verified
from tests.core.scene import FEED, Scene, op


@pytest.fixture
def given_up(scene: Scene) -> Scene:
    """a, b and c on three pages that the archive has and the log has not; d behind them."""
    filled(scene)
    scene.archived()
    trimmed(scene, 4)
    scene.post(op("d", "insert"))
    scene.project()
    return scene


def verifier(scene: Scene) -> Verifier:
    """One that has read the archive and the log."""
    return verified.verifier(scene, archive=ArchiveReader(scene.archive, scene.count))


def told(scene: Scene) -> list[str]:
    made = verifier(scene)
    found = [each for bucket in verified.BUCKETS for each in made.compare(bucket).differences]
    return sorted(f"{each.kind.value} {each.key}" for each in found)


def test_what_is_older_than_the_log_is_compared(given_up: Scene) -> None:
    """By the log alone nothing can be said of it."""
    verified.remove(given_up, "video/c")
    verified.alter(given_up, "video/a", slot=0)

    assert verified.told(given_up) == []
    assert told(given_up) == ["missing video/c", "stale video/a"]


def test_it_is_put_right(given_up: Scene) -> None:
    """Then the state is the fold of all that ever was."""
    before = verified.rows(given_up.state)
    for key in ("video/a", "video/c"):
        verified.remove(given_up, key)

    rebuilder = Rebuilder(verifier(given_up), given_up.state)
    assert sum(rebuilder.repair(bucket).repaired for bucket in verified.BUCKETS) == 2
    assert verified.rows(given_up.state) == before
    assert told(given_up) == []


def test_what_compaction_left_is_the_same_measure(given_up: Scene) -> None:
    """The latest operation of each object, at the slot that it had."""
    for span in given_up.archive.list(FEED, 0, 9):
        pages = decode(given_up.archive.get(FEED, span) or b"")
        left = encode(compacted(pages, {(2, 0), (2, 1), (3, 0)}))
        given_up.archive.put(FEED, *left)

    assert told(given_up) == []
    verified.remove(given_up, "video/a")
    assert told(given_up) == ["missing video/a"]


def test_it_begins_behind_the_last_hole(given_up: Scene) -> None:
    """What is before it is older than what is known, and counted."""
    for _ in range(2):
        given_up.post(op("e"))
    given_up.project()
    given_up.archived()
    (first, _) = given_up.archive.list(FEED, 0, 9)
    trimmed(given_up, 6)
    assert verifier(given_up).floor == 1
    given_up.archive.remove(FEED, first)

    made = verifier(given_up)
    assert made.floor == 4
    assert sum(made.compare(bucket).older for bucket in verified.BUCKETS) == 3


def test_a_part_that_cannot_be_read_is_no_measure(given_up: Scene) -> None:
    """Nothing is called wrong because of it."""
    (span,) = given_up.archive.list(FEED, 0, 9)
    given_up.archive.put(FEED, span, b"rubbish")

    with pytest.raises(LogIncomplete):
        verifier(given_up).compare(0)


def test_without_a_floor_above_its_pages_the_archive_says_nothing(scene: Scene) -> None:
    """The log has all of it."""
    filled(scene)
    made = verifier(scene)

    assert (made.floor, made.page) == (1, 3)

"""The follower `archive`: the contents of its parts, and when its checkpoint advances."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.unit.core.following import trimmed
from tests.unit.core.scene import FEED, Scene, op, unavailable
from tidings.core import limits
from tidings.core.archive.segments import decode
from tidings.core.archive.writer import Archiver
from tidings.core.errors import Unavailable
from tidings.core.followers.leases import Lease
from tidings.core.model.pages import Page, Pages


def spans(scene: Scene) -> list[tuple[int, int]]:
    """Return the first and the last page of each part."""
    return [(span.first, span.last) for span in scene.archive.list(FEED, 0, 1000)]


def kept(scene: Scene) -> list[Page]:
    """Return the pages of all parts."""
    parts = [scene.archive.get(FEED, span) or b"" for span in scene.archive.list(FEED, 0, 1000)]
    return [page for part in parts for page in decode(part)]


def checkpoint(scene: Scene) -> int:
    return scene.followers.checkpoints(FEED).get("archive", 0)


def test_all_there_is_goes_into_one_part(scene: Scene) -> None:
    """The part has the pages of the log. The next run writes the next part if there are new
    pages."""
    posted = [scene.post(op(str(number)), op("b")) for number in range(5)]

    assert scene.archived() == 5
    assert spans(scene) == [(1, 5)] and checkpoint(scene) == 5
    assert [(each.number, each.at_ms, each.text) for each in kept(scene)] == [
        (page.number, page.at_ms, page.text) for page in posted
    ]
    assert scene.archived() == 0
    posted.append(scene.post(op()))
    assert scene.archived() == 1
    assert spans(scene) == [(1, 5), (6, 6)]
    assert scene.counted["PartsArchived"] == 2


def test_many_reads_make_one_part(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part is a write that is paid for; one read of the log is small."""
    monkeypatch.setattr(limits, "READ_ITEMS_MAX", 2)
    monkeypatch.setattr(limits, "READ_PAGES_BYTES_MAX", 600)
    for _ in range(9):
        scene.post(op())
    assert len(scene.reader.read(FEED, 0).pages) < 5

    assert scene.archived() == 9
    assert spans(scene) == [(1, 9)]


@pytest.mark.parametrize(
    ("most", "parts"), [(3, [(1, 3), (4, 6), (7, 7)]), (0.5, [(n, n) for n in range(1, 8)])]
)
def test_a_part_is_bounded(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, most: float, parts: list[tuple[int, int]]
) -> None:
    """A reader holds a whole part in its memory; one page is a part, however large it is."""
    for number in range(1000, 1007):
        scene.post(op(str(number)))
    size = len(scene.log.read(FEED, 0, 1)[0].text)
    monkeypatch.setattr(limits, "ARCHIVE_PART_BYTES", most * size)

    assert scene.archived() == 7
    assert spans(scene) == parts


def test_it_stops_before_a_hole_and_does_not_wait(scene: Scene) -> None:
    """A turn that waits brings one page, and costs a write for it. Others close the hole."""
    scene.post(op())
    number = scene.log.take(FEED)
    scene.post(op())

    assert scene.archived() == 1 and scene.waits == []
    assert scene.log.read(FEED, 1)[0].number == number + 1
    scene.now_ms += limits.HOLE_GRACE_MS
    scene.project()
    assert scene.archived() == 2
    assert spans(scene) == [(1, 1), (2, 3)]
    assert [len(each.lines) for each in kept(scene)] == [1, 0, 1]


def test_the_checkpoint_stays_where_a_part_is_not_kept(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run writes the pages that this one could not."""
    scene.post(op())

    with monkeypatch.context() as patch:
        patch.setattr(scene.archive, "put", unavailable)
        with pytest.raises(Unavailable):
            scene.archived()
    assert checkpoint(scene) == 0 and spans(scene) == []

    scene.now_ms += limits.LEASE_MS
    assert scene.archived() == 1
    assert spans(scene) == [(1, 1)]


def test_who_lost_the_lease_does_no_harm(scene: Scene) -> None:
    """Its part has the same pages, and the checkpoint is that of the other holder."""
    scene.post(op("a"))
    scene.post(op("b"))

    class Slow(Archiver):
        def handle(self, feed: str, pages: Sequence[Page]) -> int:
            scene.now_ms += limits.LEASE_MS
            scene.post(op("c"))
            scene.archived()
            return scene.archiver.handle(feed, pages)

    scene.gathering.run(FEED, Slow(scene.archive, scene.count))

    assert spans(scene) == [(1, 2), (1, 3)] and checkpoint(scene) == 3
    assert kept(scene)[:2] == kept(scene)[2:4]


def test_a_hole_in_the_archive_is_told(scene: Scene) -> None:
    """If the archive was off for longer than the log's retention, it continues, and a counter shows
    it.
    """
    scene.post(op())
    scene.archived()
    for _ in range(4):
        scene.post(op())
    trimmed(scene, 4)

    scene.archived()
    assert spans(scene) == [(1, 1), (4, 5)]
    assert scene.counted["FollowerFellOff"] == 1


def test_a_floor_that_rises_while_reads_are_gathered(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pages that were read before are stored, although the next read finds its pages
    trimmed."""
    monkeypatch.setattr(limits, "READ_ITEMS_MAX", 2)
    monkeypatch.setattr(limits, "READ_PAGES_BYTES_MAX", 600)
    for _ in range(8):
        scene.post(op())
    read = scene.log.read
    reads: list[int] = []

    def rising(feed: str, after: int, limit: int | None = None, *, eventual: bool = False) -> Pages:
        reads.append(after)
        if len(reads) == 2:
            trimmed(scene, 7)
        return read(feed, after, limit, eventual=eventual)

    monkeypatch.setattr(scene.log, "read", rising)
    scene.archived()
    assert spans(scene)[0][0] == 1 and spans(scene)[-1] == (7, 8)
    assert scene.counted["FollowerFellOff"] == 1


def test_a_long_run_yields(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """When its time is up, it releases its lease and sends itself a wake-up."""
    monkeypatch.setattr(limits, "ARCHIVE_PART_BYTES", 1)
    for _ in range(3):
        scene.post(op())
    save = scene.followers.save

    def slow(lease: Lease, checkpoint: int, *, now_ms: int) -> Lease:
        scene.now_ms += limits.FOLLOW_RUN_MS
        return save(lease, checkpoint, now_ms=now_ms)

    monkeypatch.setattr(scene.followers, "save", slow)
    assert scene.archived() == 1
    assert scene.waker.woken == [(FEED, "archive")]

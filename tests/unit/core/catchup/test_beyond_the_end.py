"""A cursor beyond the end of a log names a page that the log had, and lost (PROTOCOL 5.9)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.fakes import MemoryTags
from tests.unit.core.following import caught_up, names
from tests.unit.core.scene import FEED, Scene, op
from tidings.core import limits
from tidings.core.changeagent.changes import end_of
from tidings.core.changeagent.list import Lister, Query
from tidings.core.errors import BelowFloor
from tidings.core.model.cursors import PAGE_END, Place, Replication

LAG_MS = 7_000  # between the last page here and the moment of the one that is gone


@pytest.fixture
def scene() -> Scene:
    """Create a feed with some pages, a state that has followed, and some seconds of pause."""
    scene = Scene()
    for name in "abc":
        scene.post(op(name, "insert"))
    scene.project()
    scene.now_ms += LAG_MS
    return scene


def beyond(scene: Scene, pages: int) -> Place:
    """Return the end of a page *pages* after the head, committed just now."""
    return Place(scene.log.head(FEED) + pages, PAGE_END, scene.now_ms // 1000)


def first(scene: Scene, cursor: str) -> str:
    return names(caught_up(scene, cursor))[0]


@pytest.mark.parametrize("pages", [1, 100, LAG_MS // 1000 * limits.NUMBERS_PER_S_MAX])
def test_a_page_that_can_have_been_given_was_lost(scene: Scene, pages: int) -> None:
    """Its reader may hold objects that the feed does not know, and forgets them."""
    assert first(scene, beyond(scene, pages).encode()) == "reset"
    assert first(scene, replace(beyond(scene, pages), slot=0).encode()) == "reset"


def test_the_time_of_the_cursor_does_not_matter(scene: Scene) -> None:
    """The lost log skipped numbers, as a promotion does, and this one has grown since."""
    cursor = beyond(scene, limits.NUMBERS_PER_S_MAX * 100).encode()
    assert first(scene, cursor) == "reset"
    scene.now_ms += LAG_MS
    scene.post(op("d", "insert"))
    assert first(scene, cursor) == "reset"


@pytest.mark.parametrize("since_s", [0, 1])
def test_so_was_a_copy_that_began_there(scene: Scene, since_s: int) -> None:
    """It copied everything, or the changes since a time."""
    since_s *= scene.now_ms // 1000 - 60
    copy = Replication(since_s, beyond(scene, 9).page, 7, tombstones=since_s > 0)
    assert first(scene, copy.encode()) == "reset"


def test_an_id_of_somebody_else_is_a_time(scene: Scene) -> None:
    """P5.6: the cursor is the twelve bytes of an ObjectId; this log cannot have reached its page
    number.
    """
    seconds = scene.now_ms // 1000
    foreign = Place(0x9F3C_77A1_02, 0x00B3C4, seconds)
    assert "reset" not in names(caught_up(scene, foreign.encode()))
    assert names(caught_up(scene, foreign.encode()))[-1] == "live"


def test_a_chained_feed_may_still_come_there(scene: Scene) -> None:
    """P5.9: a client that moves from the master to a copy gets no reset."""
    scene.catch_up = replace(scene.catch_up, copied_until=lambda feed, page: 0)
    assert "reset" not in names(caught_up(scene, beyond(scene, 3).encode()))


def test_a_list_says_so(scene: Scene) -> None:
    """P12.5: the list has `lost`, a strict client gets 410; at the end of the log nothing is
    lost."""
    lister, page = scene.lister(), scene.log.head(FEED)
    assert not lister.list(FEED, Query(since=end_of(page), strict=True)).lost
    gone = Query(since=end_of(page + 1))
    assert lister.list(FEED, gone).lost
    assert "lost" in lister.list(FEED, gone).to_json()
    with pytest.raises(BelowFloor, match="was lost; start again"):
        lister.list(FEED, replace(gone, strict=True))
    chained = Lister(scene.reader, scene.runtime.steady, MemoryTags(), chained=(FEED,))
    assert not chained.list(FEED, replace(gone, strict=True)).lost

"""Pages that are lost above the floor: the answer to each kind of reader."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.fakes import MemoryTags
from tests.unit.core.following import caught_up, names
from tests.unit.core.maintenance.test_retention import HOUR, vanish
from tests.unit.core.scene import FEED, PAGE_MS, Scene, op
from tidings.core.catchup.catchup import in_log
from tidings.core.changeagent.changes import end_of
from tidings.core.changeagent.list import Query
from tidings.core.changeagent.tag_index import Indexer, Summary
from tidings.core.errors import BelowFloor, FellOff, Unavailable
from tidings.core.log.reader import PagesLost
from tidings.core.model.filters import EVERYTHING


@pytest.fixture
def scene() -> Scene:
    """Ten pages that all followers have handled; the pages 4 and 5 are lost."""
    scene = Scene()
    for number in range(1, 11):
        scene.post(op(f"o{number}"))
    scene.project()
    scene.push()
    scene.archived()
    vanish(scene, 4, 5)
    return scene


def names_after(scene: Scene, cursor: str) -> list[str]:
    """Return the names of the events after *cursor*, up to the frontier."""
    return [event.name for event in caught_up(scene, cursor)]


def cursor(scene: Scene) -> str:
    """Return the end of the last page before the lost ones."""
    page = scene.reader.at(FEED, 3)
    assert page is not None
    return page.end.encode()


def test_a_stream_is_told_from_the_state(scene: Scene) -> None:
    """It gets the latest operation of each object, then `live`, as after a page that was given
    up."""
    scene.now_ms += 30 * HOUR
    scene.catch_up = replace(scene.catch_up, archive=None)
    assert names_after(scene, cursor(scene)) == ["insert"] * 10 + ["live"]


def test_a_stream_is_told_from_the_archive(scene: Scene) -> None:
    """Each operation, those of the lost pages too."""
    assert names(caught_up(scene, cursor(scene))) == [f"update o{n}" for n in range(4, 11)]


def test_a_stream_ends_where_nobody_has_what_was_lost(scene: Scene) -> None:
    """The state ends before the lost pages: a copy from it would return to them forever."""
    scene.set_checkpoint("state", 3)
    step = in_log(scene.reader.next(FEED, 3).end)  # type: ignore[union-attr]
    with pytest.raises(PagesLost):
        catch_up = replace(scene.catch_up, archive=None)
        catch_up.step(FEED, step, EVERYTHING)


def test_a_stream_ends_while_the_state_is_not_where_the_log_begins(scene: Scene) -> None:
    """This is so while a chained feed skips to its copy: a client that reconnects later gets
    everything.

    A copy used to end below the floor, where the same copy began, without a pause.
    """
    place = cursor(scene)
    scene.catch_up = replace(scene.catch_up, archive=None)
    scene.log.raise_floor(FEED, 15)
    for _ in range(2):
        with pytest.raises(Unavailable, match="has not reached page 15"):
            names_after(scene, place)
    scene.set_checkpoint("state", 14)

    assert names_after(scene, place) == ["insert"] * 10 + ["live"]


@pytest.mark.parametrize("name", ["state", "push"])
def test_a_follower_stands_still(scene: Scene, name: str) -> None:
    """With an error and its alarm, and nothing is filled."""
    scene.set_checkpoint(name, 3)
    with pytest.raises(FellOff):
        scene.project() if name == "state" else scene.push()
    assert scene.followers.checkpoints(FEED)[name] == 3
    assert scene.counted["FollowerFellOff"] == 1 and scene.counted["HolesFilled"] == 0


def test_changes_are_refused_behind_what_could_be_told(scene: Scene) -> None:
    """First the changes before the hole are listed, then the answer is 410 with the place to resume
    from.
    """
    lister = scene.lister()
    first = lister.list(FEED, Query(since=0))
    assert len(first.entries) == 3 and first.next == end_of(3) and not first.at_end
    with pytest.raises(BelowFloor) as refused:
        lister.list(FEED, Query(since=first.next))
    assert refused.value.floor == end_of(5)
    assert len(lister.list(FEED, Query(since=refused.value.floor)).entries) == 5


def test_the_index_of_tags_goes_on(scene: Scene) -> None:
    """The index says where tags may be; pages that it has no summary of are read."""
    tags = MemoryTags()
    tags.write(FEED, [Summary(1, 3, b"\0")])
    assert Indexer(tags, scene.reader, scene.runtime.steady, PAGE_MS).run(FEED) == 5

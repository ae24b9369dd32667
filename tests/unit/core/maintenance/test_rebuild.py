"""Rebuilding: rows that differ from the log are repaired, and no newer row is overwritten."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.fakes import MemoryState
from tests.unit.core.following import filled, trimmed
from tests.unit.core.maintenance.verified import (
    BUCKETS,
    alter,
    named,
    rebuilt,
    remove,
    rows,
    verifier,
)
from tests.unit.core.scene import FEED, NOW, Scene, line, op
from tidings.core.errors import Unavailable
from tidings.core.maintenance.verify import Rebuilder, Repaired
from tidings.core.state.rows import Difference, Row, bucket_of


class Meanwhile(MemoryState):
    """Runs an action before each repair, and fails after *dies_after* repairs."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Callable[[], object] = lambda: None
        self.dies_after = 10**6

    def repair(self, feed: str, differences: Sequence[Difference]) -> list[bool]:
        self.before()
        for each in differences:
            if self.dies_after == 0:
                raise Unavailable("killed")
            self.dies_after -= 1
            super().repair(feed, [each])
        return super().repair(feed, differences)


@pytest.fixture
def state() -> Meanwhile:
    return Meanwhile()


@pytest.fixture
def scene(state: Meanwhile) -> Scene:
    """Objects a, deleted b, and c."""
    scene = Scene(state=state)
    filled(scene)
    return scene


def break_all(scene: Scene) -> dict[str, Row]:
    """Break one row of each kind; return the rows from before."""
    before = rows(scene.state)
    remove(scene, "video/a")
    alter(scene, "video/b", page=1, line=line("b"), expires_ms=0)
    alter(scene, "video/c", line=line("c", parents=["p"]))
    scene.state.write(FEED, [Row("video/z", 2, 7, NOW, line("z"))])
    return before


def test_each_kind_is_put_right(scene: Scene) -> None:
    """The state is what it was, and a second run finds nothing to do."""
    before = break_all(scene)

    assert rebuilt(scene) == Repaired(4, 0)
    assert rows(scene.state) == before
    assert named(scene) == []
    assert rebuilt(scene) == Repaired(0, 0)


def test_what_is_older_than_the_log_is_kept(scene: Scene) -> None:
    """Such an object could not be restored from the log."""
    trimmed(scene, 3)
    alter(scene, "video/c", line=line("c", parents=["p"]))
    before = rows(scene.state)

    assert rebuilt(scene) == Repaired(0, 0)
    assert rows(scene.state) == before


def test_a_row_in_a_wrong_bucket_is_removed_there(scene: Scene, state: Meanwhile) -> None:
    """The row in its own bucket stays."""
    row = rows(state)["video/c"]
    wrong = (row.bucket + 1) % len(BUCKETS)
    state._buckets[FEED, wrong][row.key] = row

    assert rebuilt(scene) == Repaired(1, 0)
    assert state.read(FEED, row.bucket) == [row]
    assert row not in state.read(FEED, wrong)


@pytest.mark.parametrize("saved", [True, False])
def test_what_the_follower_writes_meanwhile_stands(
    scene: Scene, state: Meanwhile, saved: bool
) -> None:
    """A newer row wins, whatever was wrong with the old one; no repair overwrites it."""
    break_all(scene)
    posted: list[str] = []

    def meanwhile() -> None:
        if not posted:
            posted.extend(("a", "b", "c", "z"))
            page = scene.post(*(op(name, "update", parents=["new"]) for name in posted))
            scene.project() if saved else scene.projector.handle(FEED, [page])

    state.before = meanwhile
    done = rebuilt(scene)

    written = rows(state)
    assert {row.page for row in written.values()} == {4}
    assert done.moved >= 1
    state.before = lambda: None
    scene.project()
    assert named(scene) == []


@pytest.mark.parametrize("steps", range(4))
def test_killed_and_run_again_it_ends_the_same(scene: Scene, state: Meanwhile, steps: int) -> None:
    """This holds for a kill after any number of repairs."""
    before = break_all(scene)
    state.dies_after = steps
    with pytest.raises(Unavailable):
        rebuilt(scene)
    state.dies_after = 10**6

    assert rebuilt(scene) == Repaired(4 - steps, 0)
    assert rows(state) == before


def test_two_at_once_agree(scene: Scene, state: Meanwhile) -> None:
    """A row that the other one has repaired counts as correct."""
    remove(scene, "video/a")
    other = Rebuilder(verifier(scene), state)
    bucket = bucket_of("video/a")

    def meanwhile() -> None:
        state.before = lambda: None
        assert other.repair(bucket) == Repaired(1, 0)

    state.before = meanwhile
    assert Rebuilder(verifier(scene), state).repair(bucket) == Repaired(1, 0)

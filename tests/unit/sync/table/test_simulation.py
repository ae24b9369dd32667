"""A table is compared with a feed while its owner writes, posts late, and forgets to post."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.model.broken_correctors import LooksBefore
from tests.unit.sync.table import world as worlds
from tests.unit.sync.table.world import LAG_MS, Broken, Killed, World
from tidings.core.errors import Unavailable
from tidings.core.state.rows import Row
from tidings.core.sync.corrections import NOWHERE, Position
from tidings.core.sync.live import Difference
from tidings.sync.table import IN_MEMORY, Progress, TableSync

SEEDS, NOTICED = 40, 20
RATE = 20  # rows a second
IDS = [f"{number:02}" for number in range(12)]
COLD, HOT = IDS[:8], IDS[8:]


def made(seed: int, **others: Any) -> World:
    """Create a world: some objects were never posted, or not their last change; some change all the
    time.
    """
    world = World(Random(seed), IDS, **others)
    for id in world.random.choices(IDS, k=30):
        world.write(id)
        world.now_ms += 100
        world.post()
    world.now_ms += LAG_MS
    world.post()
    world.hot = HOT
    return world


def run(world: World, path: Path = IN_MEMORY, **options: Any) -> None:
    """Run the sync until it is done; after a kill, run it again."""
    while True:
        sync = world.sync(path, **options)
        try:
            sync.run()
            return
        except (Killed, Unavailable):
            world.kill_in = world.random.choice([None, world.random.randint(0, 200)])
        finally:
            sync._progress.close()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_feed_comes_to_agree_and_nothing_is_overwritten(seed: int, tmp_path: Path) -> None:
    """With kills anywhere and lost answers, idle objects agree at once, the others once writes
    end."""
    world = made(seed, failing=0.2)
    world.kill_in = world.random.randint(0, 200)
    run(world, tmp_path / "progress")
    world.follow()
    cold = {id: number for id, number in world.objects().items() if id in COLD}
    assert cold == {id: number for id, number in world.rows().items() if id in COLD}

    world.calm()
    run(world)
    world.calm()
    assert world.objects() == world.rows()
    world.check()


def test_a_kill_at_any_step_loses_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    """Runs are killed before and after each effect, one after the other."""
    whole = made(3, busy=0.0)
    run(whole)
    assert whole.effects > 50
    for step in range(whole.effects):
        world = made(3, busy=0.0)
        world.kill_in = step
        world.random = Random(step)
        run(world, tmp_path / f"{step}")
        world.calm()
        assert world.objects() == world.rows(), step
        world.check()


def test_no_more_rows_are_read_than_asked_for() -> None:
    """This holds between any two reads, including repeated reads and reads after a grace."""
    world = made(3, busy=0.0)
    begun = len(world.reads)
    run(world, rate=RATE)
    reads = world.reads[begun:]
    assert sum(rows for _, rows in reads) > 2 * len(world.table)
    for (at_ms, rows), (next_ms, _) in pairwise(reads):
        assert next_ms - at_ms >= 1000 * rows / RATE


def noticed(*, prompt: bool = True, **options: Any) -> bool:
    """Return True if a seed breaks a rule, in a world that is always busy."""
    for seed in range(NOTICED):
        world = made(seed, busy=0.5, lost=0.5)
        world.hot = IDS
        for _ in range(5):
            run(world, deletes=False, **options)
        world.calm()
        try:
            world.check(prompt=prompt)
        except Broken:
            return True
    return False


class AnyOrder(TableSync):
    """A sync in which only the second read decides, and reads the table before the state."""

    def _look_again(self, keys: list[str]) -> None:
        self._before = super()._find_differences(keys)
        super()._look_again(keys)

    def _find_differences(self, keys: Sequence[str]) -> dict[str, str]:
        return self._before

    def _difference(self, line: str | None, row: Row | None) -> Difference | None:
        found = super()._difference(line, row)
        return found and Unmarked(found.event, found.line, found.at)


class Unmarked(Difference):
    """All differences of an object are the same."""

    @property
    def mark(self) -> tuple[str, bytes, Position]:
        return "", b"", NOWHERE


def test_without_the_grace_a_change_is_told_before_its_owner_tells_it() -> None:
    """The owner's post then repeats it, after an earlier one; the end is right, so the checks find
    it."""
    assert not noticed()
    assert noticed(grace_ms=0)
    assert not noticed(grace_ms=0, prompt=False)


def test_a_lag_beyond_the_grace_does_no_lasting_harm() -> None:
    """Repeated operations come from the owner, and so does the last one."""
    for seed in range(NOTICED):
        world = made(seed, lag_ms=3 * LAG_MS)
        run(world)
        world.calm()
        world.check(prompt=False)
        run(world)
        world.calm()
        assert world.objects() == world.rows()


def test_without_the_order_of_a_look_what_is_newer_is_overwritten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An operation that is posted between the read of the row and that of the state is in the
    state."""
    monkeypatch.setattr(worlds, "TableSync", AnyOrder)
    assert noticed(prompt=False)


def test_without_compare_and_set_what_is_newer_is_overwritten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A post between the last look and the append."""
    monkeypatch.setattr(worlds.Corrections, "made", LooksBefore)
    assert noticed(prompt=False)


def test_progress_in_memory_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sync without --progress writes nothing into the folder that it is run in."""
    monkeypatch.chdir(tmp_path)
    Progress(IN_MEMORY, {"table": "videos"}).close()
    assert list(tmp_path.iterdir()) == []

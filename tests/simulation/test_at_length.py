"""`python -m bench.simulation`: its runs, and their sums."""

from __future__ import annotations

import pickle
from typing import Any

from bench.simulation import WORLDS, Broke, Task, add_part, done, section, tasks


def test_every_world_has_its_share_of_the_seeds() -> None:
    """Without a hole, from the first one on."""
    seeds: dict[str, list[int]] = {world: [] for world in WORLDS}
    for task in tasks(205, 1000):
        seeds[task.world] += range(task.first, task.first + task.seeds)

    for world, (_, share) in WORLDS.items():
        count = len(seeds[world])
        assert seeds[world] == list(range(1000, 1000 + count))
        assert share * 205 <= count < share * 205 + 1


def test_a_part_is_added_to_those_before() -> None:
    """The next part begins after it."""
    kept: dict[str, Any] = {"next": 7, "worlds": {}}
    found = {"late frames": done(Task("late frames", 7, 2))}
    for _ in range(2):
        add_part(kept, found)

    assert kept["next"] == 11
    assert kept["worlds"]["late frames"]["seeds"] == 4
    assert kept["worlds"]["late frames"]["fired"]["clock was fast"] > 0
    assert "| late frames | 4 seeds, " in section(kept).markdown()


def test_a_broken_promise_comes_back_from_another_process() -> None:
    """With the way to see it again."""
    assert str(pickle.loads(pickle.dumps(Broke("seed 7")))) == "seed 7"

"""Listeners with small buffers: whatever happens, in the end they know what is."""

from __future__ import annotations

import pytest
from tidings.core import limits

from tests.simulation.listeners import World

SEEDS = 60
STEPS = 300


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a bootstrap takes many steps."""
    monkeypatch.setattr(limits, "OBJECTS_MAX", 2)
    monkeypatch.setattr(limits, "OBJECTS_READS_MAX", 8)


def test_listeners_that_overflow_lose_nothing() -> None:
    """Each knows the version of every object, in each of many runs; and buffers did overflow."""
    overflows = 0
    for seed in range(SEEDS):
        world = World(seed)
        world.run(STEPS)
        for client in world.clients:
            assert client.known == world.owner.versions, f"seed {seed}, {client.name}"
            overflows += client.overflows
    assert overflows > SEEDS

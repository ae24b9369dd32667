"""The simulation notices when a rule of the protocol is taken out.

One rule in each kind of world; MUTATIONS=all takes out each rule (`make sim`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.simulation.mutations import MUTATIONS, OF_EACH_WORLD, Mutation, noticing_seed

RECORDED = Path(__file__).with_name("mutations.txt")
TRIED = MUTATIONS if os.environ.get("MUTATIONS") == "all" else OF_EACH_WORLD


@pytest.mark.parametrize("mutation", TRIED, ids=lambda mutation: mutation.name)
def test_a_broken_protocol_is_noticed(
    mutation: Mutation, record_property: Callable[[str, object], None]
) -> None:
    """Within the number of seeds that its fault needs to be met."""
    seed = noticing_seed(mutation)

    assert seed is not None, f"no seed below {mutation.last} noticed: {mutation.name}"
    record_property("seed", seed)


def test_no_mutation_vanishes() -> None:
    """The file lists every mutation, so that one is removed only on purpose."""
    names = [mutation.name for mutation in MUTATIONS]

    assert sorted(names) == RECORDED.read_text().splitlines()
    assert len(set(names)) == len(names)

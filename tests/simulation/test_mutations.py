"""The simulation notices when a rule of the protocol is taken out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.mutations import MUTATIONS, Mutation, seeds_to_catch, starting_at


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_broken_protocol_is_noticed(
    mutation: Mutation, record_property: Callable[[str, object], None]
) -> None:
    """Within the number of seeds that its fault needs to be met."""
    caught = seeds_to_catch(mutation, starting_at(mutation))

    assert caught is not None, f"{mutation.last} seeds did not notice: {mutation.name}"
    record_property("seed", caught[0] - 1)

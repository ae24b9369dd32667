"""The simulation notices when a rule of the protocol is taken out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.mutations import MUTATIONS, Mutation, noticing_seed


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_broken_protocol_is_noticed(
    mutation: Mutation, record_property: Callable[[str, object], None]
) -> None:
    """Within the number of seeds that its fault needs to be met."""
    seed = noticing_seed(mutation)

    assert seed is not None, f"no seed below {mutation.last} noticed: {mutation.name}"
    record_property("seed", seed)

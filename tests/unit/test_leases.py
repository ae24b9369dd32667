"""A lease is a value: who has it cannot change it."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import pytest
from tidings.core.leases import Lease

LEASE = Lease("main", "push", owner="me", fence=1, bell=0, checkpoint=7, expires_ms=9)


def test_a_lease_cannot_be_changed() -> None:
    """Its store hands out a new one with each save."""
    with pytest.raises(FrozenInstanceError):
        LEASE.checkpoint = 8  # type: ignore[misc]


def test_a_new_holder_is_another_lease() -> None:
    """The fence alone tells them apart."""
    assert replace(LEASE, fence=2) != LEASE
    assert replace(LEASE) == LEASE

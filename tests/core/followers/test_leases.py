"""A lease is a value: who has it cannot change it."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import pytest
from tidings.core import limits
from tidings.core.followers.leases import Lease, Observation

LEASE = Lease("main", "push", owner="me", fence=1, bell=0, checkpoint=7, expires_ms=9)


def test_a_lease_cannot_be_changed() -> None:
    """Its store hands out a new one with each save."""
    with pytest.raises(FrozenInstanceError):
        LEASE.checkpoint = 8  # type: ignore[misc]


def test_who_is_late_is_looked_at() -> None:
    """By any clock; a lease that was let go is nobody's."""
    held = replace(LEASE, expires_ms=limits.LEASE_MS)
    assert not held.is_late(limits.LEASE_LATE_MS - 1) and held.is_late(limits.LEASE_LATE_MS)
    assert not replace(held, owner="").is_late(10**15)


def test_an_observation_is_of_one_lease_without_a_renewal() -> None:
    """A renewal or another holder makes it history."""
    seen = Observation(LEASE.fence, LEASE.beat)
    assert seen.is_of(LEASE) and seen.is_of(replace(LEASE, bell=7))
    assert not seen.is_of(replace(LEASE, beat=1)) and not seen.is_of(replace(LEASE, fence=2))
    assert not seen.is_long_enough and replace(seen, ms=limits.LEASE_MS).is_long_enough


def test_a_new_holder_is_another_lease() -> None:
    """The fence alone tells them apart."""
    assert replace(LEASE, fence=2) != LEASE
    assert replace(LEASE) == LEASE

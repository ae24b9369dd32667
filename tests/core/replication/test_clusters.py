"""Seats of clusters."""

from __future__ import annotations

from dataclasses import replace

from tidings.core.replication.clusters import LeaderLease

from tests.core.scene import NOW


def test_a_seat_is_held_until_its_time() -> None:
    """Unless it was given up before."""
    seat = LeaderLease("c", 0, "https://one.example", 1, NOW)
    assert seat.held(NOW - 1)
    assert not seat.held(NOW)
    assert not replace(seat, address="").held(NOW - 1)
    assert not LeaderLease("c", 0).held(0)

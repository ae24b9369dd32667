"""Where the operations of a feed come from."""

from __future__ import annotations

from tidings.core.replication.selection import ALL
from tidings.core.replication.source import FallOff, Role, Source


def test_a_source_by_itself() -> None:
    """Everything of the master is copied, read from the master, and again where its log ends."""
    found = Source("https://a.example/feeds/main")

    assert (found.selection, found.fall_off, found.role) == (ALL, FallOff.BOOTSTRAP, Role.LEADER)
    assert (found.restart_offset, found.leaders) == (0, 1)
    assert found.leader == found.address == found.cluster == ""

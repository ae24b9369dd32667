"""Losses: whose cursor says that it heard of what a restore lost."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tidings.core import limits
from tidings.core.model.cursors import PAGE_END, Cursor, Now, Place, Replication, Since
from tidings.core.settings.feed import Profile
from tidings.core.settings.lookups import Losses
from tidings.core.settings.lost_pages import hit

from tests.fakes import MemoryProfiles

LOST = ((5, 8), (20, 29))


@pytest.mark.parametrize(
    ("cursor", "lost"),
    [
        (Place(4, PAGE_END, 1), False),
        (Place(5, 0, 1), True),
        (Place(8, PAGE_END, 1), True),
        (Place(9, PAGE_END, 1), False),
        (Place(25, 3, 1), True),
        (Place(30, 0, 1), False),
        (Replication(0, 4, 3, tombstones=False), True),
        (Replication(7, 9, 3, tombstones=True), True),
        (Replication(0, 30, 3, tombstones=False), False),
        (Replication(0, 4, limits.BUCKETS, tombstones=False), False),
        (Replication(0, 22, limits.BUCKETS, tombstones=False), True),
        (Now(), False),
        (Since(1), False),
    ],
)
def test_who_heard_of_what_was_lost(cursor: Cursor, lost: bool) -> None:
    """A place on a lost page, or a copy that began before the last of them; not the new log."""
    assert hit(cursor, LOST) is lost


def test_they_are_those_of_the_feed() -> None:
    """As its profile has them; without one nothing is lost."""
    profiles = MemoryProfiles()
    losses = Losses(profiles)
    assert not losses("main", Place(5, 0, 1))
    profiles.save("main", replace(Profile(), lost=LOST))
    assert losses("main", Place(5, 0, 1))
    assert not losses("other", Place(5, 0, 1))

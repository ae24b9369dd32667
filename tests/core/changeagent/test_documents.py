"""Sheets: remembered for seconds, and never longer."""

from __future__ import annotations

from tidings.core import limits
from tidings.core.changeagent.documents import USERS, Sheet
from tidings.core.changeagent.recent_documents import RecentSheets
from tidings.core.memory import MemorySheets

from tests.core.scene import FEED, Scene


def test_A36_a_change_counts_within_five_seconds() -> None:
    """Somebody else's, in every process; one's own at once."""
    scene, stored = Scene(), MemorySheets()
    recent = RecentSheets(stored, scene.clock)
    assert recent.sheet(FEED, USERS) == Sheet()
    stored.write(FEED, USERS, Sheet("a"))
    assert recent.sheet(FEED, USERS) == Sheet()
    scene.now_ms += limits.SHEET_AGE_MS
    assert recent.sheet(FEED, USERS) == Sheet("a", 1)
    assert limits.SHEET_AGE_MS < 5_000

    assert recent.write(FEED, USERS, Sheet("b", 1))
    assert recent.sheet(FEED, USERS) == Sheet("b", 2)
    assert not recent.write(FEED, USERS, Sheet("c", 1))

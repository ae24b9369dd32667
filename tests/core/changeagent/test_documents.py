"""Sheets: remembered for seconds, and never longer."""

from __future__ import annotations

from tidings.core import limits
from tidings.core.changeagent.documents import USERS, OperatorDocument
from tidings.core.changeagent.recent_documents import RecentDocuments

from tests.core.scene import FEED, Scene
from tests.fakes import MemoryOperatorDocuments


def test_A36_a_change_counts_within_five_seconds() -> None:
    """Somebody else's, in every process; one's own at once."""
    scene, stored = Scene(), MemoryOperatorDocuments()
    recent = RecentDocuments(stored, scene.clock)
    assert recent.operator_document(FEED, USERS) == OperatorDocument()
    stored.write(FEED, USERS, OperatorDocument("a"))
    assert recent.operator_document(FEED, USERS) == OperatorDocument()
    scene.now_ms += limits.DOCUMENT_AGE_MS
    assert recent.operator_document(FEED, USERS) == OperatorDocument("a", 1)
    assert limits.DOCUMENT_AGE_MS < 5_000

    assert recent.write(FEED, USERS, OperatorDocument("b", 1))
    assert recent.operator_document(FEED, USERS) == OperatorDocument("b", 2)
    assert not recent.write(FEED, USERS, OperatorDocument("c", 1))

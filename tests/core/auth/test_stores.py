"""The ports of keys are as small as any."""

from __future__ import annotations

from tidings.core.auth.stores import KeyCounts, Keys

from tests.fakes import MemoryKeyCounts, MemoryKeys


def test_memory_implements_them() -> None:
    """As far as a type checker sees; the contracts show the rest."""
    keys: Keys = MemoryKeys()
    counts: KeyCounts = MemoryKeyCounts()
    assert keys.key("main", "a") is None and counts.add("main", "a", 1, 1) == 1

"""Values that a process remembers: until they are too old or were changed."""

from __future__ import annotations

from tidings.core.settings.recent import Recent


def test_a_value_is_read_again_once_it_is_too_old() -> None:
    """Also after the clock was put back."""
    now, stored = [100], [1]
    recent: Recent[str, int] = Recent(lambda _: stored[0], lambda: 10, lambda: now[0])
    assert recent.get("a") == 1
    stored[0] = 2
    now[0] = 109
    assert recent.get("a") == 1
    now[0] = 110
    assert recent.get("a") == 2
    stored[0] = 3
    now[0] = 50
    assert recent.get("a") == 3


def test_a_read_that_began_before_a_change_is_not_remembered() -> None:
    """It may have returned the value from before, which would count for seconds more."""
    stored = [1]

    def read(_: str) -> int:
        value = stored[0]
        if value == 1:  # another thread changes it while this one reads
            stored[0] = 2
            recent.forget("a")
        return value

    recent: Recent[str, int] = Recent(read, lambda: 10, lambda: 0)
    assert [recent.get("a"), recent.get("a")] == [1, 2]

"""What a backlog is measured by: how long a follower was behind, and how long it stood."""

from __future__ import annotations

from infra.sandbox.drills import Progress


def _seen(*looks: tuple[int, int]) -> Progress:
    """A look a second, each of a lag and a checkpoint."""
    progress = Progress()
    for second, (lag, checkpoint) in enumerate(looks):
        progress.seen(lag, checkpoint, float(second))
    return progress


def test_a_break_begins_anew() -> None:
    """A chain of calls ends where there is nothing to do; the longest one counts."""
    progress = _seen((5, 1), (5, 2), (5, 3), (0, 8), (5, 9), (5, 10))
    assert (progress.behind_s, progress.stood_s) == (2.0, 0.0)


def test_who_stands_still_is_seen() -> None:
    """Until it moves; at the end of the log nobody has to."""
    assert _seen((5, 1), (9, 1), (12, 1), (3, 10)).stood_s == 2.0
    assert _seen((0, 1), (0, 1), (0, 1)).stood_s == 0.0
    assert _seen((0, 1), (0, 1), (5, 1), (5, 2)).stood_s == 0.0

"""A follower with a long backlog, on a store so slow that its runs are killed, reaches the end."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from tests.unit.core.followers.test_follower import Diary, checkpoint
from tests.unit.core.scene import FEED, Scene
from tidings.core import limits
from tidings.core.followers.leases import Observation
from tidings.core.model.pages import Page

_PAGES = 1_000  # of a thousand operations each: a million


class Killed(BaseException):
    """Simulates the end of a process: none of its clean-up code runs."""


class Slow(Diary):
    """Takes *page_ms* for each page, a thousand operations; is killed at *limit_ms*."""

    def __init__(self, scene: Scene, page_ms: int) -> None:
        super().__init__()
        self.scene, self.page_ms, self.limit_ms = scene, page_ms, 0

    def handle(self, feed: str, pages: Sequence[Page]) -> int:
        self.scene.now_ms += self.page_ms * len(pages)
        if self.scene.now_ms >= self.limit_ms:
            raise Killed
        return super().handle(feed, pages)


@pytest.fixture
def with_backlog(scene: Scene) -> Scene:
    """Append a million operations that no follower has handled."""
    scene.fill(_PAGES, *["{}"] * 1000)
    return scene


def wake(scene: Scene, slow: Slow, limit_ms: int, seen: Observation | None = None) -> bool:
    """Run once, and kill the run after *limit_ms*; return True if it was killed."""
    slow.limit_ms = scene.now_ms + limit_ms
    try:
        scene.follower.run(FEED, slow, seen)
    except Killed:
        return True
    return False


def succeed(scene: Scene) -> Observation:
    """Return the observation that allows the lease of a dead holder to be taken over."""
    (lease,) = scene.followers.leases(FEED)
    scene.now_ms += limits.LEASE_MS
    return Observation(lease.fence, lease.beat, limits.LEASE_MS)


@pytest.mark.parametrize("page_ms", [20, 400, 7_000])
def test_a_million_operations_though_runs_are_killed(with_backlog: Scene, page_ms: int) -> None:
    """On a store of any speed the checkpoint moves in each run that has time for one page."""
    random, slow, killed = Random(page_ms), Slow(with_backlog, page_ms), 0
    seen: Observation | None = None
    while slow.seen[-1:] != [_PAGES]:
        before = checkpoint(with_backlog) if slow.seen else 0
        limit_ms = random.randint(page_ms + 1, max(3_000, 2 * page_ms))
        dead = wake(with_backlog, slow, limit_ms, seen)
        seen = succeed(with_backlog) if dead else None
        killed += dead
        assert checkpoint(with_backlog) > before
    assert killed and sorted(set(slow.seen)) == list(range(1, _PAGES + 1))


def test_what_was_read_and_not_handled_is_not_read_again(scene: Scene) -> None:
    """A read may be enough for many batches; only pages that do not fill a batch are read again."""
    scene.fill(40, *["{}"] * 1000)
    reads, diary = scene.reads(), Diary()
    assert scene.follower.run(FEED, diary) == 40
    assert diary.seen == list(range(1, 41)) and len(reads) <= 4

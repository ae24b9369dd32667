"""One invocation for several feeds: one deadline, and each fails by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from tests.fakes import MemoryState
from tests.unit.core.scene import Scene, line, op
from tidings.core import limits
from tidings.core.errors import Unavailable
from tidings.core.followers.invocation import in_turn, serve
from tidings.core.state.rows import Overwritten, Row


@dataclass
class Turns:
    """Feeds that take *ms* each; those in *broken* fail."""

    ms: int = 0
    broken: dict[str, Exception] = field(default_factory=dict)
    now_ms: int = 0
    begun: list[tuple[str, int]] = field(default_factory=list)

    def run(self, feed: str, until_ms: int) -> None:
        self.begun.append((feed, until_ms))
        self.now_ms += self.ms
        if feed in self.broken:
            raise self.broken[feed]


def test_all_share_one_deadline() -> None:
    """Each feed gets the same deadline; after it no other feed begins, but the first always
    does."""
    turns = Turns(ms=60)
    served = serve(["a", "b", "c"], turns.run, clock=lambda: turns.now_ms, run_ms=100)
    assert turns.begun == [("a", 100), ("b", 100)] and served.not_begun == ["c"]
    assert served.again == {"c"}

    late = Turns()
    assert serve(["a"], late.run, clock=lambda: 7, run_ms=0).not_begun == []


def test_one_feeds_trouble_is_not_anothers() -> None:
    """The other feeds are served; then an unexpected error is raised with its feed."""
    turns = Turns(broken={"a": Unavailable("not now"), "b": KeyError("ours")})
    served = serve(["a", "b", "c"], turns.run, clock=lambda: 0, run_ms=1)
    assert [feed for feed, _ in turns.begun] == ["a", "b", "c"]
    assert served.again == {"a", "b"} and served.not_begun == []
    with pytest.raises(KeyError) as raised:
        served.raise_mistakes()
    assert raised.value.__notes__ == ["feed b"]
    served.failed["c"] = TypeError("ours, too")
    with pytest.raises(ExceptionGroup):
        served.raise_mistakes()

    del served.failed["c"]
    del served.failed["b"]
    served.raise_mistakes()


def test_another_feed_is_first_each_time() -> None:
    """A busy one may use up the time; none is last for ever."""
    assert [in_turn({"a", "b", "c"}, turn)[0] for turn in range(4)] == ["a", "b", "c", "a"]
    assert in_turn((), 3) == []


def test_two_busy_feeds_end_before_the_time_limit(scene: Scene) -> None:
    """Three seconds a turn and no end of pages: the second feed is woken again, none is lost."""
    for feed in ("main", "other"):
        scene.fill(80, *(line(f"o{number}") for number in range(1000)), feed=feed)
    write = scene.state.write

    def slow(feed: str, rows: Sequence[Row]) -> list[Overwritten | None]:
        scene.now_ms += 3_000
        return write(feed, rows)

    scene.state.write = slow  # type: ignore[method-assign]
    began_ms = scene.now_ms
    served = scene.follower.run_each(["main", "other"], scene.projector)

    assert scene.now_ms - began_ms < limits.FOLLOW_TIMEOUT_S * 1000
    assert served.not_begun == ["other"] and served.failed == {}
    assert {feed for feed, _ in scene.waker.woken} == {"main", "other"}


def test_a_feed_that_fails_costs_no_other_its_turn(scene: Scene) -> None:
    """This includes unexpected errors."""
    for feed in ("main", "other"):
        scene.post(op(), feed=feed)

    class Broken(MemoryState):
        def write(self, feed: str, rows: Sequence[Row]) -> list[Overwritten | None]:
            if feed == "main":
                raise RuntimeError("AccessDenied")
            return super().write(feed, rows)

    projector = replace(scene.projector, states=Broken())
    served = scene.follower.run_each(["main", "other"], projector)

    assert set(served.failed) == {"main"}
    assert scene.followers.checkpoints("other") == {"state": 1}

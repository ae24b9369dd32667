"""Invocations: one for several feeds, and what they say of traced pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from tests.fakes import MemoryState
from tests.unit.core.scene import FEED, Scene, line, op
from tidings.core import limits
from tidings.core.effects import TraceRecord
from tidings.core.errors import Unavailable
from tidings.core.followers.follower import Handler, TracingHandler
from tidings.core.followers.invocation import in_turn, serve
from tidings.core.ingest.ingest import PostRequest
from tidings.core.state.rows import Overwritten, Row
from tidings.core.tracing import REQUESTED, Tracer, new_traceparent, trace_id


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


TRACE = new_traceparent("4bf92f3577b34da6a3ce929d0e0e4736")
ID = trace_id(TRACE)


@pytest.fixture
def lines() -> list[TraceRecord]:
    return []


def traces_of(
    scene: Scene, handler: Handler, lines: list[TraceRecord], late_ms: int = 0
) -> TracingHandler:
    return TracingHandler(
        handler=handler, runtime=replace(scene.runtime, trace=lines.append), late_ms=late_ms
    )


def run(scene: Scene, handler: Handler) -> int:
    return scene.follower.run(FEED, handler)


def post_traced(scene: Scene, name: str = "a") -> None:
    scene.appender.append(FEED, [scene.post(op(name)).lines[0]], trace=TRACE)


def test_a_traced_page_is_told_by_each_that_handled_it(
    scene: Scene, lines: list[TraceRecord]
) -> None:
    """By its name, with how long ago it was committed; the page before it is not traced."""
    post_traced(scene)
    scene.now_ms += 40
    for handler in (scene.projector, scene.pusher, scene.archiver, scene.lane(1)):
        run(scene, traces_of(scene, handler, lines))

    names = ["state", "push", "archive", "push-1"]
    assert lines[:3] == [TraceRecord(name, FEED, 2, 40, ID) for name in names[:3]]


def test_nothing_is_asked_where_nothing_is_traced(scene: Scene, lines: list[TraceRecord]) -> None:
    """The clock is not read either."""

    def never() -> int:
        raise AssertionError

    scene.post(op("a"))
    assert (
        run(
            scene,
            TracingHandler(
                handler=scene.projector,
                runtime=replace(scene.runtime, clock=never, trace=lines.append),
            ),
        )
        == 1
    )
    assert lines == []


def test_of_a_late_turn_the_oldest_page_is_told(scene: Scene, lines: list[TraceRecord]) -> None:
    """It is reported once a batch, only above the limit, traced or not."""
    pages = scene.post_each("a", "b", "c")
    scene.now_ms += 10_000
    run(scene, traces_of(scene, scene.projector, lines, late_ms=10_000))
    assert lines == []

    scene.now_ms += 1
    run(scene, traces_of(scene, scene.pusher, lines, late_ms=10_000))
    assert lines == [TraceRecord("push", FEED, pages[0].number, 10_001, pages=3)]


def test_what_was_not_handled_is_not_told(scene: Scene, lines: list[TraceRecord]) -> None:
    """A page that a follower leaves to its next turn."""
    post_traced(scene)
    page = scene.log.read(FEED, 1)[0]

    class Slow(TracingHandler):
        """A handler that takes one page a turn."""

        def handle(self, feed: str, pages: object) -> int:
            return 1

    runtime = replace(scene.runtime, trace=lines.append)
    one_page = Slow(handler=scene.projector, runtime=runtime)
    slow = TracingHandler(handler=one_page, runtime=runtime)
    assert slow.handle(FEED, [replace(page, number=2, trace=""), page]) == 1
    assert lines == []


def test_a_request_is_told_once_it_is_in_the_log(scene: Scene, lines: list[TraceRecord]) -> None:
    """It is reported with its page's number; a repeated request has the trace of the existing
    page."""
    tracer = Tracer(REQUESTED, replace(scene.runtime, trace=lines.append))
    ingester = replace(scene.ingester, tracer=tracer)
    request = PostRequest(
        FEED, b'{"event":"insert","type":"a","id":"1"}', "application/json", "key"
    )
    first = request._replace(trace=TRACE)
    again = request._replace(trace=new_traceparent("0" * 31 + "1"))
    other = request._replace(key="other")

    ids = [ingester.accept(each) for each in (first, again, other)]

    assert ids[0] == ids[1] != ids[2]
    assert lines == [TraceRecord("ingest", FEED, 1, 0, ID)] * 2
    assert [page.trace for page in scene.log.read(FEED, 0)] == [TRACE, ""]


def test_a_request_that_is_refused_is_not_told(scene: Scene, lines: list[TraceRecord]) -> None:
    """It has no page."""
    ingester = replace(
        scene.ingester, tracer=Tracer(REQUESTED, replace(scene.runtime, trace=lines.append))
    )
    with pytest.raises(Exception, match="JSON"):
        ingester.accept(PostRequest(FEED, b"?", "application/json", trace=TRACE))
    assert lines == []

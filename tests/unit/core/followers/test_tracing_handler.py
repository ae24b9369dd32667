"""What followers say of traced pages, and of late ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.core.scene import FEED, Scene, op
from tidings.core.effects import TraceRecord
from tidings.core.followers.follower import Handler, TracingHandler
from tidings.core.ingest.ingest import PostRequest
from tidings.core.tracing import REQUESTED, Tracer, new_traceparent, trace_id

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
        scene.ingester,
        tracer=Tracer(REQUESTED, replace(scene.runtime, trace=lines.append)),
    )
    with pytest.raises(Exception, match="JSON"):
        ingester.accept(PostRequest(FEED, b"?", "application/json", trace=TRACE))
    assert lines == []

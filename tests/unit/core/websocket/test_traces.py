"""Traces in WebSocket messages: sent to clients that asked for them, with every kind of message."""

from __future__ import annotations

import json
from typing import Any

from tests.unit.core.scene import FEED, Scene, op, unpacked
from tidings.core.model.cursors import START
from tidings.core.model.operations import line_from

TRACE = f"00-{'0af7' * 8}-{'b7ad' * 4}-01"
TRACE_OPTIONS: list[dict[str, Any]] = [{"trace": True}, {"trace": False}, {}]


def append(scene: Scene, name: str, trace: str = TRACE) -> None:
    lines = [line_from(op(name, parents=["p"]), now_ms=scene.now_ms)]
    scene.appender.append(FEED, lines, trace=trace)


def connect(scene: Scene, **fields: Any) -> list[str]:
    """Open a connection for each of `TRACE_OPTIONS`."""
    for at, asked in enumerate(TRACE_OPTIONS):
        scene.connect(f"c{at}")
        scene.say(f"c{at}", action="resume", **fields, **asked)
        scene.sockets.sent[f"c{at}"].clear()
    return [f"c{at}" for at in range(len(TRACE_OPTIONS))]


def told(scene: Scene, connection_id: str) -> list[str | None]:
    messages = [json.loads(unpacked(text)) for text in scene.sockets.sent[connection_id]]
    events = [event for each in messages for event in each.get("events", ())]
    return [event.get("traceparent") for event in events]


def test_6_9_of_what_is_pushed(scene: Scene) -> None:
    """P6.9: the same events, with and without; those of a page without one have none."""
    names = connect(scene, cursor="now")
    scene.push()
    append(scene, "a")
    append(scene, "b", trace="")
    scene.push()

    assert [told(scene, name) for name in names] == [[TRACE, None], [None] * 2, [None] * 2]
    assert [subscription.options.trace for subscription in scene.subscriptions.all(FEED)] == [
        True,
        False,
        False,
    ]


def test_6_9_of_a_page_without_traces_one_message_is_made(scene: Scene) -> None:
    """P6.9: without traces all clients get the same message."""
    connect(scene, cursor="now")
    scene.push()
    append(scene, "b", trace="")
    scene.push()
    assert len({scene.sockets.sent[f"c{at}"][-1] for at in range(3)}) == 1
    assert len({id(scene.sockets.sent[f"c{at}"][-1]) for at in range(3)}) == 1


def test_6_9_of_a_catch_up_and_what_lies_behind_it(scene: Scene) -> None:
    """P6.9: the replay's messages, and those of push before a connection is live."""
    append(scene, "a")
    names = connect(scene, cursor=START.encode())
    for name in names:
        scene.replayer.run(name)
    changes = scene.inbox.list(FEED)
    for change in changes:
        scene.inbox.done(FEED, change)
    append(scene, "b")
    scene.push()  # before it gets the connections
    for change in changes:
        scene.inbox.post(FEED, change)
    scene.push()

    assert [told(scene, name) for name in names] == [[TRACE] * 2, [None] * 2, [None] * 2]


def test_6_9_a_leave_has_its_trace_too(scene: Scene) -> None:
    """P6.9: this does not hold if only the object that left may be named."""
    scene.keep_removed_parents()
    append(scene, "a")
    scene.project()
    names = connect(scene, cursor="now", parents=["p"], leave=True)
    scene.push()
    line = line_from(op("a", parents=[]), now_ms=scene.now_ms)
    scene.appender.append(FEED, [line], trace=TRACE)
    scene.project()
    scene.push()

    assert [told(scene, name) for name in names] == [[TRACE], [None], [None]]

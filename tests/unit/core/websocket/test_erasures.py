"""Erasures in WebSocket messages: with their details for the clients that asked for them."""

from __future__ import annotations

import json
from typing import Any

from tests.unit.core.scene import FEED, Scene, line, unpacked
from tidings.core.model.cursors import START
from tidings.core.model.operations import ERASURE_MARK

ERASURE = f'{line("x1", "delete", parents=["p"])[:-1]},"data":{{"reason":"r"}}{ERASURE_MARK}'
OPTIONS: list[dict[str, Any]] = [{"erasures": True}, {"erasures": False}, {}, {"parents": ["p"]}]
FULL, SHORT = ("erase", {"reason": "r"}), ("delete", None)


def connect(scene: Scene, **fields: Any) -> list[str]:
    for at, asked in enumerate(OPTIONS):
        scene.connect(f"c{at}")
        scene.say(f"c{at}", action="resume", **fields, **asked)
        scene.sockets.sent[f"c{at}"].clear()
    return [f"c{at}" for at in range(len(OPTIONS))]


def told(scene: Scene, connection_id: str) -> list[tuple[str, object]]:
    messages = [json.loads(unpacked(text)) for text in scene.sockets.sent[connection_id]]
    events = [event for each in messages for event in each.get("events", ())]
    return [(each["event"], each["data"].get("data")) for each in events]


def test_22_4_pushed(scene: Scene) -> None:
    """P22.4: each client receives one event, in the place of the log."""
    names = connect(scene, cursor="now")
    scene.push()
    scene.appender.append(FEED, [ERASURE, line("b", parents=["p"])])
    scene.push()
    for name, event in zip(names, (FULL, SHORT, SHORT, SHORT), strict=True):
        assert told(scene, name) == [event, ("update", None)]


def test_22_4_replayed_and_missed_before_push(scene: Scene) -> None:
    """P22.4: a catch-up and the pages that a hand-over missed are sent the same way."""
    scene.appender.append(FEED, [ERASURE])
    names = connect(scene, cursor=START.encode())
    for name in names:
        scene.replayer.run(name)
    changes = scene.inbox.list(FEED)
    for change in changes:
        scene.inbox.done(FEED, change)
    scene.appender.append(FEED, [ERASURE])
    scene.push()  # before it gets the connections
    for change in changes:
        scene.inbox.post(FEED, change)
    scene.push()
    for name, event in zip(names, (FULL, SHORT, SHORT, SHORT), strict=True):
        assert told(scene, name) == [event, event]


def test_22_4_a_wrong_switch_is_refused(scene: Scene) -> None:
    scene.connect("c")
    scene.say("c", action="subscribe", erasures="true")
    (answer,) = map(json.loads, scene.sockets.sent["c"])
    assert (answer["error"]["code"], answer["error"]["field"]) == ("invalid_message", "erasures")

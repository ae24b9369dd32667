"""Following a feed through its catch-up, and feeds to follow."""

from __future__ import annotations

import json

from tests.unit.core.scene import FEED, NOW, Scene, op
from tidings.core.catchup.catchup import Progress
from tidings.core.model import cursors
from tidings.core.model.events import Event
from tidings.core.model.filters import EVERYTHING, Filter
from tidings.core.model.pages import Page

SECOND = NOW // 1000


def names(events: list[Event]) -> list[str]:
    """Return `insert x1`, `reset`, ..."""
    return [
        f"{event.name} {json.loads(event.data)['id']}" if event.data else event.name
        for event in events
    ]


def in_order(events: list[str]) -> list[str]:
    """Rows of the state come in no order: those between `reset` and `live` by their names."""
    if events[-1:] != ["live"]:
        return events
    first = 1 if events[0] == "reset" else 0
    return [*events[:first], *sorted(events[first:-1]), "live"]


def follow(
    scene: Scene, progress: Progress, wanted: Filter = EVERYTHING
) -> tuple[list[Event], Progress]:
    """Return the events up to the frontier, and the progress."""
    events: list[Event] = []
    for _ in range(500):
        step = scene.catch_up.step(FEED, progress, wanted)
        events += step.events
        progress = step.progress
        if step.at_frontier:
            return events, progress
    raise AssertionError("never reaches the frontier")


def caught_up(scene: Scene, cursor: str, wanted: Filter = EVERYTHING) -> list[Event]:
    return follow(scene, scene.catch_up.start(FEED, cursors.parse(cursor)), wanted)[0]


def held_after(scene: Scene, cursor: str, held: set[str]) -> set[str]:
    """Return the objects that a consumer with *held* has once it has caught up from *cursor*."""
    held = set(held)
    for event in caught_up(scene, cursor):
        if event.name == "reset":
            held.clear()
        elif event.data:
            name = json.loads(event.data)["id"]
            held.discard(name) if event.name == "delete" else held.add(name)
    return held


def filled(scene: Scene) -> list[Page]:
    """Post three pages: a, b and c are inserted, a changes, b is deleted."""
    pages = [scene.post(op("a", "insert"), op("b", "insert"))]
    scene.now_ms += 1000
    pages.append(scene.post(op("c", "insert"), op("a", "update")))
    scene.now_ms += 1000
    pages.append(scene.post(op("b", "delete")))
    scene.project()
    return pages


def trimmed(scene: Scene, floor: int) -> None:
    """Retention gave up what lies below *floor*, and DynamoDB deleted it."""
    scene.log.raise_floor(FEED, floor)
    for number in range(1, floor):
        scene.log._feeds[FEED].pages.pop(number, None)
    scene.log._feeds[FEED].numbers = sorted(scene.log._feeds[FEED].pages)

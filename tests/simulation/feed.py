"""A feed in which nothing happens by itself: for histories in which every moment is chosen.

`Reading` has two consumers, a careful and a naive one, which receive the same events.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.simulation.consumer import Consumer, Session, steps
from tests.simulation.model import Log, Position, Wanted
from tests.unit.core.scene import FEED, Scene
from tidings.core.catchup.catchup import CatchUp
from tidings.core.model import cursors, filters


class Feed:
    """Objects are named by numbers; *catch_up* may be a broken one."""

    def __init__(self, catch_up: type[CatchUp] = CatchUp) -> None:
        self.scene, self.model = Scene(), Log()
        scene = self.scene
        self.catch_up = catch_up(
            reader=scene.reader,
            states=scene.state,
            tombstones=scene.tombstones,
            removed_parents_reader=scene.removed_parents_reader,
            losses=scene.catch_up.losses,
        )
        self._posts = 0

    def post(self, event: str, *numbers: int) -> None:
        """Post one page that says *event* of each of the objects."""
        self._posts += 1
        page = self.scene.post(*(self._operation(event, number) for number in numbers))
        self.model.written(page.number, list(page.lines), page.at_ms)

    def project(self) -> None:
        """Project to the end, although reads may be smaller than a page."""
        while self.scene.project():
            pass

    def trim(self) -> None:
        """Raise the floor to the state's checkpoint, and delete the pages below it."""
        floor = self.scene.followers.checkpoints(FEED).get("state", 0) + 1
        self.scene.log.raise_floor(FEED, floor)
        log = self.scene.log._feeds[FEED]
        log.pages = {number: page for number, page in log.pages.items() if number >= floor}
        log.numbers = sorted(log.pages)

    @property
    def floor(self) -> int:
        return self.scene.log.floor(FEED)

    def _operation(self, event: str, number: int) -> dict[str, Any]:
        return {
            "event": event,
            "type": ("video", "user")[number % 2],
            "id": f"o{number}",
            "parents": [f"channel/{(number + self._posts) % 3}"],
            "data": {"of": f"post {self._posts}", "at": number},
        }


class Reading:
    """The knowledge of a client that began at *cursor*; `cursor` is the id of its last event."""

    def __init__(self, feed: Feed, cursor: str, wanted: Wanted = Wanted()) -> None:  # noqa: B008
        self.feed, self.cursor, self.wanted = feed, cursor, wanted
        self._consumers = [
            Consumer(name, feed.model, wanted, cursor, careful=name == "careful")
            for name in ("careful", "naive")
        ]
        self._sessions: list[Session] = []

    def knows(
        self, *, since_ms: int | None = None, place: Position | None = None, all: bool = False
    ) -> Reading:
        """Set from when on it must know everything, if it is not determined by a `reset`."""
        for consumer in self._consumers:
            consumer.since_ms, consumer.from_place, consumer.everything = since_ms, place, all
        return self

    def copy(self) -> Reading:
        """Return a client with the same knowledge, which continues separately."""
        made = Reading(self.feed, self.cursor, self.wanted)
        made._consumers = [each.copy() for each in self._consumers]
        return made

    def events(self) -> Iterator[int]:
        """Resume after the last event; yield its number of events after each one. Ends at rest."""
        wanted = filters.parse(_joined(self.wanted.types), _joined(self.wanted.parents))
        self._sessions = [Session(each, lambda: self.feed.floor) for each in self._consumers]
        for session in self._sessions:
            session.starts(self.cursor)
        told = 0
        for step in steps(self.feed.catch_up, FEED, cursors.parse(self.cursor), wanted):
            for event in step.events:
                self._hear(event.id, event.name, json.loads(event.data or "{}"))
                told += 1
                yield told

    def to_the_end(self) -> Reading:
        for _ in self.events():
            pass
        return self

    def check(self) -> None:
        """Check that both hold the values of the log."""
        for session in self._sessions:
            session.complete()
        for consumer in self._consumers:
            consumer.check()

    @property
    def in_copy(self) -> bool:
        return len(self.cursor) == 24 and int(self.cursor[18], 16) >= 8

    @property
    def objects(self) -> dict[tuple[str, str], dict[str, Any] | None]:
        return self._consumers[1].objects

    def _hear(self, id: str, name: str, data: dict[str, Any]) -> None:
        for session in self._sessions:
            session.event(id, name, data)
        self.cursor = id


def _joined(values: frozenset[str] | None) -> str | None:
    return None if values is None else ",".join(sorted(values))

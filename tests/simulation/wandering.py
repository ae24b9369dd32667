"""A reader with one cursor who reads now at a feed and now at one that copies it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tidings.core.catchup.catchup import CatchUp
from tidings.core.errors import Unavailable
from tidings.core.model import cursors
from tidings.core.model.filters import EVERYTHING

from tests.simulation.functions import FEED
from tests.simulation.model import Broken, Wanted
from tests.simulation.world import World


class Wanderer:
    """Reads now here, now there, with one cursor; knows the latest of each object."""

    def __init__(self, world: World, places: Sequence[CatchUp]) -> None:
        self.world, self.places = world, places
        self.cursor = "0"
        self.objects: dict[tuple[str, str], Any] = {}
        world.scheduler.spawn("wanderer", self._live)

    def _live(self) -> None:
        while True:
            self.world.scheduler.sleep(self.world.random.uniform(200, 5_000))
            self.world.weather.saw("somebody read on elsewhere")
            try:
                self.read(self.world.random.choice(self.places))
            except Unavailable:  # a feed that is just put behind its copy
                self.world.weather.saw("state was not there yet")

    def read(self, catch_up: CatchUp) -> None:
        """To the end."""
        progress = catch_up.start(FEED, cursors.parse(self.cursor))
        arrived = False
        while not arrived:
            step = catch_up.step(FEED, progress, EVERYTHING)
            for event in step.events:
                self._hear(event.name, event.data)
            progress, arrived = step.progress, step.at_frontier
        self.cursor = progress.cursor

    def _hear(self, name: str, text: str) -> None:
        if name == "reset":
            self.objects.clear()
        elif name != "live":
            data = json.loads(text)
            key = data["type"], data["id"]
            if name == "delete":
                self.objects.pop(key, None)
            else:
                self.objects[key] = data

    def check(self) -> None:
        latest = self.world.model.latest(Wanted())
        for place in self.places:
            self.read(place)
            wanted = {key: op.data for key, op in latest.items() if op.event != "delete"}
            if self.objects != wanted:
                raise Broken("who read on elsewhere does not know what the log says")

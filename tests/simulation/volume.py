"""
Retention at a volume where its cost matters: hours in which pages come all the time.

A named consumer holds the log while nobody works for it, and each page stands for so many that a
call for each of them does not fit into a sweep. DynamoDB deletes what has expired in any order.
What must not go: a page above the floor, and for the held consumer one that is younger than the
cap (14.7). Pages that vanish all the same, by a mistake of somebody else, leave a hole that is
told to whoever stands before it.
"""

from __future__ import annotations

from typing import Final

from tidings.core.consumers import Change, Consumer
from tidings.core.cursors import PAGE_END, Place

from .functions import FEED
from .model import Broken
from .producer import Producer
from .world import HOUR_MS, MINUTE_MS, World

RATES: Final = {
    "consumer_moves": 0.004,  # somebody works for it for a moment; at each request
    "lull": 1.0,
}
LEADS_TO: Final = ("floor waited for a held consumer", "floor was raised", "page expired")
COSTS_MS: Final = {"log.extend": 15_000.0}  # a page stands for 3,000 of 5 ms: ten a second
LULL_HOURS: Final[tuple[int, ...]] = (27, 40)
_NAME = "held"
_CAP_MS = 30 * HOUR_MS
_PAUSE_MS = 4 * MINUTE_MS


class Volume:
    """The held consumer, and the producer that does not rest."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.producer = Producer(world, "v0")
        self._version = 0
        world.machine.costs_ms = COSTS_MS
        world.stores.log.strict = True
        world.stores.log.rising = self._check_floor
        world.scheduler.spawn("volume", self._live)

    @property
    def cap_ms(self) -> int:
        return self.world.deployment.settings.cap_ms

    def _live(self) -> None:
        """It is put somewhere early, and moves on now and then, never far."""
        while not self.world.model.frontier:
            self.world.scheduler.sleep(1_000)
        self._stand(1)
        while True:
            self.world.scheduler.sleep(self.world.random.uniform(0.5, 1.5) * _PAUSE_MS)
            if self.world.in_lull:
                self.producer.post_one()
                if self.world.weather.strikes("consumer_moves"):
                    self._stand(self.world.random.randint(self.page, self.world.model.frontier))

    def _stand(self, page: int) -> None:
        self.page = page
        place = Place(page, PAGE_END, self.world.model.seconds[page])
        change = Change(Consumer(FEED, _NAME, position=place))
        assert self.world.stores.consumers.write(FEED, _NAME, self._version, change)
        self._version += 1

    def _check_floor(self, before: int, floor: int) -> None:
        """
        Raises:
            Broken: the floor passes what the consumer needs, before the cap.
        """
        if not self._version:
            return
        if floor == self.page + 1:
            self.world.weather.saw("floor waited for a held consumer")
        for number in range(max(before, self.page + 1), floor):
            written_ms = self.world.model.seconds[number] * 1_000
            age_ms = self.world.scheduler.now_ms - written_ms
            if age_ms < self.cap_ms - self.world.machine.clocks.bound_ms * 2 - 1_000:
                hours = age_ms / HOUR_MS
                raise Broken(f"page {number} is given up at {hours:.1f} h, held at {self.page}")


def begin(world: World) -> Producer:
    world.weather.add({**RATES, "deploy": 0.0}, LEADS_TO)
    world.deployment.begin(cap_ms=_CAP_MS)
    return Volume(world).producer

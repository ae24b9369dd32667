"""Retention at a volume where its cost matters: hours in which pages come all the time.

A named consumer without a worker holds the log, settings change, and each page represents
thousands, so that not everything can be done for each of them. DynamoDB deletes expired items in
any order. It must not delete a page above the floor, and for the held consumer one that is younger
than the cap (14.7). A page that is deleted all the same, by a mistake, leaves a hole that is never
silent: a reader before it gets an error or other data, and the hole is not filled.
"""

from __future__ import annotations

from typing import Final

from tests.simulation.consumer import steps
from tests.simulation.functions import FEED
from tests.simulation.model import Broken
from tests.simulation.producer import Producer
from tests.simulation.world import MINUTE_MS, World
from tidings.core.consumers.consumer import Change, Consumer
from tidings.core.followers.follower import effective_checkpoints
from tidings.core.log.reader import PagesLost
from tidings.core.model.cursors import PAGE_END, Place

RATES: Final = {
    "consumer_moves": 0.004,  # a worker serves it for a moment; at each request
    "page_lost": 0.002,  # once: an operator deletes a page that is handled; at each request
    "lull": 1.0,
}
LEADS_TO: Final = (
    "floor was raised",
    "floor waited for a held consumer",
    "lost page was told",
    "page expired",
)
# A page represents 3,000, ten a second. Sixteen renewals of 5 ms run in parallel, and a sweep of an
# hour represents sixty.
COSTS_MS: Final = {"log.renew": 3_000 * 5.0 / 16 / 60}
LULL_HOURS: Final[tuple[int, ...]] = (27, 40, 60)
_NAME = "held"
_PAUSE_MS = 4 * MINUTE_MS


class Volume:
    """The held consumer, and the producer that does not rest."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.producer = Producer(world, "v0")
        self._version = 0
        world.machine.costs_ms = COSTS_MS
        world.stores.log.rising = self._check_floor
        world.scheduler.spawn("volume", self._live)

    def _live(self) -> None:
        """Move it early, and sometimes later, never far."""
        while not self.world.model.frontier:
            self.world.scheduler.sleep(1_000)
        self._stand(1)
        while True:
            self.world.scheduler.sleep(self.world.random.uniform(0.5, 1.5) * _PAUSE_MS)
            if self.world.in_lull:
                self.producer.post_one()
                if self.world.faults.strikes("consumer_moves"):
                    self._stand(self.world.random.randint(self.page, self.world.model.frontier))
                if not self.world.lost[FEED] and self.world.faults.strikes("page_lost"):
                    self._lose()

    def _stand(self, page: int) -> None:
        self.page = page
        place = Place(page, PAGE_END, self.world.model.seconds[page])
        change = Change(Consumer(FEED, _NAME, position=place))
        assert self.world.stores.consumers.write(FEED, _NAME, self._version, change)
        self._version += 1

    def _check_floor(self, before: int, floor: int) -> None:
        """Raises:
        Broken: the floor passes what the consumer needs, before the cap.
        """
        if not self._version:
            return
        if floor == self.page:
            self.world.faults.saw("floor waited for a held consumer")
        # A fast clock trims, and a page goes with the next one, which a slow clock has stamped.
        skew_ms = 4 * self.world.machine.clocks.bound_ms + 1_000
        for number in range(max(before, self.page + 1), floor):
            age_ms = self.world.scheduler.now_ms - self.world.model.seconds[number] * 1_000
            if age_ms < self.world.deployment.least_cap_ms - skew_ms:
                cap_ms = self.world.deployment.least_cap_ms
                short_s = (cap_ms - age_ms) // 1_000
                raise Broken(f"page {number} goes {short_s} s early, held at {self.page}")

    # --- a hole ---------------------------------------------------------------------------------

    def _lose(self) -> None:
        """Lose a page that the followers have handled, and that readers before it need."""
        stores = self.world.stores
        handled = effective_checkpoints(stores.followers.checkpoints(FEED), archives=False)
        numbers = [page.number for page in stores.log.read(FEED, stores.log.floor(FEED))]
        chosen = [number for number in numbers if number <= min(handled.values())]
        if not chosen:
            return
        lost = self.world.lost[FEED] = self.world.random.choice(chosen)
        stores.log.lose(FEED, lost)
        self._check_heard(lost)

    def _check_heard(self, lost: int) -> None:
        """Raises:
        Broken: a reader before the page receives nothing, as if the page had never existed.
        """
        place = Place(lost - 1, PAGE_END, self.world.model.seconds[lost - 1])
        told = 0
        try:
            for step in steps(self.world.catch_up(), FEED, place):
                told += len(step.events)
        except PagesLost:
            told += 1
        if not told:
            raise Broken(f"page {lost} is gone, and a reader before it receives nothing")
        self.world.faults.saw("lost page was told")


def begin(world: World) -> Producer:
    world.faults.add(RATES, LEADS_TO)
    return Volume(world).producer

"""Several feeds in one world, and one of them in trouble: its log is throttled.

The trouble outlasts the storm: the other feeds must come to rest while it lasts, and the
throttled one after it. It comes first in every loop over the feeds.
"""

from __future__ import annotations

from typing import Final

from tests.simulation import checks
from tests.simulation.functions import FEED
from tests.simulation.model import Broken
from tests.simulation.process import Process
from tests.simulation.producer import Producer
from tests.simulation.streams import StreamConsumer
from tests.simulation.world import World

OTHER: Final = "aside"
RATES: Final = {
    "wake_lost": 0.7,  # the sweep is what each of them leans on
    "busy": 0.5,  # a turn of the state has much to write
    "throttled": 0.9,  # a call to the log of the other feed, while the trouble lasts
    "rung_together": 0.5,  # one event of the stream has records of both feeds
}
# So that a backlog takes many turns.
BOUNDS: Final = {"FOLLOW_OPERATIONS_MAX": 8, "FOLLOW_OPERATIONS_FIRST": 8}
_TURN_MS = 1_500
_TROUBLE_AFTER_MS = (0, 90_000)
_RETRIES_MS = (100, 3_000)  # the time in which a client of DynamoDB gives up


class ThrottledFeed:
    """The feed in trouble, with a producer and a reader of its own."""

    def __init__(self, world: World) -> None:
        self.world = world
        world.add_feed(OTHER)
        world.machine.refuses = self._refuses
        self.producer = Producer(world, "q0", feed=OTHER)
        self.stream = StreamConsumer(world, "t0", feed=OTHER)
        self._troubled = False
        world.scheduler.after(world.random.uniform(*_TROUBLE_AFTER_MS), self._begin)

    def _begin(self) -> None:
        self._troubled = True

    def _refuses(self, process: Process, label: str, feed: object) -> bool:
        """Return True if the store is throttled at this call; it takes its time to say so."""
        if label == "state.write" and self.world.faults.strikes("busy"):
            process.sleep(_TURN_MS)
        if not self._troubled or feed != OTHER or not label.startswith("log."):
            return False
        if self.world.random.random() >= RATES["throttled"]:
            return False
        self.world.faults.saw("throttled")
        process.delay(self.world.random.uniform(*_RETRIES_MS))
        return True

    def check_others(self) -> None:
        """Check that a single feed fails, and that no other is affected.

        Raises:
            Broken: it does.
        """
        if not self._troubled:
            raise Broken("there was no trouble")
        checks.check_followers(self.world, FEED)
        checks.check_state(self.world, FEED)

    def end(self) -> None:
        self._troubled = False


def begin(world: World) -> ThrottledFeed:
    world.faults.add({**RATES, "lull": 0.0})
    return ThrottledFeed(world)

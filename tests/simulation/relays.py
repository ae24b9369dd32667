"""
Feeds that copy the world's feed: two that elect who reads it, and one that reads one of them.

Each has stores and functions of its own, which fail like the world's; upstreams are down for a
while, operators come and go, and the log is given up under them. Whatever is written to their
logs must be the world's pages; at rest each has its log and state, and so has a reader who took
its cursor from one to the other all the time.
"""

from __future__ import annotations

from typing import Final

from tidings.core.catchup.catchup import CatchUp
from tidings.core.errors import NothingDone
from tidings.core.followers.follower import STATE
from tidings.core.log.reader import Reader
from tidings.core.model.feeds import Retention
from tidings.core.replication.serve import Portioner
from tidings.core.replication.source import Role, Source
from tidings.core.state.removed_parents_reader import RemovedParentsReader

from tests.simulation.chained import Deployment, Network, WatchedLeases
from tests.simulation.functions import FEED
from tests.simulation.model import Broken
from tests.simulation.wandering import Wanderer
from tests.simulation.world import World

MASTER = "https://master.example/feeds/main"
# As they are, but so short that runs, polls and rests end many times in one chaos.
BOUNDS: Final = {
    "RELAY_RUN_MS": 12_000,
    "RELAY_LEASE_MS": 6_000,
    "RELAY_BACKOFF_MS_MAX": 4_000,
    "PORTION_BLOCK_S_MAX": 2,
    "PORTION_PAGES_MAX": 7,
    "SEAT_REST_MS": 8_000,
    "MEMBER_MS": 12_000,
}
CHAOS_MS: Final = (60_000, 90_000)
RATES: Final = {
    "outage": 0.01,  # an upstream does not answer, for some seconds; at each request
    "coordinator_outage": 0.03,
    "operator": 0.15,  # somebody steers a relay; each second
    "trim": 0.3,  # pages of the master are given up; every five seconds
}
LEADS_TO: Final = (
    "a relay fell off",
    "a relay was reset",
    "a relay was paused",
    "a feed was copied",
    "a leader was followed by another",
    "pages were copied",
    "somebody read on elsewhere",
)
PROMOTED_MS: Final = 10_000  # a seat, the skew, a poll of two seconds, and a run that begins
_SKEW_MS = 2_000  # seats go by the clocks of members, which costs time alone
_KEPT_MS = 6_000  # of the master's log, at the least
_ACTIONS = ("pause", "resume", "shutdown", "start", "reset")


class Relays:
    """All of them, and who steers them."""

    def __init__(self, world: World) -> None:
        self.world = world
        master = (Portioner(self._catch_up(), {}), FEED)
        self.network = Network(world, {MASTER: master}, {})
        self.seats = WatchedLeases(world)
        self.deployments = [self._member("a"), self._member("b")]
        behind = Source(world.random.choice(self.deployments).address)
        self.deployments.append(Deployment(world, "c", behind, self.network, self.seats))
        reads = [each.catch_up() for each in self.deployments]
        self.wanderer = Wanderer(world, [self._catch_up(), *reads])
        world.scheduler.spawn("relay-operator", self._operate)
        world.scheduler.spawn("relay-trimming", self._trim)

    def _catch_up(self) -> CatchUp:
        stores = self.world.stores
        departures = RemovedParentsReader(stores.departures, stores.followers)

        def clock() -> int:
            return self.world.scheduler.now_ms

        reader = Reader(stores.log, stores.log, stores.followers, clock, lambda *_: None)
        kept = stores.tombstones, departures
        return CatchUp(reader, stores.state, *kept)

    def _member(self, name: str) -> Deployment:
        address = f"https://{name}.example/feeds/main"
        source = Source(MASTER, role=Role.ELECTED, address=address, cluster="c")
        return Deployment(self.world, name, source, self.network, self.seats)

    def _operate(self) -> None:
        world = self.world
        while True:
            world.scheduler.sleep(1_000)
            for each in self.deployments:
                relay = each.relays.relay(FEED)
                if relay.copy is not None:
                    world.weather.saw("a feed was copied")
            if world.weather.strikes("operator"):
                self._act(world.random.choice(self.deployments), world.random.choice(_ACTIONS))

    def _act(self, chosen: Deployment, action: str) -> None:
        fields = {"to": "everything", "why": "a test"} if action == "reset" else {}
        try:
            chosen.control().act(FEED, action, fields)
        except NothingDone:
            return
        self.world.machine.note(chosen.name, action)
        if action in ("reset", "pause"):
            self.world.weather.saw(
                "a relay was reset" if action == "reset" else "a relay was paused"
            )

    def _trim(self) -> None:
        """The master's log is kept for some seconds only, and so is each copy's."""
        world = self.world
        while True:
            world.scheduler.sleep(5_000)
            if not world.weather.strikes("trim"):
                continue
            world.trim(Retention(_KEPT_MS, 0), 0)
            now = world.scheduler.now_ms
            for each in self.deployments:
                handled = each.followers.checkpoints(FEED).get(STATE, 0)
                old = [
                    page.number for page in each.log.read(FEED, 0) if page.at_ms < now - _KEPT_MS
                ]
                each.log.raise_floor(FEED, min(handled, max(old, default=0)) + 1)

    def calm(self) -> None:
        """Whatever an operator stopped is to run."""
        for each in self.deployments:
            self._act(each, "resume")
            self._act(each, "start")

    def check_promotion(self) -> None:
        """
        The leader's deployment is gone: the other one leads within the time of a seat.

        Raises:
            Broken: it does not.
        """
        scheduler = self.world.scheduler
        seat = self.seats.seats("c")[0]
        lost = next((each for each in self.deployments if each.address == seat.address), None)
        if lost is None or not seat.held(scheduler.now_ms):
            raise Broken("nobody leads in calm weather")
        lost.die()
        self.network.down_until_ms[lost.address] = scheduler.now_ms + 60_000
        scheduler.run(PROMOTED_MS)
        if self.seats.seats("c")[0].address == lost.address:
            raise Broken("nobody leads after the leader was lost")
        lost.off = False
        self.network.down_until_ms.clear()

    def check(self) -> None:
        for each in self.deployments:
            each.check()
        self.wanderer.check()


def begin(world: World) -> Relays:
    world.weather.add({**RATES, "lull": 0.0, "deploy": 0.0}, LEADS_TO)
    world.machine.clocks.within(_SKEW_MS)
    return Relays(world)

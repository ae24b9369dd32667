"""Feeds that copy the world's feed: two that elect its reader, and one that reads one of them.

Each has stores and functions of its own, which fail like the world's; upstreams are down for a
while, operators change them, and the log is trimmed during the copy. All pages in their logs
must be the world's pages; at rest each has its log and state, and so has a reader that moved with
its cursor from one to the other all the time.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from tests.simulation.chained import CheckedLeases, Deployment, Network
from tests.simulation.consumer import steps
from tests.simulation.functions import FEED
from tests.simulation.model import Broken, Wanted
from tests.simulation.world import World
from tidings.core.catchup.catchup import CatchUp
from tidings.core.errors import NothingDone, Unavailable
from tidings.core.followers.follower import STATE
from tidings.core.model import cursors
from tidings.core.model.feeds import Retention
from tidings.core.replication.admin import Action
from tidings.core.replication.source import Role, Source
from tidings.core.state.sums import SumReader

MASTER = "https://master.example/feeds/main"
# The bounds of the product, but so short that runs, polls and rests end many times in one chaos.
BOUNDS: Final = {
    "RELAY_RUN_MS": 12_000,
    "RELAY_LEASE_MS": 6_000,
    "RELAY_BACKOFF_MS_MAX": 4_000,
    "RELAY_COMPARE_MS": 5_000,
    "BATCH_BLOCK_S_MAX": 2,
    "BATCH_PAGES_MAX": 7,
    "LEADER_LEASE_REST_MS": 8_000,
    "MEMBER_MS": 12_000,
}
CHAOS_MS: Final = (60_000, 90_000)
RATES: Final = {
    "outage": 0.01,  # an upstream does not answer, for some seconds; at each request
    "coordinator_outage": 0.03,
    "operator": 0.15,  # an operator changes a relay; each second
    "trim": 0.3,  # pages of the master are given up; every five seconds
}
LEADS_TO: Final = (
    "a relay fell off",
    "a relay was reset",
    "a relay was paused",
    "a feed was copied",
    "a leader was followed by another",
    "pages were copied",
    "a row of a copy was lost",
    "a bucket was mended",
    "somebody read on elsewhere",
)
PROMOTED_MS: Final = 10_000  # a leader's lease, the skew, a poll of two seconds, and a first run
_MENDED_MS = 60_000  # some comparisons, of which one counts the bucket of a row that is lost
_SKEW_MS = 2_000  # leases of leaders go by the clocks of members, which costs time alone
_KEPT_MS = 6_000  # of the master's log, at the least
_ACTIONS = ("pause", "resume", "shutdown", "start", "reset")


class Relays:
    """All relays, and their operators."""

    def __init__(self, world: World) -> None:
        self.world = world
        host = world.functions.undisturbed(lambda: world.scheduler.now_ms)
        master = host.replication_reader, FEED
        sums = SumReader(world.stores.sums, world.stores.followers)
        self.network = Network(world, {MASTER: master}, {}, {MASTER: sums})
        self.leases = CheckedLeases(world)
        self.deployments = [self._member("a"), self._member("b")]
        behind = Source(world.random.choice(self.deployments).address)
        self.deployments.append(Deployment(world, "c", behind, self.network, self.leases))
        reads = [each.catch_up for each in self.deployments]
        self.reader = SwitchingReader(world, [world.catch_up(), *reads])
        world.scheduler.spawn("relay-operator", self._operate)
        world.scheduler.spawn("relay-trimming", self._trim)

    def _member(self, name: str) -> Deployment:
        address = f"https://{name}.example/feeds/main"
        source = Source(MASTER, role=Role.ELECTED, address=address, cluster="c")
        return Deployment(self.world, name, source, self.network, self.leases)

    def _operate(self) -> None:
        world = self.world
        while True:
            world.scheduler.sleep(1_000)
            for each in self.deployments:
                relay = each.relays.relay(FEED)
                if relay.copy is not None:
                    world.faults.saw("a feed was copied")
            if world.faults.strikes("operator"):
                self._act(world.random.choice(self.deployments), world.random.choice(_ACTIONS))

    def _act(self, chosen: Deployment, action: str) -> None:
        fields = {"to": "everything", "why": "a test"} if action == "reset" else {}
        try:
            chosen.control.act(FEED, Action(action), fields)
        except NothingDone:
            return
        self.world.machine.note(chosen.name, action)
        if action in ("reset", "pause"):
            self.world.faults.saw(
                "a relay was reset" if action == "reset" else "a relay was paused"
            )

    def _trim(self) -> None:
        """Trim the master's log and each copy's to some seconds."""
        world = self.world
        while True:
            world.scheduler.sleep(5_000)
            if not world.faults.strikes("trim"):
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

    def check_comparison(self) -> None:
        """A row of a copy's state is gone, and is back soon.

        Unless one of them is copied: its sums are unknown in the meantime.

        Raises:
            Broken: it is not.
        """
        if any(each.relays.relay(FEED).copy for each in self.deployments):
            return
        chosen = self.world.random.choice(self.deployments)
        key = chosen.lose_row()
        self.world.scheduler.run(_MENDED_MS)
        if key and not chosen.state.find(FEED, [key]):
            raise Broken(f"{chosen.name}: its {key} is still lost")

    def check_promotion(self) -> None:
        """The leader's deployment fails: the other one leads within the time of a leader's lease.

        Raises:
            Broken: it does not.
        """
        scheduler = self.world.scheduler
        lease = self.leases.leases("c")[0]
        lost = next((each for each in self.deployments if each.address == lease.address), None)
        if lost is None or not lease.is_held(scheduler.now_ms):
            raise Broken("no member leads although nothing fails")
        lost.die()
        self.network.down_until_ms[lost.address] = scheduler.now_ms + 60_000
        scheduler.run(PROMOTED_MS)
        if self.leases.leases("c")[0].address == lost.address:
            raise Broken("no member leads after the leader was lost")
        lost.off = False
        self.network.down_until_ms.clear()

    def check(self) -> None:
        for each in self.deployments:
            each.check()
        self.reader.check()


class SwitchingReader:
    """Reads now here, now there, with one cursor; knows the latest of each object."""

    def __init__(self, world: World, places: Sequence[CatchUp]) -> None:
        self.world, self.places = world, places
        self.cursor = "0"
        self.objects: dict[tuple[str, str], Any] = {}
        world.scheduler.spawn("switching-reader", self._live)

    def _live(self) -> None:
        while True:
            self.world.scheduler.sleep(self.world.random.uniform(200, 5_000))
            self.world.faults.saw("somebody read on elsewhere")
            try:
                self.read(self.world.random.choice(self.places))
            except Unavailable:  # a feed that was just reset to a copy
                self.world.faults.saw("state was not there yet")

    def read(self, catch_up: CatchUp) -> None:
        """Read to the end."""
        for step in steps(catch_up, FEED, cursors.parse(self.cursor)):
            for event in step.events:
                self._hear(event.name, event.data)
        self.cursor = step.progress.cursor

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
                raise Broken("a reader that changed the upstream differs from the log")


def begin(world: World) -> Relays:
    world.faults.add({**RATES, "lull": 0.0, "deploy": 0.0}, LEADS_TO)
    world.machine.clocks.within(_SKEW_MS)
    return Relays(world)

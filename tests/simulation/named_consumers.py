"""Named consumers. Their log is trimmed as early as allowed, and past the cap in spite of them.

Several workers work for one (`consumer_worker`), an operator steers it (`consumer_operator`), and
a `Ledger` checks the acknowledgements.
"""

from __future__ import annotations

from typing import Final

from tests.simulation.consumer_operator import Operator
from tests.simulation.consumer_worker import Worker
from tests.simulation.copies import YOUNG_MS
from tests.simulation.functions import FEED
from tests.simulation.ledger import NEVER, NOWHERE, Ledger, at_of
from tests.simulation.model import PAGE_END, Broken
from tests.simulation.world import SWEEP_TIMEOUT_S, World
from tidings.core.consumers.consumer import Change, Consumer
from tidings.core.model.feeds import Retention

CHAOS_MS: Final = (120_000, 150_000)
# A lease so short that many run out, and little looked ahead, so that one look is often too little
BOUNDS: Final = {"CONSUMER_LEASE_MS": 8_000, "ADVANCE_PAGES": 2, "ADVANCE_READS_MAX": 2}
RATES: Final = {
    "worker_dies": 0.01,  # before a message of a batch: some are written, none acknowledged
    "worker_lingers": 0.01,  # it continues after its lease has expired
    "worker_fails": 0.01,  # its store refuses a message, this once
    "hand_over": 0.03,
    "answer_to_worker_lost": 0.05,
    "trim": 0.7,
    "delete": 0.7,
    "steer": 0.5,  # an operator does something
}
LEADS_TO: Final = (
    "consumer fell off",
    "consumer was marked back",
    "consumer was marked forward",
    "consumer was paused",
    "filter was changed",
    "floor waited for a consumer",
    "message came again",
    "message came alone",
    "message was parked",
    "message was stepped over",
    "parked message comes again",
    "parked message failed again",
    "parked message was written",
    "store refused a zombie",
    "worker was overtaken",
)
_AGE_MS, _CAP_MS = 10_000, 60_000
_SKEW_MS = 6_000  # of clocks: as small compared with these ages as real ones
_TRIM_EVERY_MS = 10_000


class Named:
    """A named consumer: its ledger, its workers, its operator."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.ledger = Ledger(name, world.model, world.floor, world.faults)
        world.stores.consumers.observers[name] = self._changed
        self.back_ms = world.scheduler.now_ms  # when an operator put it back
        self._seen = NEVER  # its position at the last check
        self.operator = Operator(world, name, self.ledger)
        workers = world.random.randint(1, 3)
        self.workers = [Worker(world, name, f"{name}.{at}", self.ledger) for at in range(workers)]

    def _changed(self, old: Consumer, change: Change) -> None:
        new = change.consumer
        assert new is not None
        self.world.machine.note(
            self.name, change.note.what if change.note else "stands", at_of(new.position), new.fence
        )
        if at_of(new.position) < at_of(old.position):
            self.back_ms = self.world.scheduler.now_ms
        if old.filter != new.filter:
            self.ledger.refiltered()
        self.ledger.changed(old, change)

    def check_floor(self, before: int, page: int) -> None:
        """The floor rises from *before* to *page*.

        Raises:
            Broken: past what this one needs, and has needed for less than the cap.
        """
        standing = self.world.stores.consumers.consumer(FEED, self.name)
        now = self.world.scheduler.now_ms
        if standing is None or now - self.back_ms < SWEEP_TIMEOUT_S * 1_000:
            return  # retention may have looked at it before
        at = at_of(standing.position)
        needed = at[0] + (at[1] >= PAGE_END)
        lost = self.world.stores.log.read(FEED, page - 2, 1)
        young = bool(lost) and lost[0].at_ms > now - _CAP_MS + _SKEW_MS
        kept = self.world.stores.log.read(FEED, page - 1, 1)
        if needed - 1 == page and kept and kept[0].at_ms < now - 2 * _AGE_MS:
            self.world.faults.saw("floor waited for a consumer")
        if at != NOWHERE and max(needed, before) < page and young:
            raise Broken(f"the floor is {page}, and {self.name} is at {standing.position}")

    def moves(self) -> bool:
        """Return True if it has moved since the last call, and something is left to do."""
        standing = self.world.stores.consumers.consumer(FEED, self.name)
        at = NOWHERE if standing is None else at_of(standing.position)
        before, self._seen = self._seen, at
        return before != at < (self.world.model.frontier, PAGE_END)

    def check(self) -> None:
        standing = self.world.stores.consumers.consumer(FEED, self.name)
        assert standing is not None
        parked = {each.id for each in self.world.stores.consumers.parked(FEED, self.name)}
        self.ledger.check(standing, parked)
        if at_of(standing.position) < (self.world.model.frontier, 0):
            raise Broken(f"{self.name} stays at {standing.position}, with nothing before it")


def begin(world: World) -> list[Named]:
    """Let workers consume, operators steer, and the log be given up under them."""
    world.faults.add(RATES, LEADS_TO)
    world.machine.clocks.within(_SKEW_MS)
    found = [Named(world, f"n{at}") for at in range(world.random.randint(1, 3))]

    def check(before: int, page: int) -> None:
        for each in found:
            each.check_floor(before, page)

    world.stores.log.rising = check
    world.scheduler.spawn("retention", lambda: _retain(world))
    return found


def _retain(world: World) -> None:
    """Retention as it is, but so short that the floor follows the consumers, and the cap too."""
    log, faults, now = world.stores.log, world.faults, world.scheduler
    while True:
        now.sleep(_TRIM_EVERY_MS)
        world.sleep_through_lull()
        if faults.strikes("trim"):
            world.trim(Retention(_AGE_MS, 0), _CAP_MS)
        before_ms = now.now_ms - YOUNG_MS
        faults.saw("page expired", log.give_up(before_ms, lambda: faults.strikes("delete")))

"""An operator of a named consumer: steers it at any moment, and when nothing fails sets it right.

Nothing that an operator does is repeated when its answer is lost: it might do too much.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.simulation.consumer import FILTERS
from tests.simulation.functions import FEED
from tests.simulation.ledger import Ledger, at_of
from tests.simulation.model import PAGE_END
from tests.simulation.process import Process
from tests.simulation.world import World
from tidings.core import limits
from tidings.core.consumers.consumer import Consumer
from tidings.core.consumers.service import Consumers, Reason
from tidings.core.errors import ConsumerFellOff, InvalidConsumer, NothingDone, UnknownParked
from tidings.core.model.filters import Filter

_WHY = Reason("ann", "seen in the simulation")
_EVERY_MS = (1_000, 6_000)
_LATER_MS = 12_000
_REFUSED = (ConsumerFellOff, InvalidConsumer, NothingDone, UnknownParked)
_STARTS: Final = ("oldest", "oldest", "now", "copy", "copy")
_DEEDS: Final = (
    *("pause", "resume", "resume", "mark", "mark", "step"),
    *("park", "retry", "retry", "drop", "refilter"),
)

Deed = Callable[[Consumers], object]


class Operator:
    """Registers the consumer *name* and looks after it."""

    def __init__(self, world: World, name: str, ledger: Ledger) -> None:
        self.world, self.name, self.ledger = world, name, ledger
        self.random, self.saw = world.random, world.faults.saw
        world.scheduler.spawn(f"{name}.operator", self._live)

    def _live(self) -> None:
        self._register(self.random.choice(_STARTS))
        while True:
            self.world.sleep_through_lull()
            self.world.scheduler.sleep(self.random.uniform(*_EVERY_MS))
            standing = self.world.stores.consumers.consumer(FEED, self.name)
            if standing is None:
                self._register("oldest")
            elif not self.world.faults.rates["steer"]:
                self._heal(standing)
            elif self.world.faults.strikes("steer"):
                self._steer(standing, self.random.choice(_DEEDS))

    def _register(self, start: str) -> None:
        wanted = self.random.choice(FILTERS)
        kept = Consumer(FEED, self.name, Filter(wanted.types, wanted.parents))
        self._do(lambda consumers: consumers.register(FEED, self.name, kept, start))

    def _heal(self, standing: Consumer) -> None:
        """Do the repairs that only an operator can do."""
        if standing.paused:
            self._do(lambda consumers: consumers.pause(FEED, self.name, _WHY, paused=False))
        elif self._fell_off(standing):
            self._mark("oldest")
        elif standing.failure and standing.failure.id:
            if standing.parked >= limits.PARKED_MAX:
                self._do(lambda consumers: consumers.drop(FEED, self.name, "all", _WHY))
            self._do(lambda consumers: consumers.park(FEED, self.name, _WHY))

    def _fell_off(self, standing: Consumer) -> bool:
        at = at_of(standing.position)
        needed = at[0] + (at[1] >= PAGE_END)
        return at >= (0, 0) and needed < self.world.stores.log.floor(FEED)

    def _steer(self, standing: Consumer, what: str) -> None:
        if self._fell_off(standing):
            self._mark(self.random.choice(("oldest", "copy")))
        elif standing.failure and standing.failure.id and self.random.random() < 0.7:
            self._do(lambda consumers: consumers.park(FEED, self.name, _WHY))
        elif what in ("pause", "resume"):
            paused = what == "pause"
            self.saw("consumer was paused", paused)
            self._do(lambda one: one.pause(FEED, self.name, _WHY, paused=paused))
        elif what == "mark":
            self._mark(self._somewhere())
        elif what == "refilter":
            self._register("oldest")
        else:
            self._aside(what)

    def _aside(self, what: str) -> None:
        """Choose the next message, or a parked one."""
        if what == "step":
            self._do(lambda consumers: consumers.step(FEED, self.name, _WHY))
        elif what == "park":
            self._do(lambda consumers: consumers.park(FEED, self.name, _WHY))
        elif what == "retry":
            self._do(lambda consumers: consumers.retry(FEED, self.name, "all", _WHY))
        elif self.random.random() < 0.2:
            self._do(lambda consumers: consumers.drop(FEED, self.name, "all", _WHY))

    def _somewhere(self) -> str:
        """Choose a place of the log, often one near its end; seldom another beginning."""
        ops, model = self.world.model.ops, self.world.model
        if not ops or self.random.random() < 0.2:
            return self.random.choice(("oldest", "now", "copy"))
        page, slot = self.random.choice(ops[-self.random.choice((10, 50)) :]).at
        return f"{model.seconds[page]:08x}{page:010x}{slot:06x}"

    def _mark(self, target: str) -> None:
        self._do(lambda consumers: consumers.mark(FEED, self.name, target, _WHY))

    def _do(self, deed: Deed) -> None:
        """Once; whatever became of it."""
        ended: list[bool] = []

        def body(process: Process) -> None:
            try:
                deed(self.world.functions.services(process).consumers)
            except _REFUSED:
                pass
            finally:
                ended.append(True)

        self.world.consume(body)
        self.world.wait_for(ended.__len__, _LATER_MS, 20)

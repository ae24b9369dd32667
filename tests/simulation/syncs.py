"""Syncs: plans made from the state and applied later, more than once and at the same time.

A correction names itself by a marker of its own, so the model notices one that is on two pages.
`check` verifies in addition that each directly follows the state that its plan saw, and that an
applicable plan was applied as far as nothing moved.
"""

from __future__ import annotations

import json
from typing import Any, Final

from tests.simulation.functions import FEED
from tests.simulation.model import Broken, Op
from tests.simulation.process import Process
from tests.simulation.producer import IDS, PARENTS, TYPES
from tests.simulation.settings import TOMBSTONE_MS
from tests.simulation.world import World
from tidings.core import limits
from tidings.core.errors import PlanTooOld
from tidings.core.followers.follower import STATE
from tidings.core.limits import CLOCK_SKEW_MS_MAX
from tidings.core.model.operations import line_from
from tidings.core.sync import corrections
from tidings.core.sync.corrections import NOWHERE, Correction, Position, correction

_ANSWER_MS = 20_000  # then the part is given to another run
_PLAN_AFTER_MS, _APPLY_AFTER_MS = (1_000, 15_000), (0, 10_000)
_TWIN: Final = 0.3  # two runs of one part at the same time
LEADS_TO: Final = ("correction was applied", "correction was left out", "correction was done")


class Sync:
    """Makes one plan after the other and has each applied; *plans* that were not too old."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.count = 0
        self.planned: dict[str, Correction] = {}  # by marker
        self.complete: list[Correction] = []
        world.scheduler.spawn(name, self._live)

    def _live(self) -> None:
        """Apply the existing plans when it is calm, and make no new ones."""
        while self.world.faults.rates["hang_up"]:
            self._sleep(_PLAN_AFTER_MS)
            self.world.sleep_through_lull()
            through, plan = self._plan()
            self._sleep(_APPLY_AFTER_MS)
            if self._apply(through, plan):
                self.complete += plan

    def _sleep(self, within_ms: tuple[int, int]) -> None:
        self.world.scheduler.sleep(self.world.random.uniform(*within_ms))

    def _plan(self) -> tuple[int, list[Correction]]:
        """Choose some objects to change; rows are read while the feed is in use."""
        stores, random = self.world.stores, self.world.random
        through = stores.followers.checkpoints(FEED).get(STATE, 0)
        found: dict[str, Position] = {}
        for bucket in range(limits.BUCKETS):
            for row in stores.state.read(FEED, bucket):
                found[row.key] = Position(row.page, row.slot)
            self.world.scheduler.sleep(random.uniform(0, 10))
        names = [f"{kind}/o{number}" for kind in TYPES for number in range(IDS)]
        chosen = random.sample(names, random.randint(1, 8))
        return through, [self._correct(name, found.get(name, NOWHERE)) for name in chosen]

    def _correct(self, name: str, at: Position) -> Correction:
        self.count += 1
        marker = f"{self.name}.{self.count}"
        kind, _, id = name.partition("/")
        raw: dict[str, Any] = {
            "event": self.world.random.choice(("insert", "update", "delete")),
            "type": kind,
            "id": id,
            "parents": self.world.random.sample(PARENTS, 1),
            "timestamp": "2026-11-20T17:19:10Z",
            "data": {"of": marker, "at": 0},
        }
        self.planned[marker] = made = correction(line_from(raw, now_ms=0), at)
        return made

    def _apply(self, through: int, plan: list[Correction]) -> bool:
        """Until a run says that it is complete; False when the plan is too old."""
        part = [corrections.encode(each).encode() for each in plan]
        answers: list[bool] = []

        def run(process: Process) -> None:
            try:
                found = self.world.functions.services(process).corrector.apply(FEED, through, part)
            except PlanTooOld:
                answers.append(False)
                raise
            self.world.machine.note(process.name, "corrected", self.name, str(found))
            self.world.faults.saw("correction was applied", found.applied)
            self.world.faults.saw("correction was left out", found.moved)
            self.world.faults.saw("correction was done", found.done)
            answers.append(True)

        while not answers:
            self.world.correct(run)
            if self.world.random.random() < _TWIN:
                self.world.correct(run)
            self.world.wait_for(answers.__len__, _ANSWER_MS, 100)
        return answers[0]

    def check(self) -> None:
        """Every correction that is in the log changes just what its plan saw.

        Raises:
            Broken: an operation was overwritten, or something was left out for nothing.
        """
        last: dict[str, Op] = {}
        applied: set[str] = set()
        for op in self.world.model.ops:
            key = "/".join(op.key)
            planned = self.planned.get(op.marker)
            if planned is not None:
                applied.add(planned.line)
                if not _stood(last.get(key), planned.at, op.at_ms):
                    raise Broken(f"{op.marker} overwrote {last.get(key)}, planned {planned.at}")
            last[key] = op
        for each in self.complete:
            if each.line not in applied and _stood(last.get(each.key), each.at, 0):
                name = json.loads(each.line)["data"]["of"]
                raise Broken(f"{name} was left out, and its object never moved")


def _stood(last: Op | None, at: Position, now_ms: int) -> bool:
    """Return True if the plan saw *last*; one deleted long ago counts as missing."""
    if last is None or at == NOWHERE:
        forgotten = last is not None and last.event == "delete"
        old = last is None or (forgotten and now_ms - last.at_ms > TOMBSTONE_MS - CLOCK_SKEW_MS_MAX)
        return at == NOWHERE and old
    return last.at == at


def begin(world: World) -> list[Sync]:
    # The settings of a plan stay until it is applied.
    world.faults.add({"deploy": 0.0}, LEADS_TO)
    return [Sync(world, f"y{at}") for at in range(2)]

"""Consumers that copy: from every kind of beginning, interrupted after any row, away for any time.

Each begins once and is never replaced, so at the end it must hold everything it was ever due.
In the meantime retention trims the log as fast as it can without harming a writer.

With `raise_retention` older tombstones live shorter than those that are written now. A consumer
that returns after hours, from a place that is not in the log any more, must not rely on the
settings of now for the deletions that it missed.
"""

from __future__ import annotations

from typing import Any, Final

from tests.simulation.consumer import FILTERS, Consumer, leaving
from tests.simulation.functions import FEED
from tests.simulation.model import PAGE_END, Place, Position
from tests.simulation.producer import Producer
from tests.simulation.streams import StreamConsumer
from tests.simulation.world import HOUR_MS, World
from tidings.core.followers.follower import effective_checkpoints

CHAOS_MS: Final = (120_000, 150_000)  # longer than a page stays
RATES: Final = {
    "cut_in_copy": 0.04,  # after each row
    "cut_in_log": 0.01,  # after each operation
    "trim": 0.7,  # the floor rises to the followers
    "delete": 0.7,  # this one of the old pages below the floor goes now, the others later
}
LEADS_TO: Final = (
    "copy began",
    "copy was resumed",
    "copy's log was trimmed while away",
    "copy's log was trimmed meanwhile",
    "copied object was deleted",
    "deleted object was told",
    "trimmed place was resumed from",
)
RAISED_RATES: Final = {"deploy": 1.0, "expire": 0.8, "lull": 1.0}
RAISED_LEADS_TO: Final = (
    "deleted object was told",
    "reset was told",
    "trimmed place was resumed from",
)
_RAISED_MS: Final = 24 * HOUR_MS
# Older tombstones have expired after each of them, later ones have not.
RAISED_LULL_HOURS: Final[tuple[int, ...]] = (9, 27)
_IDS = 40  # of each type: with few buckets every bucket has many rows
_CONSUMERS = (4, 6)
_TRIM_EVERY_MS = 15_000
YOUNG_MS = 90_000  # a request, its retries and the skew of the clocks are over by then
_BEGINNINGS: Final = ("0", "1", "since", "foreign", "place")
_AWAY_MS: Final = ((100, 2_000), (100, 2_000), (5_000, 30_000), (YOUNG_MS, 130_000))


class CopyConsumer(StreamConsumer):
    """*beginning* is the kind of its first cursor; a `place` is one from early in the log."""

    def __init__(self, world: World, name: str, beginning: str) -> None:
        self._beginning = beginning
        self._copied: set[tuple[str, str]] = set()
        self._noted: set[tuple[str, int]] = set()
        super().__init__(world, name)

    def _live(self) -> None:
        self.world.scheduler.sleep(self.world.random.uniform(1_000, CHAOS_MS[0]))
        self.consumer = self._new()
        while True:
            self.world.sleep_through_lull()
            self._note_cursor()
            self._read()
            self.world.scheduler.sleep(self.world.random.uniform(*self._away_ms()))

    def _away_ms(self) -> tuple[int, int]:
        """Return the time away; when it is calm, no client stays away for long."""
        choices = _AWAY_MS if self.world.faults.rates["cut_in_copy"] else _AWAY_MS[:1]
        return self.world.random.choice(choices)

    def _new(self) -> Consumer:
        random, world = self.world.random, self.world
        past_ms = world.scheduler.now_ms - random.randint(1_000, CHAOS_MS[0])
        cursor, place, since_ms = self._beginning, None, None
        if cursor == "since":
            cursor, since_ms = str(past_ms), past_ms
        elif cursor == "foreign":
            cursor, since_ms = f"{past_ms // 1000:08x}{random.getrandbits(64):016x}", past_ms
        elif cursor == "place":
            cursor, place = self._early_place()
        careful, wanted = random.random() < 0.5, leaving(world, random.choice(FILTERS))
        made = Consumer(self.consumer.name, world.model, wanted, cursor, careful=careful)
        made.from_place, made.since_ms, made.everything = place, since_ms, cursor == "1"
        world.machine.note(made.name, "begins", self._beginning, cursor)
        return made

    def _early_place(self) -> tuple[str, Position]:
        """Return the knowledge of a client that was connected earlier and left."""
        model = self.world.model
        page = self.world.random.randint(0, model.frontier // 2)
        return f"{model.seconds.get(page, 0):08x}{page:010x}{PAGE_END:06x}", (page, PAGE_END)

    def _has_enough(self, name: str, data: dict[str, Any]) -> bool:
        cursor, strikes = self.consumer.cursor, self.world.faults.strikes
        if len(cursor) == 24 and Place.of(cursor).replicates:
            self._note_row(Place.of(cursor), name, data)
            return strikes("cut_in_copy")
        if name == "delete" and (data["type"], data["id"]) in self._copied:
            self.world.faults.saw("copied object was deleted")
        return strikes("cut_in_log")

    # --- what faults lead to ------------------------------------------------------------------

    def _note_cursor(self) -> None:
        cursor, floor = self.consumer.cursor, self.world.stores.log.floor(FEED)
        if len(cursor) != 24:
            return
        place, saw = Place.of(cursor), self.world.faults.saw
        trimmed = place.page + 1 < floor
        if place.replicates:
            saw("copy was resumed")
            saw("copy's log was trimmed while away", trimmed)
        elif place.page in self.world.model.seconds:
            saw("trimmed place was resumed from", trimmed)

    def _note_row(self, row: Place, name: str, data: dict[str, Any]) -> None:
        self._copied.add((data["type"], data["id"]))
        if name == "delete":
            self.world.faults.saw("deleted object was told")
        self._once("copy began", row.page)
        if row.page + 1 < self.world.stores.log.floor(FEED):
            self._once("copy's log was trimmed meanwhile", row.page)

    def _once(self, what: str, page: int) -> None:
        """Count *what* once for the copy that began at *page*."""
        if (what, page) not in self._noted:
            self._noted.add((what, page))
            self.world.faults.saw(what)


def begin(world: World) -> tuple[list[Producer], list[CopyConsumer]]:
    """Let consumers copy and the log be given up under them; more objects to copy, too."""
    random = world.random
    world.faults.add(RATES, LEADS_TO)
    world.scheduler.spawn("retention", lambda: _trim(world))
    producers = [Producer(world, f"c{at}", _IDS) for at in range(2)]
    names = random.choices(_BEGINNINGS, k=random.randint(*_CONSUMERS))
    return producers, [CopyConsumer(world, f"r{at}", name) for at, name in enumerate(names)]


def raise_retention(world: World) -> None:
    world.faults.add(RAISED_RATES, RAISED_LEADS_TO)
    world.deployment.ages_ms = (_RAISED_MS,)


def _trim(world: World) -> None:
    log, faults = world.stores.log, world.faults
    while True:
        world.scheduler.sleep(_TRIM_EVERY_MS)
        world.sleep_through_lull()
        archives = world.functions.archive is not None
        handled = effective_checkpoints(world.stores.followers.checkpoints(FEED), archives=archives)
        if faults.strikes("trim"):
            log.raise_floor(FEED, min(handled.values()) + 1)
        before_ms = world.scheduler.now_ms - YOUNG_MS
        faults.saw("page expired", log.give_up(before_ms, lambda: faults.strikes("delete")))

"""How a simulated consumer begins: its filter, its first cursor, its manners."""

from __future__ import annotations

from random import Random

from tests.simulation.consumer import Consumer
from tests.simulation.functions import FEED
from tests.simulation.model import Log, Place, Wanted
from tests.simulation.producer import PARENTS, TYPES
from tests.simulation.world import HOUR_MS, World

FILTERS = (
    Wanted(),
    Wanted(),
    Wanted(types=frozenset(TYPES[:1])),
    Wanted(types=frozenset(TYPES[1:])),
    Wanted(parents=frozenset(PARENTS[:1])),
    Wanted(parents=frozenset(PARENTS[1:])),
    Wanted(types=frozenset(TYPES[:2]), parents=frozenset(PARENTS[:2])),
)
_LEAVE = 0.7  # of those who filter on parents
_JUST_POSTED = 4


def new_consumer(world: World, name: str, feed: str = FEED) -> Consumer:
    """Somebody who was never here: from the start, now, a time, a foreign id or its own post."""
    random, log = world.random, world.models[feed]
    wanted = leaving(world, random.choice(FILTERS), feed)
    kind = random.choice(("0", "0", "now", "now", "since", "foreign", "posted"))
    posted = _posted(world, log) if kind == "posted" else None
    cursor, since_ms = posted or _cursor(random, world.scheduler.now_ms, kind)
    consumer = Consumer(name, log, wanted, cursor, careful=random.random() < 0.5)
    consumer.since_ms = since_ms
    consumer.from_place = Place.of(cursor).at if posted else None
    world.machine.note(name, "begins", kind, cursor, sorted(wanted.types or ()))
    return consumer


def _posted(world: World, log: Log) -> tuple[str, None] | None:
    """One of the last operations, whether or not the followers have come by."""
    ops = log.ops[-_JUST_POSTED:]
    if not ops:
        return None
    page, slot = world.random.choice(ops).at
    return f"{log.seconds[page]:08x}{page:010x}{slot:06x}", None


def leaving(world: World, wanted: Wanted, feed: str = FEED) -> Wanted:
    """Where departures are kept, many want to hear of them."""
    if not world.functions.leaves(feed) or wanted.parents is None:
        return wanted
    return wanted._replace(leave=world.random.random() < _LEAVE)


def _cursor(random: Random, now_ms: int, kind: str) -> tuple[str, int | None]:
    if kind in ("0", "now"):
        return kind, None
    past_ms = now_ms - random.randint(1_000, 3 * HOUR_MS)
    if kind == "since":
        return str(past_ms), past_ms
    rest = random.getrandbits(64)
    return f"{past_ms // 1000:08x}{rest:016x}", past_ms

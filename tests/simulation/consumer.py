"""A consumer as PROTOCOL.md requires it, and the check that it received everything promised.

`Consumer` is the client: a cursor and a copy of the objects in its events; `new_consumer` chooses
how it begins. `Session` checks one subscription on one connection: nothing skipped, nothing
backwards but for a repetition that continues in order, only matching events, nothing past a hole.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import copy
from random import Random
from typing import Any

from tests.simulation.functions import FEED
from tests.simulation.model import DELETED, PAGE_END, Broken, Log, Place, Position, Wanted
from tests.simulation.producer import PARENTS, TYPES
from tests.simulation.world import HOUR_MS, World
from tidings.core.catchup.catchup import CatchUp, Step
from tidings.core.model.cursors import Cursor
from tidings.core.model.filters import EVERYTHING, Filter

RESET, LIVE, LEAVE = "reset", "live", "leave"
ERASED = "erased:"  # the beginning of the id of an entry without its content
FILTERS = (
    Wanted(),
    Wanted(),
    Wanted(types=frozenset(TYPES[:1])),
    Wanted(types=frozenset(TYPES[1:])),
    Wanted(parents=frozenset(PARENTS[:1])),
    Wanted(parents=frozenset(PARENTS[1:])),
    Wanted(types=frozenset(TYPES[:2]), parents=frozenset(PARENTS[:2])),
)
_LEAVE = 0.7  # of the consumers that filter on parents
_JUST_POSTED = 4


class Consumer:
    """*careful* ones ignore an operation that is not above the last they handled (6.4), the
    others apply whatever comes.
    """

    def __init__(self, name: str, log: Log, wanted: Wanted, cursor: str, *, careful: bool) -> None:
        self.name, self.log, self.wanted = name, log, wanted
        self.cursor, self.careful = cursor, careful
        self.objects: dict[tuple[str, str], dict[str, Any] | None] = {}
        self.handled: Position = (0, 0)
        self.from_place: Position | None = None  # it must know everything after this
        self.since_ms: int | None = None  # or everything committed since
        self.everything = False
        self.repeats = 0
        self.events = self.resets = self.rows = 0
        self.leaves = 0  # that were received
        self.doubtful = 0  # of them, in the log, such that left nothing of ours

    def apply(self, id: str, name: str, data: dict[str, Any]) -> None:
        self.events += 1
        if name == RESET:
            self.resets += 1
            self.objects.clear()
            self.handled, self.everything = (0, 0), True
            return
        if name == LIVE:
            return
        place = Place.of(id)
        if not place.replicates and self.careful:
            if place.at <= self.handled:
                return
            self.handled = place.at
        self.rows += place.replicates
        self.leaves += name == LEAVE
        if data["id"].startswith(ERASED):
            return  # its object is deleted by the entry of the erasure
        gone = name in ("delete", LEAVE)
        self.objects[data["type"], data["id"]] = DELETED if gone else data

    def copy(self) -> Consumer:
        made = copy(self)
        made.objects = dict(self.objects)
        return made

    def forgets(self) -> None:
        """Start again from now: its old knowledge is obsolete."""
        self.objects.clear()
        self.from_place, self.since_ms, self.everything = None, None, False

    def check(self) -> None:
        """At rest, check that its copy equals the log, as far as it was sent."""
        if self.wanted.leave:
            self._check_exactly()
            return
        latest = self.log.latest(self.wanted)
        for key in self.objects.keys() - latest.keys():
            raise Broken(f"{self.name} holds {key}, which the log never had")
        if self.wanted.parents is not None:  # an object may leave its parents unseen
            last = self.log.latest(Wanted())
            latest = {key: op for key, op in latest.items() if op is last[key]}
        for key, op in latest.items():
            if not self._must_know(op.at, op.at_ms) and self.objects.get(key) is DELETED:
                continue
            expected = DELETED if op.event == "delete" else op.data
            if self.objects.get(key) != expected:
                found = self.objects.get(key)
                raise Broken(f"{self.name}: {key} is {found}, the log's last is {op}")

    def _check_exactly(self) -> None:
        """Check that a consumer with leaves holds exactly the matching objects."""
        for key, op in self.log.latest(Wanted(self.wanted.types)).items():
            matches = op.event != "delete" and self.wanted.matches(op)
            expected = op.data if matches else DELETED
            found = self.objects.get(key, DELETED)
            unheard = found is DELETED and not self._must_know(op.at, op.at_ms)
            if found != expected and not unheard:
                raise Broken(f"{self.name}: {key} is {found}, should be {expected}: {op}")

    def _must_know(self, at: Position, at_ms: int) -> bool:
        if self.everything or (self.from_place is not None and at > self.from_place):
            return True
        return self.since_ms is not None and at_ms >= self.since_ms


class Session:
    """*high* is how far the connection has sent the log, None if that is unknown (before or within
    a copy); *last* is its position, below *high* while it repeats.
    """

    def __init__(self, consumer: Consumer, floor: Any) -> None:
        self.consumer, self.log, self._floor = consumer, consumer.log, floor
        self.high: Position | None = None
        self.last: Position | None = None
        self._fresh = True
        self._wants_copy = True

    def starts(self, cursor: str) -> None:
        """Resume after *cursor*; the position is known only if it is a place in this log."""
        if len(cursor) != 24:
            return
        place = Place.of(cursor)
        if place.replicates:
            self.high = self.last = None
        elif self.log.seconds.get(place.page) == place.seconds or place.at == (0, PAGE_END):
            self.high = self.last = place.at

    def starts_now(self, cursor: str, frontier: int) -> None:
        """Start after *cursor*, at *frontier* at the least; copies are not expected."""
        place = Place.of(cursor)
        if place.page < frontier:
            raise Broken(f"{self.consumer.name}: now is {cursor}, the frontier was {frontier}")
        self.high = self.last = place.at
        self._wants_copy = False
        self.consumer.forgets()
        self.consumer.cursor, self.consumer.from_place = cursor, place.at

    def event(self, id: str, name: str, data: dict[str, Any]) -> None:
        if not self._wants_copy and (name == RESET or Place.of(id).replicates):
            raise Broken(f"{self.consumer.name} requested `now` and received a copy")
        if name == RESET:
            self.high = self.last = None
        elif name == LIVE:
            self._moved(Place.of(id))
        elif Place.of(id).replicates:
            self._row(Place.of(id), name, data)
        else:
            self._operation(Place.of(id), name, data)
        self.consumer.apply(id, name, data)

    def cursor(self, text: str) -> None:
        """Handle the cursor of a frame: everything up to here was sent."""
        place = Place.of(text)
        if place.replicates:
            self.high = self.last = (place.page, PAGE_END)
            self._fresh = False
        else:
            self._moved(place)

    def complete(self) -> None:
        """At rest, check that nothing is outstanding."""
        if self.high is None:
            raise Broken(f"{self.consumer.name} is still within a copy")
        self._check_gap(self.high, (self.log.frontier + 1, 0), "was never told")

    def _row(self, place: Place, name: str, data: dict[str, Any]) -> None:
        self.high = self.last = (place.page, PAGE_END)
        self._fresh = False
        wanted = self.consumer.wanted
        matches = wanted.wants(data["type"], data["parents"])
        if name == LEAVE:
            self._check_leave(data["type"], matches=matches)
        elif not matches:
            raise Broken(f"{self.consumer.name} was told of {data}, which it filters out")

    def _operation(self, place: Place, name: str, data: dict[str, Any]) -> None:
        who, op = self.consumer.name, self.log.op(place.at)
        if place.page > self.log.frontier:
            raise Broken(f"{who} saw page {place.page} beyond frontier {self.log.frontier}")
        is_erased = op is not None and op.data != data
        shows = op is not None and self.log.shows(op, data)
        if op is None or not shows or name not in ("delete" if is_erased else op.event, LEAVE):
            raise Broken(f"{who} saw {name} {data} at {place.at}; the log has {op}")
        if self.log.seconds[place.page] != place.seconds:
            raise Broken(f"{who}: id of {place.at} has another second")
        wanted = self.consumer.wanted
        if name == LEAVE:
            self._check_leave(op.key[0], matches=wanted.matches(op))
            self.consumer.doubtful += not wanted.left_by(op)
        elif not wanted.wants(data["type"], data["parents"]):
            raise Broken(f"{who} was told of {op}, which it filters out")
        self._step(place.at)

    def _check_leave(self, type: str, *, matches: bool) -> None:
        """Check a leave that is sent to be sure: only on request and within the types."""
        types, leave = self.consumer.wanted.types, self.consumer.wanted.leave
        if not leave or matches or (types is not None and type not in types):
            raise Broken(f"{self.consumer.name} got a leave of a {type}, outside of its filter")

    def _step(self, at: Position) -> None:
        if self.last is not None and at > self.last:
            self._check_gap(self.last, at, "was skipped")
        elif self.last is not None:
            self.consumer.repeats += 1
        self.last = at
        self.high = at if self.high is None else max(self.high, at)
        self._fresh = False

    def _moved(self, place: Place) -> None:
        if self.last is not None and place.at > self.last:
            self._check_gap(self.last, place.at, "is below a cursor but was not sent")
        self.last = place.at
        self.high = place.at if self.high is None else max(self.high, place.at)
        self._fresh = False

    def _check_gap(self, behind: Position, before: Position, what: str) -> None:
        unseen = self._fresh or self.consumer.wanted.parents is not None
        if unseen and behind[0] + 1 < self._floor():
            return  # it was served from the state, which has the latest of each object
        missed = self.log.missed(behind, before, self.consumer.wanted)
        if missed is not None:
            raise Broken(f"{self.consumer.name}: {missed.at} {what}, between {behind} and {before}")


def sse_blocks(text: str) -> list[tuple[str, str, dict[str, Any]]]:
    """Whole blocks of an event stream; comments are left out."""
    found = []
    for block in text.split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        found.append((fields["id"], fields["event"], json.loads(fields["data"])))
    return found


def steps(
    catch_up: CatchUp, feed: str, cursor: Cursor, wanted: Filter = EVERYTHING
) -> Iterator[Step]:
    """Yield the steps from *cursor* to the frontier."""
    progress, arrived = catch_up.start(feed, cursor), False
    while not arrived:
        step = catch_up.step(feed, progress, wanted)
        yield step
        progress, arrived = step.progress, step.at_frontier


def new_consumer(world: World, name: str, feed: str = FEED) -> Consumer:
    """Return a new consumer: from the start, now, a time, a foreign id or its own post."""
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
    """Return one of the last operations, whether or not the followers have handled it."""
    ops = log.ops[-_JUST_POSTED:]
    if not ops:
        return None
    page, slot = world.random.choice(ops).at
    return f"{log.seconds[page]:08x}{page:010x}{slot:06x}", None


def leaving(world: World, wanted: Wanted, feed: str = FEED) -> Wanted:
    """Return a filter that often requests leaves, if removed parents are kept."""
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

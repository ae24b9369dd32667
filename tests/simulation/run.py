"""One run of a seed: chaos, then calm, then the question whether every promise was kept.

`run` returns what was seen or raises `Failed`.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from random import Random

from tests.simulation import (
    archives,
    checks,
    clocks,
    copies,
    keys,
    lanes,
    listeners,
    named_consumers,
    relays,
    syncs,
    throttled_feed,
    volume,
)
from tests.simulation.consumer import Consumer
from tests.simulation.faults import LEADS_TO, Faults
from tests.simulation.functions import FEED
from tests.simulation.model import Broken
from tests.simulation.parts import SOUND, Parts, bounds
from tests.simulation.process import History
from tests.simulation.producer import Producer, beacon
from tests.simulation.sockets import SocketClient, late_frames
from tests.simulation.streams import StreamConsumer
from tests.simulation.world import MINUTE_MS, World
from tidings.core.state.sums import SumReader
from tidings.core.websocket.session import State

_SETTLE_MS = 4 * MINUTE_MS + 1_000  # leases run out, three sweeps pick up what is left
_BURSTS, _BURST_MS = 30, 3_000
_CHAOS_MS = (60_000, 120_000)
_LULL_HOURS = (2, 9, 27, 40)
_REOPEN_MS = 10_000
_WORK_MS = 60_000  # within that a consumer that was put far back has done something
_BOUNDS = {
    "listeners": listeners.PAGES,
    "consumers": named_consumers.BOUNDS,
    "relays": relays.BOUNDS,
    "feeds": throttled_feed.BOUNDS,
    "lanes": lanes.BOUNDS,
}
# Then no sweep may be needed any more; two clocks make a hole a minute younger.
_BEACON_MS = 100_000


@dataclass(frozen=True)
class Plan:
    """*sweeps* off takes the safety net away; *clear* takes the faults away, and *without* some of
    them. The others add something, which the module of that name describes: *consumers* those of
    `named_consumers`, *feeds* a `throttled_feed`, *keys* those that are revoked, *lanes* those
    that change their number, *frames* the late ones of `sockets`, *archive* an archive and *raised*
    a longer retention, both with *copies*. *server* is another world, of `tests.simulation.server`,
    which may have *erasures*, and *owners* that create and delete feeds.
    """

    seed: int
    clear: bool = False
    sweeps: bool = True
    copies: bool = False
    syncs: bool = False
    listeners: bool = False
    consumers: bool = False
    archive: bool = False
    relays: bool = False
    feeds: bool = False
    clocks: bool = False
    volume: bool = False
    frames: bool = False
    raised: bool = False
    lanes: bool = False
    keys: bool = False
    server: bool = False
    erasures: bool = False
    owners: bool = False
    without: frozenset[str] = frozenset()

    @property
    def is_plain(self) -> bool:
        """Whether nothing is added, and nothing is taken away."""
        return self == Plan(self.seed)


@dataclass(frozen=True)
class Outcome:
    """*fired* counts what happened; of *expected* many seeds must have met each kind."""

    fired: Counter[str]
    expected: frozenset[str]
    acknowledged: int
    unknown: int
    events: int
    steps: int
    history: History


class Failed(Exception):
    """A seed that broke a promise, with what led there."""

    def __init__(self, plan: Plan, reason: str, history: History) -> None:
        self.plan, self.reason, self.history = plan, reason, history
        super().__init__(f"seed {plan.seed}: {reason}")


class Run:
    def __init__(self, plan: Plan, parts: Parts) -> None:
        random = Random(plan.seed)
        self.faults = Faults(random, clear=plan.clear, without=plan.without)
        self.world = world = World(random, self.faults, parts)
        world.sweeps = plan.sweeps
        if plan.seed % 3:
            world.functions.keep_removed_parents()
        self.random, self.clear = random, plan.clear
        self.producers = [Producer(world, f"p{at}") for at in range(random.randint(1, 3))]
        self.sockets = [SocketClient(world, f"w{at}") for at in range(random.randint(1, 3))]
        self.streams = [StreamConsumer(world, f"s{at}") for at in range(random.randint(0, 2))]
        self._chaos_ms = _CHAOS_MS
        self._lull_hours: tuple[int, ...] = _LULL_HOURS
        self._settle_ms = _SETTLE_MS
        self._begin_copies(plan)
        self.syncs = syncs.begin(world) if plan.syncs else []
        self.listeners = listeners.begin(world, parts.buffer) if plan.listeners else []
        if plan.lanes:
            self._chaos_ms = lanes.CHAOS_MS
            self.sockets += lanes.begin(world)
        self.bearers = keys.begin(world) if plan.keys else None
        if self.bearers:
            self.sockets += self.bearers.clients
            self.producers.append(self.bearers.producer)
        self._begin_consumers(plan)
        self._begin_feeds(plan)
        self._begin_faults(plan)

    def _begin_copies(self, plan: Plan) -> None:
        if plan.copies:
            self._chaos_ms = copies.CHAOS_MS
            if plan.archive:
                archives.begin(self.world)
            self.producers, consumers = copies.begin(self.world)
            self.streams = [*self.streams[:1], *consumers]
        if plan.raised:
            self._lull_hours = copies.RAISED_LULL_HOURS
            copies.raise_retention(self.world)

    def _begin_consumers(self, plan: Plan) -> None:
        self.named = named_consumers.begin(self.world) if plan.consumers else []
        if self.named:
            self._chaos_ms = named_consumers.CHAOS_MS
        if plan.volume:
            self.producers.append(volume.begin(self.world))
            self._lull_hours = volume.LULL_HOURS

    def _begin_feeds(self, plan: Plan) -> None:
        self.throttled = throttled_feed.begin(self.world) if plan.feeds else None
        if self.throttled:
            self.producers.append(self.throttled.producer)
            self.streams.append(self.throttled.stream)
        self.relays = relays.begin(self.world) if plan.relays else None
        if self.relays:
            self._chaos_ms = relays.CHAOS_MS

    def _begin_faults(self, plan: Plan) -> None:
        if plan.clocks:
            self.faults.add({**clocks.RATES, "deploy": 0.0})
            self._settle_ms += clocks.WILD_MS_MAX
        if plan.frames:
            late_frames(self.world)
        if plan.is_plain:
            self.faults.add({}, LEADS_TO)

    def run(self) -> None:
        if self.world.sweeps:
            self._storms()
        else:
            self._bursts()
        self.check()

    def _storms(self) -> None:
        self._chaos()
        if self.faults.strikes("lull"):
            hours = self.random.choice(self._lull_hours)
            self.world.lull(hours)
            self._deploys(hours * 60 * MINUTE_MS)
            self.world.scheduler.run(hours * 60 * MINUTE_MS)
            self._chaos()
        self.settle()

    def _bursts(self) -> None:
        """Post bursts without the safety net: each must be followed at once."""
        for _ in range(_BURSTS):
            for producer in self.producers:
                delay = self.random.uniform(0, 300)
                self.world.scheduler.after(delay, producer.start)
            self.world.scheduler.run(_BURST_MS)
            checks.check_followers(self.world, FEED)
        self.faults.calm()
        self.world.scheduler.run(_BEACON_MS)

    def settle(self) -> None:
        """Calm, until all that must heal has healed; then one more request, without sweeps."""
        self.faults.calm()
        if self.relays:
            self.relays.calm()
        self.world.scheduler.run(self._settle_ms)
        if self.throttled:
            self.throttled.check_others()
            self.throttled.end()
            self.world.scheduler.run(self._settle_ms)
        if self.relays:
            self.relays.check_comparison()
            self.relays.check_promotion()
        self.world.sweeps = False
        self.producers += [beacon(self.world, feed) for feed in self.world.models]
        self.world.scheduler.run(_BEACON_MS)
        if any(stream.session is None for stream in self.streams):
            self.world.scheduler.run(_REOPEN_MS)  # its function has just met its time limit
        while any(each.moves() for each in self.named):
            self.world.scheduler.run(_WORK_MS)

    def _chaos(self) -> None:
        """Run all clients and functions."""
        lasts_ms = self.random.randint(*self._chaos_ms)
        self._deploys(lasts_ms)
        until_ms = self.world.scheduler.now_ms + lasts_ms
        for producer in self.producers:
            pause_ms = self.random.choice((200, 1_000, 5_000))
            self.world.scheduler.spawn(producer.name, partial(producer.produce, until_ms, pause_ms))
        self.world.scheduler.run(lasts_ms)

    def _deploys(self, within_ms: int) -> None:
        """Other settings, at some moment."""
        if self.faults.strikes("deploy"):
            delay = self.random.uniform(0, within_ms)
            self.world.scheduler.after(delay, self.world.deployment.deploy)

    def check(self) -> None:
        """Check every promise, at rest."""
        for producer in self.producers:
            checks.check_acknowledged(self.world, producer)
        for feed in self.world.models:
            checks.check_followers(self.world, feed)
            checks.check_state(self.world, feed)
            checks.check_removed_parents(self.world, feed)
            stores = self.world.stores
            sums = SumReader(stores.sums, stores.followers)
            if checks.check_sums(sums, stores.state, feed):
                self.faults.saw("sums were known")
        archives.check(self.world)
        if self.bearers:
            keys.check(self.world, self.bearers)
        for each in (*self.syncs, *self.listeners, *self.named, self.relays):
            if each:
                each.check()
        self._check_consumers()

    def _check_consumers(self) -> None:
        for client in self.sockets:
            self._check_socket(client)
            self._check_doubt(client.consumer)
        for stream in self.streams:
            if stream.session is None:
                raise Broken(f"{stream.consumer.name} has no stream")
            stream.session.complete()
            stream.consumer.check()
            self._check_doubt(stream.consumer)

    def _check_doubt(self, consumer: Consumer) -> None:
        """Check that without faults no leave is sent to be sure."""
        if self.clear and consumer.doubtful:
            raise Broken(f"{consumer.name} got {consumer.doubtful} leaves that left nothing")

    def _check_socket(self, client: SocketClient) -> None:
        connection = self.world.stores.connections.get(client.connection_id)
        if connection is None or client.session is None:
            raise Broken(f"{client.name} is not connected")
        if connection.state is not State.LIVE:
            raise Broken(f"{client.name} is {connection.state} for ever")
        client.session.complete()
        client.consumer.check()


def run(plan: Plan, parts: Parts = SOUND) -> Outcome:
    """Run the seed of *plan*.

    Raises:
        Failed: a promise was broken, or the code under test raised what it must not.
    """
    if plan.server:
        from tests.simulation.server.world import play  # it loads the server

        return play(plan, parts)
    others: dict[str, int] = {}
    for added, values in _BOUNDS.items():
        others |= values if getattr(plan, added) else {}
    small = plan.seed % 2 == 1
    with (
        _without_collector(),
        parts.around(),
        parts.instead(),
        bounds(small=small, few_buckets=plan.copies, others=others),
    ):
        made = Run(plan, parts)
        machine = made.world.machine
        try:
            made.run()
        except (Exception, Broken) as error:
            reason = f"{type(error).__name__}: {error}"
            raise Failed(plan, reason, machine.history) from error
        finally:
            machine.scheduler.close()
    return _outcome(made)


@contextmanager
def _without_collector() -> Iterator[None]:
    """Collect garbage once, at the end: a run is short, and its garbage small."""
    gc.freeze()  # older objects are not traversed
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.collect()
        gc.unfreeze()


def _outcome(made: Run) -> Outcome:
    consumers = [client.consumer for client in made.sockets]
    consumers += [stream.consumer for stream in made.streams]
    for consumer in consumers:
        made.faults.saw("leave was told", consumer.leaves)
        made.faults.saw("leave in doubt", consumer.doubtful)
        made.faults.saw("reset was told", consumer.resets)
        made.faults.saw("row was told", consumer.rows)
        made.faults.saw("event was repeated", consumer.repeats)
    return Outcome(
        fired=made.faults.fired,
        expected=frozenset(made.faults.expected),
        acknowledged=sum(len(producer.acknowledged) for producer in made.producers),
        unknown=sum(len(producer.unknown) for producer in made.producers),
        events=sum(consumer.events for consumer in consumers),
        steps=made.world.scheduler.steps,
        history=made.world.machine.history,
    )

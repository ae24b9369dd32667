"""
One run: chaos, then calm, then the question whether every promise was kept.

`tell` is the whole story of a seed. It returns what was seen or raises `Failed`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Protocol

from tidings.core.websocket.session import State

from tests.simulation import (
    archives,
    checks,
    clocks,
    copies,
    late_frames,
    listening,
    named,
    raised,
    relays,
    several,
    syncs,
    volume,
)
from tests.simulation.consumer import Consumer
from tests.simulation.functions import FEED
from tests.simulation.history import History
from tests.simulation.model import Broken
from tests.simulation.parts import SOUND, Parts, bounds
from tests.simulation.producer import Producer, beacon
from tests.simulation.sockets import SocketClient
from tests.simulation.streams import StreamConsumer
from tests.simulation.weather import LEADS_TO, Faults
from tests.simulation.world import MINUTE_MS, World

_SETTLE_MS = 4 * MINUTE_MS + 1_000  # leases run out, three sweeps pick up what is left
_BURSTS, _BURST_MS = 30, 3_000
_CHAOS_MS = (60_000, 120_000)
_LULL_HOURS = (2, 9, 27, 40)
_REOPEN_MS = 10_000
_WORK_MS = 60_000  # within that a consumer that was put far back has done something
# Then no sweep may be needed any more; two clocks make a hole a minute younger.
_BEACON_MS = 100_000


@dataclass(frozen=True)
class Plan:
    """
    *sweeps* off takes the safety net away; *clear* takes the faults away; *copies* adds
    consumers that copy, see `copies`, and *archive* beside it what they go on from, see
    `archives`; *syncs* adds plans and their corrections, see `syncs`; *listeners* adds listeners,
    see `listening`; *consumers* named ones, see `named`; *relays* feeds that copy this one, see
    `relays`; *frames* such that come late, see `late_frames`; *raised* a longer retention beside
    *copies*, see `raised`.
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
    pages: int
    acknowledged: int
    unknown: int
    events: int
    connections: int
    steps: int
    history: History


class Failed(Exception):
    """A seed that broke a promise, with what led there."""

    def __init__(self, plan: Plan, reason: str, history: History) -> None:
        self.plan, self.reason, self.history = plan, reason, history
        super().__init__(f"seed {plan.seed}: {reason}")


class Checked(Protocol):
    """Somebody who knows whether all that was promised was kept."""

    def check(self) -> None: ...


class Story:
    def __init__(self, plan: Plan, parts: Parts) -> None:
        random = Random(plan.seed)
        self.weather = Faults(random, clear=plan.clear, without=plan.without)
        self.world = world = World(random, self.weather, parts)
        world.sweeps = plan.sweeps
        if plan.seed % 3:
            world.functions.keep_departures()
        self.random, self.clear = random, plan.clear
        self.producers = [Producer(world, f"p{at}") for at in range(random.randint(1, 3))]
        self.sockets = [SocketClient(world, f"w{at}") for at in range(random.randint(1, 3))]
        self.streams = [StreamConsumer(world, f"s{at}") for at in range(random.randint(0, 2))]
        self._chaos_ms = _CHAOS_MS
        self._lull_hours: tuple[int, ...] = _LULL_HOURS
        self._settle_ms = _SETTLE_MS
        self._begin_copies(plan)
        self.syncs = syncs.begin(world) if plan.syncs else []
        self.listeners = listening.begin(world, parts.buffer) if plan.listeners else []
        self._begin_named(plan)
        self._begin_feeds(plan)
        self._begin_relays(plan)
        if plan.clocks:
            self.weather.add({**clocks.RATES, "deploy": 0.0})
            self._settle_ms += clocks.WILD_MS_MAX
        if plan.frames:
            late_frames.begin(self.world)
        if plan.is_plain:
            self.weather.add({}, LEADS_TO)

    def _begin_copies(self, plan: Plan) -> None:
        if plan.copies:
            self._chaos_ms = copies.CHAOS_MS
            if plan.archive:
                archives.begin(self.world)
            self.producers, consumers = copies.begin(self.world)
            self.streams = [*self.streams[:1], *consumers]
        if plan.raised:
            self._lull_hours = raised.LULL_HOURS
            raised.begin(self.world)

    def _begin_named(self, plan: Plan) -> None:
        self.named = named.begin(self.world) if plan.consumers else []
        if self.named:
            self._chaos_ms = named.CHAOS_MS
        if plan.volume:
            self.producers.append(volume.begin(self.world))
            self._lull_hours = volume.LULL_HOURS

    def _begin_feeds(self, plan: Plan) -> None:
        self.several = several.begin(self.world) if plan.feeds else None
        if self.several:
            self.producers.append(self.several.producer)
            self.streams.append(self.several.stream)

    def _begin_relays(self, plan: Plan) -> None:
        self.relays = relays.begin(self.world) if plan.relays else None
        if self.relays:
            self._chaos_ms = relays.CHAOS_MS

    def tell(self) -> None:
        if self.world.sweeps:
            self._storms()
        else:
            self._bursts()
        self.check()

    def _storms(self) -> None:
        self._chaos()
        if self.weather.strikes("lull"):
            hours = self.random.choice(self._lull_hours)
            self.world.lull(hours)
            self._deploys(hours * 60 * MINUTE_MS)
            self.world.scheduler.run(hours * 60 * MINUTE_MS)
            self._chaos()
        self.settle()

    def _bursts(self) -> None:
        """Without the safety net: no wake-up may be lost, so each burst is followed at once."""
        for _ in range(_BURSTS):
            for producer in self.producers:
                delay = self.random.uniform(0, 300)
                self.world.scheduler.after(delay, producer.start)
            self.world.scheduler.run(_BURST_MS)
            checks.check_followers(self.world, FEED)
        self.weather.calm()
        self.world.scheduler.run(_BEACON_MS)

    def settle(self) -> None:
        """Calm, until all that must heal has healed; then one more request, without sweeps."""
        self.weather.calm()
        if self.relays:
            self.relays.calm()
        self.world.scheduler.run(self._settle_ms)
        if self.several:
            self.several.check_others()
            self.several.end()
            self.world.scheduler.run(self._settle_ms)
        if self.relays:
            self.relays.check_promotion()
        self.world.sweeps = False
        self.producers += [beacon(self.world, feed) for feed in self.world.models]
        self.world.scheduler.run(_BEACON_MS)
        if any(stream.session is None for stream in self.streams):
            self.world.scheduler.run(_REOPEN_MS)  # its function has just met its time limit
        while any(each.moves() for each in self.named):
            self.world.scheduler.run(_WORK_MS)

    def _chaos(self) -> None:
        """Everybody at work."""
        lasts_ms = self.random.randint(*self._chaos_ms)
        self._deploys(lasts_ms)
        until_ms = self.world.scheduler.now_ms + lasts_ms
        for producer in self.producers:
            pause_ms = self.random.choice((200, 1_000, 5_000))
            self.world.scheduler.spawn(
                producer.name,
                partial(producer.produce, until_ms, pause_ms),
            )
        self.world.scheduler.run(lasts_ms)

    def _deploys(self, within_ms: int) -> None:
        """Other settings, at some moment."""
        if self.weather.strikes("deploy"):
            delay = self.random.uniform(0, within_ms)
            self.world.scheduler.after(delay, self.world.deployment.deploy)

    def check(self) -> None:
        """Every promise, at rest."""
        for producer in self.producers:
            checks.check_acknowledged(self.world, producer)
        for feed in self.world.models:
            checks.check_followers(self.world, feed)
            checks.check_state(self.world, feed)
            checks.check_departures(self.world, feed)
        archives.check(self.world)
        checked: tuple[Checked, ...] = (*self.syncs, *self.listeners, *self.named)
        for each in checked:
            each.check()
        if self.relays:
            self.relays.check()
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
        """In clear weather nobody is told of a leave to be sure."""
        if self.clear and consumer.doubtful:
            raise Broken(f"{consumer.name} was told of {consumer.doubtful} that left nothing")

    def _check_socket(self, client: SocketClient) -> None:
        connection = self.world.stores.connections.get(client.connection_id)
        if connection is None or client.session is None:
            raise Broken(f"{client.name} is not connected")
        if connection.state is not State.LIVE:
            raise Broken(f"{client.name} is {connection.state} for ever")
        client.session.complete()
        client.consumer.check()


def tell(plan: Plan, parts: Parts = SOUND) -> Outcome:
    """
    Run the seed of *plan*.

    Raises:
        Failed: a promise was broken, or the code under test raised what it must not.
    """
    others = listening.PAGES if plan.listeners else named.BOUNDS if plan.consumers else {}
    others |= relays.BOUNDS if plan.relays else several.BOUNDS if plan.feeds else {}
    small = plan.seed % 2 == 1
    with parts.around(), bounds(small=small, few_buckets=plan.copies, others=others):
        story = Story(plan, parts)
        machine = story.world.machine
        try:
            story.tell()
        except (Exception, Broken) as error:
            reason = f"{type(error).__name__}: {error}"
            raise Failed(plan, reason, machine.history) from error
        finally:
            machine.scheduler.close()
    return _outcome(story)


def _outcome(story: Story) -> Outcome:
    consumers = [client.consumer for client in story.sockets]
    consumers += [stream.consumer for stream in story.streams]
    story.weather.saw("leave was told", sum(consumer.leaves for consumer in consumers))
    story.weather.saw("leave in doubt", sum(consumer.doubtful for consumer in consumers))
    story.weather.saw("reset was told", sum(consumer.resets for consumer in consumers))
    story.weather.saw("row was told", sum(consumer.rows for consumer in consumers))
    story.weather.saw("event was repeated", sum(consumer.repeats for consumer in consumers))
    return Outcome(
        fired=story.weather.fired,
        expected=frozenset(story.weather.expected),
        pages=story.world.model.frontier,
        acknowledged=sum(len(producer.acknowledged) for producer in story.producers),
        unknown=sum(len(producer.unknown) for producer in story.producers),
        events=sum(consumer.events for consumer in consumers),
        connections=sum(client.connections for client in story.sockets),
        steps=story.world.scheduler.steps,
        history=story.world.machine.history,
    )

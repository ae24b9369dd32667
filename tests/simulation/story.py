"""
One run: chaos, then calm, then the question whether every promise was kept.

`tell` is the whole story of a seed. It returns what was seen or raises `Failed`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from random import Random

from tidings.core import limits
from tidings.core.followers import PUSH, STATE
from tidings.core.session import State
from tidings.core.state import Row

from . import archives, copies, listening, named, relays, syncs
from .consumer import Consumer
from .functions import FEED
from .history import History
from .model import Broken, Wanted
from .parts import SOUND, Parts, bounds
from .producer import Producer, beacon
from .sockets import SocketClient
from .streams import StreamConsumer
from .weather import Weather
from .world import MINUTE_MS, World

_ALLOWED_TO_APPEND = ("log.", "claims.")
_SETTLE_MS = 4 * MINUTE_MS + 1_000  # leases run out, three sweeps pick up what is left
_BURSTS, _BURST_MS = 30, 3_000
_CHAOS_MS = (60_000, 120_000)
_BEACON_MS = 30_000  # then no sweep may be needed any more


@dataclass(frozen=True)
class Plan:
    """
    *sweeps* off takes the safety net away; *clear* takes the faults away; *copies* adds
    consumers that copy, see `copies`, and *archive* beside it what they go on from, see
    `archives`; *syncs* adds plans and their corrections, see `syncs`; *listeners* adds listeners,
    see `listening`; *consumers* named ones, see `named`; *relays* feeds that copy this one, see
    `relays`.
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
    without: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Outcome:
    fired: Counter[str]
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


class Story:
    def __init__(self, plan: Plan, parts: Parts) -> None:
        random = Random(plan.seed)
        self.weather = Weather(random, clear=plan.clear, without=plan.without)
        self.world = world = World(random, self.weather, parts)
        world.sweeps = plan.sweeps
        if plan.seed % 3:
            world.functions.keep_departures()
        self.random, self.clear = random, plan.clear
        self.producers = [Producer(world, f"p{at}") for at in range(random.randint(1, 3))]
        self.sockets = [SocketClient(world, f"w{at}") for at in range(random.randint(1, 3))]
        self.streams = [StreamConsumer(world, f"s{at}") for at in range(random.randint(0, 2))]
        self._chaos_ms = _CHAOS_MS
        if plan.copies:
            self._chaos_ms = copies.CHAOS_MS
            if plan.archive:
                archives.begin(world)
            self.producers, consumers = copies.begin(world)
            self.streams = [*self.streams[:1], *consumers]
        self.syncs = syncs.begin(world) if plan.syncs else []
        self.listeners = listening.begin(world, parts.buffer) if plan.listeners else []
        self.named = named.begin(world) if plan.consumers else []
        if self.named:
            self._chaos_ms = named.CHAOS_MS
        self.relays = relays.begin(world) if plan.relays else None
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
            hours = self.random.choice((2, 9, 27, 40))
            self.world.lull(hours)
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
            self._check_followers()
        self.weather.calm()
        self.world.scheduler.run(_BEACON_MS)

    def settle(self) -> None:
        """Calm, until all that must heal has healed; then one more request, without sweeps."""
        self.weather.calm()
        if self.relays:
            self.relays.calm()
        self.world.scheduler.run(_SETTLE_MS)
        if self.relays:
            self.relays.check_promotion()
        self.world.sweeps = False
        self.producers.append(beacon(self.world))
        self.world.scheduler.run(_BEACON_MS)

    def _chaos(self) -> None:
        """Everybody at work."""
        lasts_ms = self.random.randint(*self._chaos_ms)
        until_ms = self.world.scheduler.now_ms + lasts_ms
        for producer in self.producers:
            pause_ms = self.random.choice((200, 1_000, 5_000))
            self.world.scheduler.spawn(
                producer.name,
                partial(producer.produce, until_ms, pause_ms),
            )
        self.world.scheduler.run(lasts_ms)

    def check(self) -> None:
        """Every promise, at rest."""
        self._check_appending()
        self._check_followers()
        self._check_state()
        self._check_departures()
        archives.check(self.world)
        for sync in self.syncs:
            sync.check()
        for listener in self.listeners:
            listener.check()
        for each in self.named:
            each.check()
        if self.relays:
            self.relays.check()
        for client in self.sockets:
            self._check_socket(client)
            self._check_doubt(client.consumer)
        for stream in self.streams:
            if stream.session is None:
                raise Broken(f"{stream.consumer.name} has no stream")
            stream.session.complete()
            stream.consumer.check()
            self._check_doubt(stream.consumer)

    def _check_appending(self) -> None:
        model = self.world.model
        for producer in self.producers:
            for marker, ids in producer.acknowledged.items():
                place = int(ids[0][8:18], 16)
                if place > model.frontier or model.of_marker.get(marker) != place:
                    raise Broken(f"{marker} was acknowledged and is not in the log")
            if producer.name == "beacon" and producer.unknown:
                raise Broken("in calm weather a request was not acknowledged")
        for kind, label in self.world.machine.touched:
            if kind == "ingest" and not label.startswith(_ALLOWED_TO_APPEND):
                raise Broken(f"appending waits for {label}")

    def _check_followers(self) -> None:
        checkpoints = self.world.stores.followers.checkpoints(FEED)
        for name in (STATE, PUSH):
            if checkpoints.get(name, 0) != self.world.model.frontier:
                frontier = self.world.model.frontier
                raise Broken(f"{name} stands at {checkpoints.get(name)}, frontier is {frontier}")
        self._check_counts(len(self.world.model.ops))

    def _check_counts(self, operations: int) -> None:
        """What followers count is exact, whatever they saw twice; nothing came unreceived."""
        for lease in self.world.stores.followers.standings(FEED):
            if lease.operations != operations:
                raise Broken(f"{lease.name} counts {lease.operations} of {operations}")
        received = self.world.stores.log.taken(FEED).operations
        if received < operations:
            raise Broken(f"{received} were received, and {operations} are in the log")

    def _check_state(self) -> None:
        latest = self.world.model.latest(Wanted())
        rows = {tuple(row.key.split("/", 1)): row for row in self._rows()}
        for key, op in latest.items():
            found = rows.pop(key, None)
            if found is None:
                if op.event != "delete":
                    raise Broken(f"the state lost {op}")
            elif (found.page, found.slot) != op.at:
                raise Broken(f"the state of {key} is {found}, the log's last is {op}")
        if rows:
            raise Broken(f"the state has {sorted(rows)}, which the log never had")

    def _check_departures(self) -> None:
        """Whatever is known is true; and where no one forgot the setting, all is known."""
        found = self.world.stores.departures.read(FEED, 0, self.world.model.frontier)
        expected = self.world.model.lefts()
        for departures in found:
            if departures.left != expected.pop(departures.page, None):
                raise Broken(f"page {departures.page} did not leave {departures.left}")
        doubts = self.weather.fired["stale_profile"] or self.weather.fired["lull"]
        if self.world.functions.leave and expected and not doubts:
            raise Broken(f"what the pages {sorted(expected)} left is unknown")

    def _rows(self) -> Iterator[Row]:
        for bucket in range(limits.BUCKETS):
            after: str | None = None
            while rows := self.world.stores.state.read(FEED, bucket, after):
                yield from rows
                after = rows[-1].key

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
    others |= relays.BOUNDS if plan.relays else {}
    small = plan.seed % 2 == 1
    with parts.around(), bounds(small=small, few_buckets=plan.copies, others=others):
        story = Story(plan, parts)
        machine = story.world.machine
        try:
            story.tell()
        except Exception as error:
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
        pages=story.world.model.frontier,
        acknowledged=sum(len(producer.acknowledged) for producer in story.producers),
        unknown=sum(len(producer.unknown) for producer in story.producers),
        events=sum(consumer.events for consumer in consumers),
        connections=sum(client.connections for client in story.sockets),
        steps=story.world.scheduler.steps,
        history=story.world.machine.history,
    )

"""The deployed functions: each process has the services that `tidings.assembly` builds.

Its stores and senders are reached through `Process.through`, so every call is an effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, cast

from tests.fakes import MemoryArchive, MemoryKeys, MemoryProfiles
from tests.simulation.parts import Parts
from tests.simulation.process import Process
from tests.simulation.settings import Deployment, Settings
from tests.simulation.stores import Stores
from tidings.assembly.feed import Assembly
from tidings.core import limits, tracing
from tidings.core.changeagent.config import Purges
from tidings.core.consumers.service import ConsumerRetention
from tidings.core.effects import Clock, Count, Runtime, discard_trace
from tidings.core.errors import Unavailable
from tidings.core.followers.follower import ARCHIVE, STATE, FollowerConfig, Handler, TracingHandler
from tidings.core.followers.leases import Observation
from tidings.core.log.reader import Filler, Reader
from tidings.core.maintenance.retention import RetentionService
from tidings.core.maintenance.sweep import Step, Sweeper
from tidings.core.model.feeds import Retention, lane_of, one_lane
from tidings.core.replication.copies import CopiedLosses
from tidings.core.settings.profiles import MaxAges, Profile
from tidings.core.state.projector import SumKeeper
from tidings.core.websocket.connections import Connection
from tidings.core.websocket.push import Pusher
from tidings.core.websocket.send import Exchange, Sockets, Steps, Turn, Window, perform

FEED = "main"
FEEDS = frozenset({FEED})
_PORTS = {  # the port by which a store is reached, if that is not its name
    "feed_store": "feed_records",
    "replay_sockets": "sockets",
}
_SETTINGS = frozenset(
    {"documents", "feed_store", "key_usage", "keys", "profiles", "sums"}
)  # never fail here


@dataclass
class Functions:
    """*waker* implements `Waker`; one world has *keys*; *known* is what a warm push function
    remembers. *profiles* are those that processes read, *stored* the stored ones, *before* those
    from before removed parents were kept. *lanes_before* is the last number.
    """

    parts: Parts
    stores: Stores
    waker: object
    deployment: Deployment
    feeds: frozenset[str] = FEEDS
    archive: MemoryArchive | None = None
    profiles: MemoryProfiles = field(default_factory=MemoryProfiles)
    before: MemoryProfiles = field(default_factory=MemoryProfiles)
    lanes_before: int = 1
    known: dict[str, Any] = field(default_factory=dict)
    keys: MemoryKeys | None = None
    seen: dict[str, Any] = field(default_factory=dict)  # the memory of a warm sweep

    def __post_init__(self) -> None:
        self.stored = self.profiles
        self.stored.records.mark = self.stores.due_feeds.mark

    def leaves(self, feed: str) -> bool:
        return self.profiles.profile(feed).leave

    def keep_removed_parents(self) -> None:
        """Keep removed parents, as the feed's owner would set it."""
        assert self.profiles.save(FEED, Profile(leave=True))

    def services(self, process: Process) -> Services:
        """Return what is built for *process*, once."""
        if process.services is None:
            process.services = Services(self, process)
        found: Services = process.services
        return found

    def undisturbed(self, clock: Clock) -> Assembly:
        """Services on the stores themselves."""
        stores: Any = Reached(directly, self, self.stores)
        settings: Any = DrawnSettings(self)
        return Assembly(
            stores=stores,
            runtime=idle(clock, lambda *_: None),
            settings=settings,
            new_key=no_randomness,
        )

    def follow(
        self,
        process: Process,
        name: str,
        feeds: Sequence[str] = (FEED,),
        observation: Observation | None = None,
    ) -> None:
        """Run as the function does; failed records are retried with the others."""
        services = self.services(process)
        follower = services.archive_follower if name == ARCHIVE else services.follower
        handler = services.handler(name)
        served = follower.run_each(feeds, handler, observation)
        if isinstance(handler.handler, Pusher):
            self.known[name] = handler.handler._known
        served.raise_mistakes()
        if served.failed:
            raise Unavailable(f"{name} of {', '.join(served.failed)}: {served.failed}")

    def connect(self, process: Process, connection_id: str) -> None:
        connections = process.through("connections", self.stores.connections)
        connections.open(Connection(connection_id, process.clock()))

    def disconnect(self, process: Process, connection_id: str) -> None:
        process.through("connections", self.stores.connections).remove(connection_id)

    def receive(self, process: Process, connection_id: str, text: str) -> None:
        services = self.services(process)
        services.reader.ends.clear()  # as a cold one, which has not seen the end of the log
        services.receiver.receive(connection_id, text)

    def replay(self, process: Process, connection_id: str) -> None:
        self.services(process).replayer.run(connection_id)

    def retention_service(self, process: Process, age: Retention, cap_ms: int) -> RetentionService:
        """*cap_ms* is how long it waits for named consumers."""
        services = self.services(process)
        holds = ConsumerRetention(services.stores.consumers, Retention(cap_ms, 0))
        return replace(services.retention_service, retention=age, holds=holds)

    def sweep(self, process: Process) -> None:
        self.services(process).sweeper.run()


class Services(Assembly):
    """What `tidings.assembly` builds for *process*.

    Differences: a process may remember the profiles and the number of lanes as they were seconds
    ago, and a push function the memory of its predecessor. The state is counted without faults,
    sweeps wake no index and read no metrics of consumers, retention waits for the first lane
    alone, and the filler and push have readers of their own.
    """

    def __init__(self, functions: Functions, process: Process) -> None:
        stores = Reached(process.through, functions, functions.stores)
        settings: Any = DrawnSettings(functions)
        super().__init__(
            stores=cast(Any, stores),
            runtime=with_lifetimes(process.runtime, settings),
            settings=settings,
            new_key=no_randomness,
        )
        self._functions, self._process = functions, process
        self.follower_config = FollowerConfig(
            limits.FOLLOW_OPERATIONS_MAX, limits.FOLLOW_OPERATIONS_FIRST
        )

    def handler(self, name: str) -> TracingHandler:
        handler: Handler
        if name == STATE:
            handler = self.projector()
        elif name == ARCHIVE:
            handler = self.archiver()
        else:
            lane = lane_of(name)
            assert lane is not None, f"{name} has no handler here"
            handler = self.pusher(lane)
        assert isinstance(handler, TracingHandler)
        return handler

    @cached_property
    def profiles(self) -> Any:
        """The profiles in a warm process: perhaps from before removed parents were kept."""
        functions, process = self._functions, self._process
        follows = process.kind.startswith("follow-")
        stale = follows and process.machine.faults.strikes("stale_profile")
        return functions.before if stale else functions.profiles

    @cached_property
    def losses(self) -> CopiedLosses:
        """By the profiles as they are stored."""
        return CopiedLosses(self._functions.stored, self.copies, lambda: self.stores.relays)

    @property
    def prefetch(self) -> Any:
        """Read nothing ahead: the simulation has no threads."""
        return lambda states: states

    @property
    def exchange(self) -> Exchange:
        return interleaved(self._process, self.stores.sockets)

    @cached_property
    def filler(self) -> Filler:
        return replace(super().filler, reader=self._own_reader())

    def _own_reader(self) -> Reader:
        """Return a reader that has not seen the end of the log."""
        return replace(self.reader, ends={})

    @property
    def push_lanes(self) -> Any:
        return KnownLanes(self._functions, self._process)

    def projector(self) -> Handler:
        stored = self._functions.stores
        return counting(super().projector(), SumKeeper(stored.sums, stored.state))

    def _pusher(self, lane: int) -> Pusher:
        warm = self._process.machine.random.random() < 0.8
        pusher = super()._pusher(lane)
        known = self._functions.known.get(pusher.name, {}) if warm else {}
        pusher._known, pusher.reader = _remembered(known), self._own_reader()
        return pusher

    @cached_property
    def retention_service(self) -> RetentionService:
        built = super().retention_service
        rules = Purges(self.documents), MaxAges(self._functions.stored)
        return replace(built, rules=rules, followers=replace(built.followers, lanes=one_lane))

    @cached_property
    def sweeper(self) -> Sweeper:
        return replace(super().sweeper, _seen=self._functions.seen)

    def sweep_steps(self) -> dict[str, Step]:
        steps = super().sweep_steps()
        del steps["the consumers"], steps["the index"]
        return steps


class KnownLanes:
    """A process knows how many there are, or how many there were some seconds ago."""

    def __init__(self, functions: Functions, process: Process) -> None:
        self._functions, self._process = functions, process

    def __call__(self, feed: str) -> int:
        stale = self._process.machine.faults.strikes("stale_lanes")
        return self._functions.lanes_before if stale and feed == FEED else self.fresh(feed)

    def fresh(self, feed: str) -> int:
        return self._functions.profiles.profile(feed).push_lanes


class Reached:
    """Implements `tidings.assembly.stores.Stores` by the attributes of *owners*, through
    *through*."""

    replay_room = without_retries = coordinator = outbox = tags = None

    def __init__(self, through: Callable[[str, object], Any], *owners: object) -> None:
        self._through, self._owners = through, owners

    def __getattr__(self, name: str) -> Any:
        port = _PORTS.get(name, name)
        store = next(getattr(each, port) for each in self._owners if hasattr(each, port))
        found = store if name in _SETTINGS or store is None else self._through(port, store)
        self.__dict__[name] = found
        return found


def directly(port: str, store: object) -> object:
    """Return *store*. Its calls take no time and do not fail."""
    return store


def idle(clock: Clock, count: Count) -> Runtime:
    """Return the runtime of services that do not wait, make ids or write pages."""
    nothing: Any = None
    return Runtime(
        clock=clock,
        steady=clock,
        expiring=clock,
        sleep=nothing,
        new_id=nothing,
        count=count,
        spread=nothing,
        trace=discard_trace,
        await_writer=nothing,
        page_ms=0,
        tombstone_ms=0,
    )


def with_lifetimes(runtime: Runtime, settings: Any) -> Runtime:
    """Return *runtime* with the lifetimes of *settings*."""
    return replace(runtime, page_ms=settings.page_ms, tombstone_ms=settings.tombstone_ms)


def counting(projector: Handler, sums: SumKeeper) -> Handler:
    """Return the traced *projector* with *sums*."""
    traced: Any = projector
    return cast(Handler, replace(traced, handler=replace(traced.handler, sums=sums)))


class DrawnSettings:
    """Implements `tidings.http.settings.Shared`; the deployed values are drawn at each read."""

    open, hooks_private = True, False
    cors_origins: tuple[str, ...] = ()
    url_prefix = ""
    sources: Mapping[str, Any] = {}
    issuer = None
    traces = tracing.OFF
    late_ms = 0

    def __init__(self, functions: Functions) -> None:
        self._functions = functions

    @cached_property
    def _deployed(self) -> Settings:
        return self._functions.deployment.begins_with()

    @property
    def feeds(self) -> frozenset[str]:
        return self._functions.feeds

    @property
    def retention(self) -> Retention:
        return self._deployed.retention

    @property
    def consumer_cap(self) -> Retention:
        return Retention(self._deployed.cap_ms, 0)

    @property
    def page_ms(self) -> int:
        return self._deployed.page_ms

    @property
    def tombstone_ms(self) -> int:
        return self._deployed.tombstone_ms


def no_randomness(size: int) -> bytes:
    return bytes(size)


def _remembered(known: dict[str, Any]) -> dict[str, Any]:
    """Return a process's memory of each feed: a copy, because others may begin with it too."""
    copies = {feed: copy(each) for feed, each in known.items()}
    for each in copies.values():
        each.misplaced, each.idle = list(each.misplaced), dict(each.idle)
    return copies


def interleaved(process: Process, sockets: Sockets) -> Exchange:
    """Implements `Exchange`: a slow client delays no other, messages of many are interleaved."""

    def exchange(deliveries: Iterable[Steps]) -> None:
        items = list(deliveries)
        turn = Turn(process.machine.random.sample(items, len(items)), Window())
        while not turn.done:
            tasks = list(iter(partial(turn.next, process.clock()), None))
            for task in tasks:
                turn.record_outcome(task, perform(sockets, task.request), process.clock())
            due_ms = None if tasks else turn.due_ms(process.clock())
            if due_ms is not None:
                process.sleep(due_ms - process.clock())
        if turn.errors:
            raise turn.errors[0]

    return exchange

"""
The deployed functions, each built from the core for one process, as `tidings.assembly` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from tests.fakes import MemoryArchive, MemoryKeys, MemoryKeyUsage, MemoryProfiles
from tests.simulation.parts import Parts
from tests.simulation.process import Process, shuffled
from tests.simulation.settings import Deployment, Settings
from tests.simulation.stores import Stores
from tidings.core import limits
from tidings.core.archive.reader import ArchiveReader
from tidings.core.archive.writer import HABITS, Gatherer
from tidings.core.auth.guard import FailedAttemptLimiter, Guard
from tidings.core.auth.keys import KeyRing
from tidings.core.auth.passwords import Verifier
from tidings.core.auth.quotas import StreamQuota
from tidings.core.catchup.catchup import CatchUp
from tidings.core.catchup.sse import Streamer
from tidings.core.consumers.service import ConsumerRepository, ConsumerRetention, Consumers
from tidings.core.errors import Unavailable
from tidings.core.followers.follower import ARCHIVE, STATE, Follower, Habits, Handler
from tidings.core.followers.leases import Observation
from tidings.core.ingest.ingest import Ingester
from tidings.core.ingest.write_bounds import Bounds
from tidings.core.log.append import Appender
from tidings.core.log.reader import Filler, Reader
from tidings.core.maintenance.retention import Renewer, Trimmer
from tidings.core.maintenance.sweep import Sweeper
from tidings.core.model.feeds import Retention, lane_of
from tidings.core.settings.profiles import Profile, ProfileStore
from tidings.core.state.projector import SumKeeper
from tidings.core.state.removed_parents import RemovedParentsReader
from tidings.core.sync.apply import Corrector
from tidings.core.triton.http import ChangeFeeds
from tidings.core.websocket.connections import Connection, Lanes
from tidings.core.websocket.push import Pusher
from tidings.core.websocket.receive import Receiver, Registrar
from tidings.core.websocket.replay import Replayer
from tidings.core.websocket.send import Delivery, Exchange, Sockets, Steps, Turn, Window, perform

FEED = "main"
FEEDS = frozenset({FEED})
VERIFIER = Verifier(b"simulation")


@dataclass
class Functions:
    """
    *bells* implements `Waker`; one world has *keys*; *known* is what a warm push function
    remembers, *before* are the profiles as they were before departures were kept, *lanes_before* is
    the last number.
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

    def guard(self, process: Process) -> Guard:
        failures = FailedAttemptLimiter(process.clock, 50)
        bearers = (KeyRing(self.keys, process.clock, failures),) if self.keys else ()
        return Guard(
            profiles=self.profiles,
            verifier=VERIFIER,
            open=True,
            failures=failures,
            bearers=bearers,
        )

    def leaves(self, feed: str) -> bool:
        return self.profiles.profile(feed).leave

    def keep_departures(self) -> None:
        """As the feed's owner sets it."""
        assert self.profiles.save(FEED, Profile(leave=True))

    def ingester(self, process: Process) -> Ingester:
        log, claims = self._port(process, "log"), self._port(process, "claims")
        appender: Appender = self.parts.appender(
            log=log,
            claims=claims,
            clock=process.clock,
            new_id=process.new_id,
            page_ms=self.settings(process).page_ms,
        )
        return Ingester(
            appender=appender,
            runtime=process.runtime,
            feeds=self.feeds,
            tallies=self._port(process, "tallies"),
            guard=self.guard(process),
            required=Bounds(self._port(process, "state"), self._reader(process), process.sleep),
        )

    def follow(
        self,
        process: Process,
        name: str,
        feeds: Sequence[str] = (FEED,),
        observation: Observation | None = None,
    ) -> None:
        """As the function does; whatever failed comes again with the others."""
        follower, handler = self._follower(process, name), self._handler(process, name)
        served = follower.run_each(feeds, handler, observation)
        if isinstance(handler, Pusher):
            self.known[name] = handler._known
        served.raise_mistakes()
        if served.failed:
            raise Unavailable(f"{name} of {', '.join(served.failed)}: {served.failed}")

    def _follower(self, process: Process, name: str) -> Follower:
        log = self._port(process, "log")
        follower = Follower(
            store=self._port(process, "followers"),
            reader=self._reader(process),
            filler=Filler(self._reader(process), self.settings(process).page_ms),
            waker=self._waker(process),
            runtime=process.runtime,
            habits=Habits(limits.FOLLOW_OPERATIONS_MAX, limits.FOLLOW_OPERATIONS_FIRST),
        )
        if name == ARCHIVE:
            gatherer = Gatherer(
                log=log,
                checkpoints=self._port(process, "followers"),
                clock=process.clock,
                count=process.count,
            )
            follower = replace(follower, reader=gatherer, habits=HABITS)
        return follower

    def settings(self, process: Process) -> Settings:
        """Those that it began with."""
        settings: Settings = process.settings or self.deployment.begins_with()
        process.settings = settings
        return settings

    def corrector(self, process: Process) -> Corrector:
        return self.parts.corrector(
            states=self._port(process, "state"),
            filler=Filler(self._reader(process), self.settings(process).page_ms),
            sleep=process.sleep,
            new_id=process.new_id,
            feeds=self.feeds,
            tombstones=self._port(process, "tombstones"),
        )

    def connect(self, process: Process, connection_id: str) -> None:
        self._port(process, "connections").open(Connection(connection_id, process.clock()))

    def disconnect(self, process: Process, connection_id: str) -> None:
        self._port(process, "connections").remove(connection_id)

    def receive(self, process: Process, connection_id: str, text: str) -> None:
        Receiver(
            connections=self._port(process, "connections"),
            lanes=self._lanes(process),
            sockets=self._port(process, "sockets"),
            waker=self._waker(process),
            catch_up=self.catch_up(process),
            feeds=self.feeds,
            guard=self.guard(process),
            registrar=self._registrar(process),
        ).receive(connection_id, text)

    def changefeeds(self, process: Process) -> ChangeFeeds:
        registry = self._port(process, "registry")
        state = self._port(process, "state")
        return ChangeFeeds(registry, state, self.guard(process), self.feeds)

    def _registrar(self, process: Process) -> Registrar:
        return self.parts.registrar(
            connections=self._port(process, "connections"),
            registry=self._port(process, "registry"),
            lanes=self._lanes(process),
            sockets=self._port(process, "sockets"),
            checkpoints=self._port(process, "followers"),
            profiles=self.profiles,
            guard=self.guard(process),
            feeds=self.feeds,
            runtime=process.runtime,
        )

    def replay(self, process: Process, connection_id: str) -> None:
        Replayer(
            lanes=self._lanes(process),
            delivery=self._delivery(process),
            waker=self._waker(process),
            catch_up=self.catch_up(process),
            runtime=process.runtime,
            profiles=self.profiles,
        ).run(connection_id)

    def consumers(self, process: Process) -> Consumers:
        repository = ConsumerRepository(self._port(process, "consumers"))
        return self.parts.consumers(
            repository, self.parts.view(self._reader(process)), process.clock
        )

    def trimmer(self, process: Process, age: Retention, cap_ms: int) -> Trimmer:
        """*cap_ms* is how long it waits for named consumers."""
        log = self._port(process, "log")
        trimmer: Trimmer = self.parts.trimmer(
            reader=self._reader(process),
            retention=age,
            renewer=self._renewer(process, log),
        )
        trimmer = replace(trimmer, archives=self.archive is not None)
        consumers = self._port(process, "consumers")
        return replace(trimmer, holds=ConsumerRetention(consumers, Retention(cap_ms, 0)))

    def _renewer(self, process: Process, log: Any) -> Renewer:
        page_ms = self.settings(process).page_ms
        return Renewer(
            store=log,
            runtime=process.runtime,
            page_ms=page_ms,
        )

    def sweep(self, process: Process) -> None:
        followers, settings = self._port(process, "followers"), self.settings(process)
        trimmer = self.trimmer(process, settings.retention, settings.cap_ms)
        Sweeper(
            reader=self._reader(process),
            checkpoints=followers,
            trimmer=trimmer,
            connections=self._port(process, "connections"),
            watches=self._port(process, "watches"),
            lanes=self._lanes(process),
            delivery=self._delivery(process),
            waker=self._waker(process),
            tallies=self._port(process, "tallies"),
            spread=shuffled(process),
            profiles=self.profiles,
        ).run(self.feeds)

    def streamer(self, process: Process) -> Streamer:
        return Streamer(
            self.catch_up(process),
            self.feeds,
            self.guard(process),
            StreamQuota(
                store=MemoryKeyUsage(),
                runtime=process.runtime,
            ),
        )

    def catch_up(self, process: Process) -> CatchUp:
        return self.parts.catch_up(
            reader=self._reader(process),
            states=self._port(process, "state"),
            tombstones=self._port(process, "tombstones"),
            departures=self._departures(process),
            archive=self._archive(process),
        )

    def _archive(self, process: Process) -> ArchiveReader | None:
        if self.archive is None:
            return None
        return ArchiveReader(process.through("archive", self.archive), process.count)

    def _handler(self, process: Process, name: str) -> Handler:
        if name == STATE:
            return self._projector(process)
        if name == ARCHIVE:
            return self.parts.archiver(process.through("archive", self.archive), process.count)
        assert lane_of(name) is not None, f"{name} has no handler here"
        warm = process.machine.random.random() < 0.8
        return self.parts.pusher(
            lanes=self._lanes(process),
            watches=self._port(process, "watches"),
            delivery=self._delivery(process),
            reader=self._reader(process),
            spread=shuffled(process),
            departures=self._departures(process),
            profiles=self._recent(process),
            followers=self._port(process, "followers"),
            _known=_remembered(self.known.get(name, {})) if warm else {},
            lane=lane_of(name) or 0,
        )

    def _projector(self, process: Process) -> Handler:
        return self.parts.projector(
            states=self._port(process, "state"),
            removed_parents=self._port(process, "departures"),
            profiles=self._recent(process),
            waker=self._waker(process),
            clock=process.clock,
            tombstones=self._port(process, "tombstones"),
            sums=SumKeeper(self.stores.sums, self.stores.state),
            tombstone_ms=self.settings(process).tombstone_ms,
            page_ms=self.settings(process).page_ms,
        )

    def _recent(self, process: Process) -> ProfileStore:
        """As a warm process remembers them: perhaps from before departures were kept."""
        stale = process.machine.faults.strikes("stale_profile")
        return self.before if stale else self.profiles

    def _departures(self, process: Process) -> RemovedParentsReader:
        departures = self._port(process, "departures")
        return self.parts.departures(departures, self._port(process, "followers"))

    def _reader(self, process: Process) -> Reader:
        log = self._port(process, "log")
        followers = self._port(process, "followers")
        return self.parts.reader(
            log=log, checkpoints=followers, clock=process.clock, count=process.count
        )

    def _port(self, process: Process, name: str) -> Any:
        """A store as *process* reaches it."""
        return process.through(name, getattr(self.stores, name))

    def _lanes(self, process: Process) -> Lanes:
        """A process knows how many there are, or how many there were some seconds ago."""

        def now(feed: str) -> int:
            return self.profiles.profile(feed).push_lanes

        def count(feed: str) -> int:
            stale = process.machine.faults.strikes("stale_lanes")
            return self.lanes_before if stale and feed == FEED else now(feed)

        return Lanes(self._port(process, "inbox"), self._waker(process), process.new_id, count, now)

    def _waker(self, process: Process) -> Any:
        return process.through("bells", self.waker)

    def _delivery(self, process: Process) -> Delivery:
        sockets = self._port(process, "sockets")
        connections = self._port(process, "connections")
        exchange = interleaved(process, sockets)
        return Delivery(
            sockets=sockets,
            connections=connections,
            sleep=process.sleep,
            count=process.count,
            exchange=exchange,
        )


def _remembered(known: dict[str, Any]) -> dict[str, Any]:
    """What a process remembers of each feed: a copy, because others may begin with it too."""
    copies = {feed: copy(each) for feed, each in known.items()}
    for each in copies.values():
        each.strangers, each.idle = list(each.strangers), dict(each.idle)
    return copies


def interleaved(process: Process, sockets: Sockets) -> Exchange:
    """Implements `Exchange`: who waits holds up nobody, messages of many go out in turns."""

    def exchange(deliveries: Iterable[Steps]) -> None:
        items = list(deliveries)
        turn = Turn(process.machine.random.sample(items, len(items)), Window())
        while not turn.done:
            tasks = list(iter(partial(turn.next, process.clock()), None))
            for task in tasks:
                turn.answered(task, perform(sockets, task.request), process.clock())
            due_ms = None if tasks else turn.due_ms(process.clock())
            if due_ms is not None:
                process.sleep(due_ms - process.clock())
        if turn.errors:
            raise turn.errors[0]

    return exchange

"""Deployments with a feed that copies the world's feed: their stores, functions and network.

The pages written to their logs must be the world's; a leader's lease is taken only if it is free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from tests.fakes import (
    MemoryCoordinator,
    MemoryFollowers,
    MemoryLog,
    MemoryProfiles,
    MemoryRelays,
    MemoryRemovedParents,
    MemoryState,
    MemorySums,
    MemoryTombstones,
    MemoryUpstream,
    MemoryWaker,
)
from tests.simulation import checks
from tests.simulation.functions import (
    FEED,
    FEEDS,
    Reached,
    counting,
    directly,
    idle,
    no_randomness,
    with_lifetimes,
)
from tests.simulation.model import Broken, Wanted
from tests.simulation.process import Process
from tests.simulation.settings import TOMBSTONE_MS
from tests.simulation.stores import NoFeedStore, rows_of
from tests.simulation.world import World
from tidings.assembly.feed import Assembly
from tidings.core import limits
from tidings.core.errors import Unavailable
from tidings.core.model.pages import Page
from tidings.core.replication.election import LeaderLease
from tidings.core.replication.relay import RELAY
from tidings.core.replication.source import Source
from tidings.core.state.projector import SumKeeper
from tidings.core.state.rows import Difference, Kind
from tidings.core.state.sums import PageSums, SumReader

if TYPE_CHECKING:
    from tidings.core.effects import Runtime
    from tidings.core.followers.follower import Handler
    from tidings.core.followers.leases import Observation
    from tidings.core.model.cursors import Place
    from tidings.core.replication.serve import ReplicationReader
    from tidings.core.replication.source import Selection
    from tidings.core.replication.wire import ReplicationBatch, Rows, Upstream
    from tidings.core.state.rows import Row

WAKE_EVERY_MS: Final = 2_000
_SOON = 6  # buckets that are counted within a minute
_RUN_TIMEOUT_S = 20  # of a relay with runs of twelve seconds
_FOLLOW_EVERY_MS = 1_500


class CopiedLog(MemoryLog):
    """The log of a chained feed: whatever is written must be the master's."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__()
        self._world, self._name = world, name

    def put(self, feed: str, page: Page) -> str:
        raise Broken(f"{self._name}: page {page.number} was written by another writer")

    def enter(self, feed: str, pages: Sequence[Page], *, head: int, operations: int) -> bool:
        entered = super().enter(feed, pages, head=head, operations=operations)
        if entered:
            for page in pages:
                self._check(page)
            self._world.faults.saw("pages were copied", len(pages))
        return entered

    def _check(self, page: Page) -> None:
        model = self._world.model
        if page.number > model.frontier:
            raise Broken(f"{self._name}: page {page.number} is after the frontier")
        if model.page(page.number) != (tuple(page.lines), page.seconds):
            raise Broken(f"{self._name}: page {page.number} is not the master's")


class CheckedLeases(MemoryCoordinator):
    """Leases are taken only if they are free, and only once."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self.leaders: dict[tuple[int, int], str] = {}

    def take(self, before: LeaderLease, after: LeaderLease) -> bool:
        taken = super().take(before, after)
        now = self._world.scheduler.now_ms
        if taken and after.address:
            leader = self.leaders.setdefault((after.number, after.term), after.address)
            if leader != after.address:
                raise Broken(f"{after.address} and {leader} lead in term {after.term}")
            surely = now + self._world.machine.clocks.bound_ms  # its own clock may be fast
            if before.is_held(surely) and before.address != after.address:
                raise Broken(f"{after.address} took the lease of {before.address} too early")
            if before.address and before.address != after.address:
                self._world.faults.saw("a leader was followed by another")
        return taken


@dataclass
class Network:
    """Which addresses do not answer, and until when."""

    world: World
    readers: dict[str, tuple[ReplicationReader, str]]
    down_until_ms: dict[str, int]
    sums: dict[str, SumReader]

    def reach(self, address: str, kind: str) -> None:
        now = self.world.scheduler.now_ms
        if self.world.faults.strikes(kind):
            self.down_until_ms[address] = now + self.world.random.randint(500, 9_000)
        if self.down_until_ms.get(address, 0) > now:
            raise Unavailable(f"{address} did not answer")


class Line:
    """Implements `Upstream`, for one process: requests take time, and may be lost."""

    def __init__(self, network: Network, process: Process) -> None:
        self._network, self._process = network, process
        self._upstream = MemoryUpstream(network.readers, self._wait, network.sums)

    def pages(
        self, url: str, after: Place, selection: Selection, *, size: int, block_s: int
    ) -> ReplicationBatch:
        self._network.reach(url, "outage")
        return self._upstream.pages(url, after, selection, size=size, block_s=block_s)

    def rows(self, url: str, bucket: int, after: str | None, selection: Selection) -> Rows:
        self._network.reach(url, "outage")
        return self._upstream.rows(url, bucket, after, selection)

    def sums(self, url: str) -> PageSums:
        self._network.reach(url, "outage")
        return self._upstream.sums(url)

    def _wait(self, seconds: int) -> None:
        self._process.sleep(self._process.machine.random.uniform(0, seconds * 1_000))


class UnreliableCoordinator:
    """Implements `Coordinator`, for one process: it may not answer."""

    def __init__(self, network: Network, target: CheckedLeases) -> None:
        self._network, self._target = network, target

    def __getattr__(self, name: str) -> Any:
        self._network.reach("coordinator", "coordinator_outage")
        return getattr(self._target, name)


class Copying(Assembly):
    """What `tidings.assembly` builds for *deployment*, or for one *process* of it.

    The state is counted without faults.
    """

    def __init__(
        self, deployment: Deployment, runtime: Runtime, stores: Any, process: Process | None = None
    ) -> None:
        settings: Any = SimpleNamespace(
            feeds=FEEDS,
            sources={FEED: deployment.source},
            page_ms=limits.TTL_SLACK_MS,
            tombstone_ms=TOMBSTONE_MS,
            late_ms=0,
        )
        super().__init__(
            stores=stores,
            runtime=with_lifetimes(runtime, settings),
            settings=settings,
            new_key=no_randomness,
        )
        self.waker = stores.waker = MemoryWaker()
        self._deployment, self._process = deployment, process
        if process is not None:
            coordinator = UnreliableCoordinator(deployment.network, deployment.leases)
            stores.coordinator = process.through("coordinator", coordinator)

    def upstream(self, feed: str) -> Upstream:
        assert self._process is not None
        line: Upstream = self._process.through(
            "upstream", Line(self._deployment.network, self._process)
        )
        return line

    def projector(self) -> Handler:
        copy = self._deployment
        return counting(super().projector(), SumKeeper(copy.sums, copy.state))


class Deployment:
    """One chained feed: its stores, its functions, and their wakers."""

    def __init__(
        self, world: World, name: str, source: Source, network: Network, leases: CheckedLeases
    ) -> None:
        self.world, self.name, self.source = world, name, source
        self.network, self.leases = network, leases
        self.log = CopiedLog(world, name)
        self.relays = MemoryRelays(self.log)
        self.state, self.followers = MemoryState(), MemoryFollowers()
        self.removed_parents, self.profiles = MemoryRemovedParents(), MemoryProfiles()
        self.tombstones, self.feed_records = MemoryTombstones(), NoFeedStore()
        self.sums = MemorySums()
        self.archive = None
        self.off = False
        self.processes: list[Process] = []
        undisturbed = Copying(self, idle(self._now, self._count), Reached(directly, self))
        self.catch_up, self.control = undisturbed.catch_up, undisturbed.relay_control
        network.readers[self.address] = undisturbed.replication_reader, FEED
        network.sums[self.address] = undisturbed.sum_reader
        world.scheduler.spawn(f"{name}-relay", lambda: self._every(WAKE_EVERY_MS, self._relay))
        world.scheduler.spawn(f"{name}-state", lambda: self._every(_FOLLOW_EVERY_MS, self._follow))

    @property
    def address(self) -> str:
        return self.source.address or f"https://{self.name}.example/feeds/main"

    def _now(self) -> int:
        return self.world.scheduler.now_ms

    def _every(self, ms: int, run: Any) -> None:
        while True:
            self.world.scheduler.sleep(self.world.random.uniform(ms / 2, ms))
            run()

    def _relay(self) -> None:
        if self.off:
            return
        process = self.world.machine.start("relay", _RUN_TIMEOUT_S, self._relaying)
        self.processes = [*(each for each in self.processes if _lives(each)), process]

    def die(self) -> None:
        """Stop all its processes and make it unreachable."""
        self.off = True
        for process in self.processes:
            if process.task is not None:
                process.task.kill()

    def _services(self, process: Process) -> Copying:
        """Return the services of *process*."""
        runtime = replace(process.runtime, count=self._count)
        return Copying(self, runtime, Reached(process.through, self), process)

    def _relaying(self, process: Process) -> None:
        services = self._services(process)
        services.relayer(FEED).run(FEED)
        if (FEED, RELAY) in services.waker.woken:
            self.world.scheduler.after(self.world.random.uniform(5, 300), self._relay)

    def _count(self, metric: str, value: int) -> None:
        if metric == "RelayBucketsMended":
            self.world.faults.saw("a bucket was mended")
        if metric == "RelayFellOff":
            self.world.faults.saw("a relay fell off")

    def _follow(self, observation: Observation | None = None) -> None:
        if self.off:
            return

        def body(process: Process) -> None:
            self._following(process, observation)

        self.world.machine.start("follow-copy", limits.FOLLOW_TIMEOUT_S, body)

    def _following(self, process: Process, observation: Observation | None) -> None:
        services = self._services(process)
        services.follower.run(FEED, services.projector(), observation)
        for _, _, seen in services.waker.observations:
            delay_ms = self.world.random.uniform(5, 300)
            self.world.scheduler.after(delay_ms, partial(self._follow, seen))

    def lose_row(self) -> str:
        """Delete one of the rows that are counted soon, without notice; return its key."""
        counted = self.relays.relay(FEED).counted
        for row in rows_of(self.state, FEED):
            ahead = (row.bucket - counted) % limits.BUCKETS  # 0: it may just have been counted
            if row.deleted or not 0 < ahead <= _SOON:
                continue
            self.state.repair(FEED, [Difference(Kind.ALTERED, row.bucket, row.key, row, None)])
            self.world.faults.saw("a row of a copy was lost")
            return row.key
        return ""

    # --- at rest ------------------------------------------------------------------------------

    def check(self) -> None:
        """Check that it has all that the master has, as far as its log reaches back."""
        model, relay = self.world.model, self.relays.relay(FEED)
        if relay.checkpoint != model.frontier or self.log.head(FEED) != relay.checkpoint:
            raise Broken(f"{self.name} is at {relay}, the frontier is {model.frontier}")
        floor = self.log.floor(FEED)
        numbers = [page.number for page in self.log.read(FEED, floor - 1)]
        if numbers != list(range(floor, relay.checkpoint + 1))[: len(numbers)]:
            raise Broken(f"{self.name} has the pages {numbers} from {floor} on")
        self._check_state()

    def _check_state(self) -> None:
        latest = self.world.model.latest(Wanted())
        living = {_object(row): row for row in rows_of(self.state, FEED) if not row.deleted}
        wanted = {key: op for key, op in latest.items() if op.event != "delete"}
        if living.keys() != wanted.keys():
            differing = sorted(living.keys() ^ wanted.keys())
            raise Broken(f"{self.name}: its state is wrong about {differing}")
        for key, row in living.items():
            if (row.page, row.slot) != wanted[key].at:
                raise Broken(f"{self.name}: its {key} is {row}, the last is {wanted[key]}")
        checks.check_sums(SumReader(self.sums, self.followers), self.state, FEED)


def _object(row: Row) -> tuple[str, str]:
    kind, _, name = row.key.partition("/")
    return kind, name


def _lives(process: Process) -> bool:
    return process.task is not None and not process.task.done

"""Feeds that are chained, in memory: a master, and deployments that copy it, on one clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from tests.fakes import MemoryCoordinator, MemoryRelays, MemoryUpstream
from tests.unit.core.following import trimmed
from tests.unit.core.scene import FEED, FEEDS, NOW, Scene, op
from tidings.core.errors import Unavailable
from tidings.core.model.cursors import Place
from tidings.core.model.feeds import FixedFeeds
from tidings.core.model.pages import Page
from tidings.core.replication.admin import Action, RelayControl, RelayReporter, ReplicaMonitor
from tidings.core.replication.bootstrap import Bootstrapper, StateLease
from tidings.core.replication.copies import CopiedLosses, Copies
from tidings.core.replication.relay import Relay
from tidings.core.replication.replicate import Relayer
from tidings.core.replication.serve import ReplicationReader
from tidings.core.replication.source import Role, Selection, Source
from tidings.core.replication.wire import ReplicationBatch, Rows
from tidings.core.state.sums import PageSums

MASTER = "https://master.example/feeds/main"
ROWS, SUMS = -1, -2  # requests that are not for a page


class Unanswered:
    """A port of which no call is answered."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*_: object) -> None:
            raise Unavailable("no answer")

        return call


LOST: Any = Unanswered()  # a coordinator


@dataclass
class Time:
    """What all deployments of a test have in common."""

    ms: int = NOW
    ids: Iterator[int] = field(default_factory=lambda: count(1))


class Timed(Scene):
    """A scene that shares its clock with others."""

    def __init__(self, time: Time) -> None:
        self.time = time
        super().__init__()

    @property
    def now_ms(self) -> int:
        return self.time.ms

    @now_ms.setter
    def now_ms(self, ms: int) -> None:
        self.time.ms = ms

    def new_id(self) -> str:
        return f"{next(self.time.ids):032x}"


@dataclass
class Net:
    """Implements `Upstream`: the nodes by address, which ones are down, and an action before each
    request.
    """

    time: Time
    places: dict[str, Node] = field(default_factory=dict)
    down: set[str] = field(default_factory=set)
    asked: list[tuple[str, int]] = field(default_factory=list)  # url and page of each request
    meanwhile: Callable[[], object] = lambda: None
    broken: Exception | None = None

    def pages(
        self, url: str, after: Place, selection: Selection, *, size: int, block_s: int
    ) -> ReplicationBatch:
        upstream = self._reached(url, after.page)
        return upstream.pages(url, after, selection, size=size, block_s=block_s)

    def rows(self, url: str, bucket: int, after: str | None, selection: Selection) -> Rows:
        return self._reached(url, ROWS).rows(url, bucket, after, selection)

    def sums(self, url: str) -> PageSums:
        return self._reached(url, SUMS).sums(url)

    def _reached(self, url: str, page: int) -> MemoryUpstream:
        self.asked.append((url, page))
        self.time.ms += 1
        self.meanwhile()
        if self.broken is not None:
            raise self.broken
        feeds = {url: (node.replication_reader, FEED) for url, node in self.places.items()}
        return MemoryUpstream(
            {at: feed for at, feed in feeds.items() if at not in self.down},
            self._pass,
            {at: node.scene.sum_reader for at, node in self.places.items()},
        )

    def _pass(self, seconds: int) -> None:
        self.time.ms += seconds * 1000


class Node:
    """One deployment, local or chained, under an address."""

    def __init__(self, net: Net, url: str, source: Source | None = None) -> None:
        self.net, self.url, self.source = net, url, source
        self.scene = Timed(net.time)
        self.relays = MemoryRelays(self.scene.log)
        self.coordinator: Any = None
        self.losses = CopiedLosses(self.scene.profiles, self.copies, lambda: self.relays)
        self.scene.catch_up = replace(self.scene.catch_up, losses=self.losses)
        net.places[url] = self

    @property
    def sources(self) -> dict[str, Source]:
        return {FEED: self.source} if self.source else {}

    def relayer(self, upstream: Any = None, **parts: Any) -> Relayer:
        scene = self.scene
        chosen: dict[str, Any] = {
            "store": self.relays,
            "bootstrapper": replace(self.bootstrapper(), upstream=upstream or self.net),
            "coordinator": self.coordinator,
            "runtime": scene.runtime,
        } | parts
        return Relayer(sources=self.sources, sums=scene.sum_reader, **chosen)

    def bootstrapper(self) -> Bootstrapper:
        scene = self.scene
        return Bootstrapper(
            upstream=self.net,
            states=scene.state,
            log=scene.log,
            tombstones=scene.tombstones,
            lease=StateLease(scene.followers, scene.waker, scene.runtime),
            runtime=scene.runtime,
        )

    @property
    def control(self) -> RelayControl:
        scene = self.scene
        reporter = RelayReporter(
            store=self.relays,
            sources=self.sources,
            feed_names=FixedFeeds(FEEDS),
            reader=scene.reader,
            coordinator=self.coordinator,
        )
        return RelayControl(
            reporter=reporter, waker=scene.waker, profiles=scene.profiles, runtime=scene.runtime
        )

    @property
    def monitor(self) -> ReplicaMonitor:
        scene = self.scene
        return ReplicaMonitor(
            store=self.relays, sources=self.sources, waker=scene.waker, runtime=scene.runtime
        )

    def act(self, action: str, **fields: object) -> str:
        """Act on the feed as an operator; return its status after that."""
        return str(self.control.act(FEED, Action(action), fields)["status"])

    def run(self, **parts: Any) -> int:
        """Run the relay once, and then the follower `state`."""
        copied = self.relayer(**parts).run(FEED)
        while self.scene.project():
            pass
        return copied

    @property
    def relay(self) -> Relay:
        return self.relays.relay(FEED)

    def note(self, **fields: Any) -> None:
        """Set these fields in the document of the relay."""
        assert self.relays.write(self.relay, replace(self.relay, **fields))

    def post(self, *names: str, event: str = "update", **fields: Any) -> Page:
        """Post one page, and project it."""
        page = self.scene.post(*(op(name, event, **fields) for name in names))
        self.scene.project()
        return page

    def post_each(self, *names: str) -> None:
        """Post a page for each of these objects."""
        for name in names:
            self.post(name)

    def trim(self, floor: int) -> None:
        """Pages below *floor* are gone."""
        trimmed(self.scene, floor)

    def pages(self) -> list[tuple[int, str, int]]:
        """Return the log above its floor."""
        log = self.scene.log
        pages = log._feeds[FEED].pages
        return [
            (number, pages[number].text, pages[number].at_ms)
            for number in sorted(pages)
            if number >= log.floor(FEED)
        ]

    def living(self) -> dict[str, str]:
        """Return the objects of the state that are not deleted."""
        return {k: line for k, line in self.scene.rows().items() if '"event":"delete"' not in line}

    @property
    def replication_reader(self) -> ReplicationReader:
        return ReplicationReader(self.scene.catch_up, self.losses)

    @property
    def copies(self) -> Copies:
        return Copies(self.sources, lambda: self.relays, self.scene.clock)


class Chain:
    """A master and a chain of feeds, each a copy of the one before it."""

    def __init__(self, length: int = 1, **options: Any) -> None:
        self.time = Time()
        self.net = Net(self.time)
        self.master = Node(self.net, MASTER)
        self.nodes: list[Node] = []
        url = MASTER
        for number in range(length):
            address = f"https://n{number}.example/feeds/main"
            self.nodes.append(Node(self.net, address, Source(url, **options)))
            url = address

    @property
    def node(self) -> Node:
        return self.nodes[0]

    def run(self) -> None:
        for node in self.nodes:
            node.run()

    def set_back(self, ms: int) -> None:
        """Set the wall clock of all processes back."""
        self.time.ms -= ms
        for node in (self.master, *self.nodes):
            node.scene.set_back_ms += ms


class Cluster:
    """Members that elect who of them reads the master."""

    def __init__(self, size: int, leaders: int = 1) -> None:
        self.time = Time()
        self.net = Net(self.time)
        self.master = Node(self.net, MASTER)
        self.coordinator = MemoryCoordinator()
        self.nodes = [self._member(number, leaders) for number in range(size)]

    def _member(self, number: int, leaders: int) -> Node:
        address = f"https://n{number}.example/feeds/main"
        source = Source(MASTER, role=Role.ELECTED, address=address, cluster="c", leaders=leaders)
        node = Node(self.net, address, source)
        node.coordinator = self.coordinator
        return node

    def leaders(self) -> list[str]:
        """Return the addresses of the current lease holders."""
        leases = self.coordinator.leases("c")
        return [lease.address for lease in leases if lease.is_held(self.time.ms)]


class Killed(BaseException):
    """The function was killed."""


def posted(*names: str, length: int = 1, **options: Any) -> Chain:
    """Return a master with a page for each of these objects, none of them copied yet."""
    chain = Chain(length, **options)
    chain.master.post_each(*names)
    return chain


def chained(pages: int = 3, length: int = 1, **options: Any) -> Chain:
    """Return a master with some pages that all feeds of the chain have copied."""
    chain = Chain(length, **options)
    for number in range(pages):
        chain.master.post(f"a{number}", f"b{number}")
        chain.time.ms += 1_000
    chain.run()
    return chain


def same(chain: Chain) -> bool:
    """Return True if every feed has the master's log and state."""
    return all(
        node.pages() == chain.master.pages() and node.scene.rows() == chain.master.scene.rows()
        for node in chain.nodes
    )

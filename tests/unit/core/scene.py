"""A whole feed in memory; its clock moves only when a test moves it."""

from __future__ import annotations

import gzip
import json
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count as counting
from types import SimpleNamespace
from typing import Any, NoReturn, TypeVar, cast

from tests.fakes import (
    MemoryArchive,
    MemoryClaims,
    MemoryConnections,
    MemoryConsumers,
    MemoryCounters,
    MemoryDueFeeds,
    MemoryErasures,
    MemoryFeeds,
    MemoryFollowers,
    MemoryInbox,
    MemoryKeys,
    MemoryKeyUsage,
    MemoryLog,
    MemoryProfiles,
    MemoryRecords,
    MemoryRegistry,
    MemoryRelays,
    MemoryRemovedParents,
    MemoryRewrites,
    MemorySockets,
    MemoryState,
    MemorySubscriptions,
    MemorySums,
    MemoryTags,
    MemoryTombstones,
    MemoryWaker,
)
from tidings.assembly.feed import Assembly
from tidings.assembly.stores import Stores
from tidings.core import limits
from tidings.core.auth.guard import Credential, Role
from tidings.core.auth.keys import ID_LENGTH, Key, KeyIssuer, PresentedKey
from tidings.core.changeagent.documents import OperatorDocuments
from tidings.core.changeagent.list import Lister
from tidings.core.effects import Runtime, discard_trace
from tidings.core.errors import Unavailable
from tidings.core.followers.follower import Follower, Handler
from tidings.core.maintenance.retention import RetentionService, rounds_in
from tidings.core.maintenance.sweep import FollowerMonitor, Step, Sweeper
from tidings.core.model.feeds import Retention
from tidings.core.model.operations import line_from
from tidings.core.model.pages import Page, Pages, encode
from tidings.core.replication.copies import CopiedLosses
from tidings.core.replication.relay import Relay
from tidings.core.replication.source import Source
from tidings.core.settings.profiles import PushLanes, RecentProfiles
from tidings.core.state.projector import Projector, SumDemand
from tidings.core.state.rows import StateStore
from tidings.core.websocket.connections import Connection
from tidings.core.websocket.push import Pusher
from tidings.http.settings import Shared

FEED = "main"
UPSTREAM = "https://b.example/feeds/main"
FEEDS = frozenset({FEED, "other"})
NOW = 1_763_000_000_000
RETENTION = Retention(age_ms=2 * limits.RETENTION_MS_MIN, records_min=0)
TOMBSTONE_MS = RETENTION.age_ms + limits.TOMBSTONE_SLACK_MS
PAGE_MS = RETENTION.age_ms + limits.TTL_SLACK_MS
SETTINGS = replace(Shared.read({"TIDINGS_OPEN": "true"}), feeds=FEEDS, consumer_ms=RETENTION.age_ms)


def unpacked(message: str) -> str:
    """Return a message as JSON, whatever its encoding."""
    return message if message.startswith("{") else gzip.decompress(b64decode(message)).decode()


def op(name: str = "x1", event: str = "update", **fields: Any) -> dict[str, Any]:
    """Return one operation as a producer writes it."""
    return {"event": event, "type": "video", "id": name, **fields}


def line(name: str = "x1", event: str = "update", **fields: Any) -> str:
    """Return one operation as the log stores it."""
    return line_from(op(name, event, **fields), now_ms=NOW)


def page(number: int, *lines: str, at_ms: int = NOW) -> Page:
    """Return a page as a reader gets it; without lines it is a filler."""
    return Page(number, encode(lines) if lines else "", "", at_ms)


def shown(given: PresentedKey) -> Credential:
    """Return a key as a request sends it."""
    return Credential(given.encode(), "anybody")


def unavailable(*_: object, **__: object) -> NoReturn:
    """Replace a method of a store that is unavailable."""
    raise Unavailable("not now")


def one_by_one(task: Callable[[str], None], items: Sequence[str]) -> None:
    """Implements `Spread`."""
    for item in items:
        task(item)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand(SumDemand):
    """The sums of each feed are required as long as the scene says so."""

    scene: Scene

    def note(self, feed: str) -> None: ...

    def wants(self, feed: str) -> bool:
        return self.scene.sums_wanted


Archiving = TypeVar("Archiving", FollowerMonitor, RetentionService)


def with_archive(service: Archiving, *, archives: bool) -> Archiving:
    """Return *service* for a host with an archive, or without one."""
    return replace(service, followers=replace(service.followers, archives=archives))


def with_step(sweeper: Sweeper, name: str, step: Step) -> Sweeper:
    """Return *sweeper* with *step* instead of the step *name* of a visit."""
    return replace(sweeper, visit=replace(sweeper.visit, steps={**sweeper.visit.steps, name: step}))


class Host(Assembly):
    """The services of a scene. It reads profiles without a cache, and rows in this thread."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        stores = SimpleNamespace(
            feed_store=scene.feeds,
            log=scene.log,
            numbers=scene.log,
            renewals=rounds_in(MemoryRecords()),
            due_feeds=scene.due_feeds,
            claims=scene.claims,
            followers=scene.followers,
            counters=scene.counters,
            state=scene.state,
            removed_parents=scene.removed_parents,
            tombstones=scene.tombstones,
            sums=scene.sums,
            tags=MemoryTags(),
            documents=OperatorDocuments(MemoryRecords(mark=scene.due_feeds.mark)),
            keys=scene.keys,
            key_usage=scene.key_usage,
            consumers=scene.consumers,
            erasures=scene.erasures,
            erasure_ledger=None,
            rewrites=MemoryRewrites(scene.log, scene.removed_parents, scene.consumers),
            relays=MemoryRelays(scene.log),
            archive=scene.archive,
            outbox=None,
            connections=scene.connections,
            inbox=scene.inbox,
            subscriptions=scene.subscriptions,
            registry=scene.registry,
            sockets=scene.sockets,
            replay_sockets=scene.sockets,
            replay_room=None,
            waker=scene.waker,
            without_retries=None,
        )
        super().__init__(
            stores=cast(Stores, stores),
            runtime=scene.runtime,
            settings=replace(
                SETTINGS,
                retention_ms=scene.retention.age_ms,
                records_min=scene.retention.records_min,
            ),
            new_key=lambda size: b"scene",
        )
        self.profiles = scene.profiles  # type: ignore[assignment]

    @cached_property
    def push_lanes(self) -> PushLanes:
        return PushLanes(RecentProfiles(self._scene.profiles, self._scene.clock))

    @cached_property
    def sum_demand(self) -> SumDemand:  # type: ignore[override]
        return Demand(self._scene.clock, self._scene.waker, scene=self._scene)

    @cached_property
    def prefetch(self) -> Callable[[StateStore], StateStore]:
        return lambda states: states

    @cached_property
    def retention_service(self) -> RetentionService:
        """Return the service of a host that archives nothing by itself."""
        return with_archive(super().retention_service, archives=False)

    @cached_property
    def sweeper(self) -> Sweeper:
        """Return the sweeper of a host that archives nothing by itself."""
        sweeper = super().sweeper
        followers = with_archive(sweeper.visit.followers, archives=False)
        return replace(sweeper, visit=replace(sweeper.visit, followers=followers))

    def trace(self, handler: Handler, late_ms: int | None = None) -> Handler:
        return handler


@dataclass
class Scene:
    """Every store in memory and every part of the core on top of them."""

    now_ms: int = NOW
    log: MemoryLog = field(default_factory=MemoryLog)
    state: MemoryState = field(default_factory=MemoryState)
    followers: MemoryFollowers = field(default_factory=MemoryFollowers)
    profiles: MemoryProfiles = field(default_factory=MemoryProfiles)
    feeds: MemoryFeeds = field(default_factory=MemoryFeeds)
    claims: MemoryClaims = field(default_factory=MemoryClaims)
    removed_parents: MemoryRemovedParents = field(default_factory=MemoryRemovedParents)
    consumers: MemoryConsumers = field(default_factory=MemoryConsumers)
    erasures: MemoryErasures = field(default_factory=MemoryErasures)
    archive: MemoryArchive = field(default_factory=MemoryArchive)
    inbox: MemoryInbox = field(default_factory=MemoryInbox)
    subscriptions: MemorySubscriptions = field(default_factory=MemorySubscriptions)
    registry: MemoryRegistry = field(default_factory=MemoryRegistry)
    sockets: MemorySockets = field(default_factory=MemorySockets)
    waker: MemoryWaker = field(default_factory=MemoryWaker)
    keys: MemoryKeys = field(default_factory=MemoryKeys)
    key_usage: MemoryKeyUsage = field(default_factory=MemoryKeyUsage)
    counters: MemoryCounters = field(default_factory=MemoryCounters)
    tombstones: MemoryTombstones = field(default_factory=MemoryTombstones)
    sums: MemorySums = field(default_factory=MemorySums)
    sums_wanted: bool = True
    counted: Counter[str] = field(default_factory=Counter)
    waits: list[int] = field(default_factory=list)
    set_back_ms: int = 0  # the clock is behind by this, compared with when the process started
    retention: Retention = RETENTION
    due_feeds: MemoryDueFeeds = field(default_factory=lambda: MemoryDueFeeds(FEEDS))

    def __post_init__(self) -> None:
        self._ids = counting(1)
        self.log.mark = self.profiles.records.mark = self.consumers.records.mark = (
            self.due_feeds.mark
        )
        self.runtime = Runtime(
            clock=self.clock,
            steady=lambda: self.clock() + self.set_back_ms,
            expiring=self.clock,
            sleep=self.wait,
            new_id=self.new_id,
            count=self.count,
            spread=one_by_one,
            trace=discard_trace,
            await_writer=self.wait,
            page_ms=PAGE_MS,
            tombstone_ms=TOMBSTONE_MS,
        )
        self.connections = MemoryConnections(self.inbox, self.subscriptions, self.registry)
        self.issuer = KeyIssuer(self.keys, self.profiles, self.clock)
        self.host = host = Host(self)
        self.meter, self.guard = host.meter, host.guard
        self.reader, self.filler, self.follower = host.reader, host.filler, host.follower
        self.appender, self.ingester = host.appender, host.ingester
        self.removed_parents_reader, self.sum_reader = host.removed_parents_reader, host.sum_reader
        self.catch_up, self.streamer, self.lanes = host.catch_up, host.streamer, host.lanes
        self.delivery, self.receiver, self.replayer = host.delivery, host.receiver, host.replayer
        self.projector, self.pusher = cast(Projector, host.projector()), self.lane(0)
        self.archiver = host.archiver()
        self.gathering = host.archive_follower
        self.sweeper, self.retention_service = host.sweeper, host.retention_service

    def chained(self, **known: Any) -> CopiedLosses:
        """Return what is known of the feed if it is a copy, with *known* in its relay."""
        relays = MemoryRelays(self.log)
        assert relays.write(Relay(FEED), replace(Relay(FEED), **known))
        return CopiedLosses(self.profiles, {FEED: Source(UPSTREAM)}, lambda: relays)

    def lane(self, number: int) -> Pusher:
        """Return a lane of push, in a process of its own."""
        return cast(Pusher, self.host.pusher(number))

    def clock(self) -> int:
        return self.now_ms

    def wait(self, ms: int) -> None:
        """Implements `Sleep`: time passes at once."""
        self.waits.append(ms)
        self.now_ms += ms

    def new_id(self) -> str:
        return f"{next(self._ids):032x}"

    def count(self, metric: str, value: int) -> None:
        self.counted[metric] += value

    def post(self, *operations: dict[str, Any], feed: str = FEED) -> Page:
        """Append *operations* as one page."""
        lines = [line_from(operation, now_ms=self.now_ms) for operation in operations]
        return self.appender.append(feed, lines)

    def fill(self, pages: int, *lines: str, feed: str = FEED) -> None:
        """Append *lines* *pages* times, faster than `post` does."""
        full = page(1, *lines, at_ms=self.now_ms)
        for number in range(1, pages + 1):
            self.log.take(feed)
            self.log.put(feed, replace(full, number=number, append_id=f"{number}"))

    def reads(self) -> list[int]:
        """Return a list that from now on gets the page after which each read of the log starts."""
        read, reads = self.log.read, list[int]()

        def noted(feed: str, after: int, *limit: int, **how: bool) -> Pages:
            reads.append(after)
            return read(feed, after, *limit, **how)

        self.log.read = noted  # type: ignore[method-assign, assignment]
        return reads

    def post_each(self, *names: str) -> list[Page]:
        """Post a page for each of these objects."""
        return [self.post(op(name)) for name in names]

    def projected(self, *operations: dict[str, Any]) -> Page:
        """Post a page of *operations*, and project it."""
        page = self.post(*operations)
        self.project()
        return page

    def pushed(self, *operations: dict[str, Any]) -> Page:
        """Post a page of *operations*, and let the follower `push` send it."""
        page = self.post(*operations)
        self.push()
        return page

    def configure(self, feed: str = FEED, **fields: Any) -> None:
        """Set these fields of the feed's profile, as its owner does."""
        assert self.profiles.save(feed, replace(self.profiles.profile(feed), **fields))

    def keep_removed_parents(self, *, leave: bool = True, feed: str = FEED) -> None:
        """Turn leaves of the feed on, as its owner does."""
        self.configure(feed, leave=leave)

    def key(self, *roles: Role, feed: str = FEED, **rights: Any) -> PresentedKey:
        """Create a key with *roles*, by default READ."""
        given = PresentedKey(f"{next(self._ids):0{ID_LENGTH}}", "s" * 32)
        wanted = Key("", "", frozenset(roles or {Role.READ}), **rights)
        self.issuer.create(feed, given, wanted)
        return given

    def follow(self, handler: Handler, feed: str = FEED, follower: Follower | None = None) -> int:
        """Run the follower of *handler*, and the runs that are woken to observe its lease."""
        follower = follower or self.follower
        done = follower.run(feed, handler)
        while self.waker.observations:
            feed, _, seen = self.waker.observations.pop(0)
            done += follower.run(feed, handler, seen)
        return done

    def set_checkpoint(self, follower: str, page: int, feed: str = FEED) -> None:
        """Set the checkpoint of *follower* to *page*."""
        lease = self.followers.take(feed, follower, owner="me", now_ms=self.now_ms)
        assert self.followers.release(replace(lease, checkpoint=page))

    def project(self, feed: str = FEED) -> int:
        """Run the follower `state`."""
        return self.follow(self.projector, feed)

    def push(self, feed: str = FEED) -> int:
        """Run the follower `push`."""
        return self.follow(self.pusher, feed)

    def archived(self, feed: str = FEED) -> int:
        """Run the follower `archive`."""
        return self.follow(self.archiver, feed, self.gathering)

    def lister(self, tags: MemoryTags | None = None) -> Lister:
        """Return the list of changes, with an index of *tags*."""
        return Lister(self.reader, self.runtime.steady, tags or MemoryTags(), self.catch_up.losses)

    def connect(self, name: str = "c") -> str:
        """Open a WebSocket connection; return its id."""
        self.connections.open(Connection(name, self.now_ms))
        return name

    def subscribe(self, name: str = "c", **message: object) -> str:
        """Open a connection that subscribes; return its id."""
        self.say(self.connect(name), action="subscribe", **message)
        return name

    def resume(self, cursor: str, name: str = "c", **message: object) -> str:
        """Open a connection that is replayed from *cursor*; return its id."""
        self.say(self.connect(name), action="resume", cursor=cursor, **message)
        self.replayer.run(name)
        return name

    def say(self, connection_id: str, **message: object) -> None:
        """Send *message* as a client."""
        self.receiver.receive(connection_id, json.dumps(message))

    def heard(self, connection_id: str) -> list[dict[str, Any]]:
        """Return the messages that were sent to the connection, in order, decoded."""
        return [json.loads(unpacked(message)) for message in self.sockets.sent[connection_id]]

    def events(self, connection_id: str) -> list[str]:
        """Return the object ids of the events sent to the connection; for events without data their
        names.
        """
        return [
            event["data"]["id"] if "data" in event else event["event"]
            for message in self.heard(connection_id)
            for event in message.get("events", [])
        ]

    def connection(self, connection_id: str) -> Connection:
        connection = self.connections.get(connection_id)
        assert connection is not None
        return connection

    def rows(self, feed: str = FEED) -> dict[str, str]:
        """Return the whole state: line by key."""
        return {
            row.key: row.line
            for bucket in range(limits.BUCKETS)
            for row in self.state.read(feed, bucket)
        }

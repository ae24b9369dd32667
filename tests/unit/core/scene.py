"""A whole feed in memory; its clock moves only when a test moves it."""

from __future__ import annotations

import gzip
import json
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count as counting
from typing import Any, NoReturn

from tests.fakes import (
    MemoryArchive,
    MemoryClaims,
    MemoryConnections,
    MemoryCounters,
    MemoryFollowers,
    MemoryInbox,
    MemoryKeys,
    MemoryKeyUsage,
    MemoryLog,
    MemoryProfiles,
    MemoryRegistry,
    MemoryRemovedParents,
    MemorySockets,
    MemoryState,
    MemorySubscriptions,
    MemorySums,
    MemoryTags,
    MemoryTombstones,
    MemoryWaker,
)
from tidings.core import limits
from tidings.core.archive.reader import ArchiveReader
from tidings.core.archive.writer import HABITS, Archiver, Gatherer
from tidings.core.auth.guard import Credential, FailedAttemptLimiter, Guard, Role
from tidings.core.auth.keys import ID_LENGTH, Key, KeyIssuer, KeyRing, PresentedKey
from tidings.core.auth.passwords import Verifier
from tidings.core.auth.quotas import RateLimiter, StreamQuota
from tidings.core.catchup.catchup import CatchUp
from tidings.core.catchup.sse import Streamer
from tidings.core.changeagent.list import Lister
from tidings.core.effects import Runtime, nobody
from tidings.core.errors import Unavailable
from tidings.core.followers.follower import Follower, Handler
from tidings.core.ingest.ingest import Ingester
from tidings.core.ingest.write_bounds import Bounds
from tidings.core.log.append import Appender
from tidings.core.log.reader import Filler, Reader
from tidings.core.maintenance.retention import Renewer, Trimmer
from tidings.core.maintenance.sweep import Sweeper
from tidings.core.model.feeds import Retention
from tidings.core.model.operations import line_from
from tidings.core.model.pages import Page, Pages, encode
from tidings.core.settings.profiles import Losses, MaxAges, PushLanes, RecentProfiles
from tidings.core.state.projector import Projector, SumKeeper
from tidings.core.state.removed_parents import RemovedParentsReader
from tidings.core.state.sums import SumReader
from tidings.core.websocket.connections import Connection, Lanes
from tidings.core.websocket.push import Pusher
from tidings.core.websocket.receive import Receiver, Registrar
from tidings.core.websocket.replay import Replayer
from tidings.core.websocket.send import Delivery

FEED = "main"
FEEDS = frozenset({FEED, "other"})
NOW = 1_763_000_000_000
RETENTION = Retention(age_ms=2 * limits.RETENTION_MS_MIN, records_min=0)
TOMBSTONE_MS = RETENTION.age_ms + limits.TOMBSTONE_SLACK_MS
PAGE_MS = RETENTION.age_ms + limits.TTL_SLACK_MS


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
    return Credential(given.encoded(), "anybody")


def unavailable(*_: object, **__: object) -> NoReturn:
    """Replace a method of a store that is unavailable."""
    raise Unavailable("not now")


def one_by_one(task: Callable[[str], None], items: Sequence[str]) -> None:
    """Implements `Spread`."""
    for item in items:
        task(item)


@dataclass
class Scene:
    """Every store in memory and every part of the core on top of them."""

    now_ms: int = NOW
    log: MemoryLog = field(default_factory=MemoryLog)
    state: MemoryState = field(default_factory=MemoryState)
    followers: MemoryFollowers = field(default_factory=MemoryFollowers)
    profiles: MemoryProfiles = field(default_factory=MemoryProfiles)
    claims: MemoryClaims = field(default_factory=MemoryClaims)
    departures: MemoryRemovedParents = field(default_factory=MemoryRemovedParents)
    archive: MemoryArchive = field(default_factory=MemoryArchive)
    inbox: MemoryInbox = field(default_factory=MemoryInbox)
    watches: MemorySubscriptions = field(default_factory=MemorySubscriptions)
    registry: MemoryRegistry = field(default_factory=MemoryRegistry)
    sockets: MemorySockets = field(default_factory=MemorySockets)
    waker: MemoryWaker = field(default_factory=MemoryWaker)
    keys: MemoryKeys = field(default_factory=MemoryKeys)
    key_usage: MemoryKeyUsage = field(default_factory=MemoryKeyUsage)
    tallies: MemoryCounters = field(default_factory=MemoryCounters)
    tombstones: MemoryTombstones = field(default_factory=MemoryTombstones)
    sums: MemorySums = field(default_factory=MemorySums)
    sums_wanted: bool = True
    counted: Counter[str] = field(default_factory=Counter)
    waits: list[int] = field(default_factory=list)
    retention: Retention = RETENTION

    def __post_init__(self) -> None:
        self._ids = counting(1)
        self.runtime = Runtime(
            clock=self.clock,
            sleep=self.wait,
            new_id=self.new_id,
            count=self.count,
            spread=one_by_one,
            trace=nobody,
            await_writer=self.wait,
        )
        self.connections = MemoryConnections(self.inbox, self.watches, self.registry)
        self.issuer = KeyIssuer(self.keys, self.profiles, self.clock)
        self.meter = RateLimiter(self.key_usage, self.clock)
        self.holding = StreamQuota(
            store=self.key_usage,
            runtime=self.runtime,
        )
        self.failures = FailedAttemptLimiter(self.clock, limits.MISSES_MAX)
        ring = KeyRing(self.keys, self.clock, self.failures, self.meter)
        verifier = Verifier(b"scene")
        self.guard = Guard(
            profiles=self.profiles,
            verifier=verifier,
            open=True,
            failures=self.failures,
            bearers=(ring,),
        )
        self.reader = Reader(
            log=self.log,
            checkpoints=self.followers,
            clock=self.clock,
            count=self.count,
        )
        self.appender = Appender(
            log=self.log, claims=self.claims, clock=self.clock, new_id=self.new_id, page_ms=PAGE_MS
        )
        self.ingester = Ingester(
            appender=self.appender,
            runtime=self.runtime,
            feeds=FEEDS,
            tallies=self.tallies,
            guard=self.guard,
            required=Bounds(self.state, self.reader, self.wait),
        )
        self.departure_reader = RemovedParentsReader(self.departures, self.followers)
        self.catch_up = CatchUp(
            reader=self.reader,
            states=self.state,
            tombstones=self.tombstones,
            departures=self.departure_reader,
            archive=ArchiveReader(self.archive, self.count),
            lost=Losses(self.profiles),
        )
        self.streamer = Streamer(
            self.catch_up, FEEDS, self.guard, self.holding, charges=self.meter.charge_for
        )
        self.delivery = Delivery(
            sockets=self.sockets,
            connections=self.connections,
            sleep=self.runtime.sleep,
            count=self.runtime.count,
        )
        recent = PushLanes(RecentProfiles(self.profiles, self.clock))
        self.lanes = Lanes(self.inbox, self.waker, self.new_id, recent, recent.fresh)
        self._sockets()
        self._followers()
        self._sweep()

    def _sockets(self) -> None:
        self.registrar = Registrar(
            connections=self.connections,
            registry=self.registry,
            lanes=self.lanes,
            sockets=self.sockets,
            checkpoints=self.followers,
            profiles=self.profiles,
            guard=self.guard,
            feeds=FEEDS,
            runtime=self.runtime,
        )
        self.receiver = Receiver(
            connections=self.connections,
            lanes=self.lanes,
            sockets=self.sockets,
            waker=self.waker,
            catch_up=self.catch_up,
            feeds=FEEDS,
            guard=self.guard,
            registrar=self.registrar,
        )
        self.replayer = Replayer(
            lanes=self.lanes,
            delivery=self.delivery,
            waker=self.waker,
            catch_up=self.catch_up,
            runtime=self.runtime,
            profiles=self.profiles,
            charges=self.meter.charge_for,
        )

    def _followers(self) -> None:
        keeper = SumKeeper(self.sums, self.state, lambda feed: self.sums_wanted)
        self.sum_reader = SumReader(self.sums, self.followers)
        self.projector = Projector(
            states=self.state,
            removed_parents=self.departures,
            profiles=self.profiles,
            waker=self.waker,
            clock=self.clock,
            tombstones=self.tombstones,
            sums=keeper,
            tombstone_ms=TOMBSTONE_MS,
            page_ms=PAGE_MS,
        )
        self.pusher = self.lane(0)
        self.filler = Filler(self.reader, PAGE_MS)
        self.follower = Follower(
            store=self.followers,
            reader=self.reader,
            filler=self.filler,
            waker=self.waker,
            runtime=self.runtime,
        )
        self.archiver = Archiver(self.archive, self.count)
        gatherer = Gatherer(
            log=self.log,
            checkpoints=self.followers,
            clock=self.clock,
            count=self.count,
        )
        self.gathering = replace(self.follower, reader=gatherer, habits=HABITS)

    def lane(self, number: int) -> Pusher:
        """Return a lane of push, in a process of its own."""
        return Pusher(
            lanes=self.lanes,
            watches=self.watches,
            delivery=self.delivery,
            reader=self.reader,
            spread=one_by_one,
            departures=self.departure_reader,
            profiles=self.profiles,
            followers=self.followers,
            lane=number,
        )

    def _sweep(self) -> None:
        self.trimmer = Trimmer(
            reader=self.reader,
            retention=self.retention,
            renewer=Renewer(
                store=self.log,
                runtime=self.runtime,
                page_ms=PAGE_MS,
            ),
            aged=MaxAges(self.profiles),
        )
        self.sweeper = Sweeper(
            reader=self.reader,
            checkpoints=self.followers,
            trimmer=self.trimmer,
            connections=self.connections,
            watches=self.watches,
            lanes=self.lanes,
            delivery=self.delivery,
            waker=self.waker,
            tallies=self.tallies,
            spread=one_by_one,
            profiles=self.profiles,
        )

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

    def keep_departures(self, *, leave: bool = True, feed: str = FEED) -> None:
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

    def stand(self, follower: str, page: int, feed: str = FEED) -> None:
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
        return Lister(self.reader, tags or MemoryTags())

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
        """
        Return the object ids of the events sent to the connection; for events without data their
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

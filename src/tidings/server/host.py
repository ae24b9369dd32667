"""The composition root: the core's parts on the stores of one file, and what runs them."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.archive.reader import ArchiveReader
from tidings.core.archive.writer import HABITS, Archiver, Gatherer
from tidings.core.auth.guard import FailedAttemptLimiter, Guard
from tidings.core.auth.keys import KeyIssuer, KeyRing
from tidings.core.auth.passwords import Verifier
from tidings.core.auth.quotas import RateLimiter, StreamQuota, free
from tidings.core.catchup.catchup import CatchUp
from tidings.core.catchup.sse import Streamer
from tidings.core.changeagent.admin import Administrator
from tidings.core.changeagent.config import Purges
from tidings.core.changeagent.documents import USERS
from tidings.core.changeagent.list import Lister
from tidings.core.changeagent.recent_documents import RecentDocuments
from tidings.core.changeagent.submit import Proposer
from tidings.core.changeagent.tag_indexer import Indexer
from tidings.core.changeagent.users import Gate, UserVerifier
from tidings.core.consumers.log_view import LogView
from tidings.core.consumers.service import (
    ConsumerMonitor,
    ConsumerRepository,
    ConsumerRetention,
    Consumers,
)
from tidings.core.durable_streams.reader import StreamReader
from tidings.core.durable_streams.writer import StreamWriter
from tidings.core.errors import Unavailable
from tidings.core.followers.follower import ARCHIVE, STATE, Follower, Habits, TracingHandler
from tidings.core.followers.lanes import PUSH
from tidings.core.hooks.courier import Courier
from tidings.core.hooks.registry import Registry, WebhookAdmin
from tidings.core.ingest.ingest import Ingester
from tidings.core.ingest.oplog_compat import CompatibilityMode
from tidings.core.ingest.write_bounds import Bounds
from tidings.core.log.append import Appender
from tidings.core.log.reader import Filler, Reader
from tidings.core.log.renewal import Renewer
from tidings.core.maintenance.restore import Restorer
from tidings.core.maintenance.retention import Trimmer
from tidings.core.maintenance.status import Reporter
from tidings.core.maintenance.sweep import Failures, Sweeper
from tidings.core.replication.admin import RelayControl
from tidings.core.replication.bootstrap import Bootstrapper
from tidings.core.replication.commit_times import CopiedLosses, CopiedUntil
from tidings.core.replication.copies import Copies
from tidings.core.replication.monitor import ReplicaMonitor
from tidings.core.replication.replica import RELAY
from tidings.core.replication.replicate import Relayer
from tidings.core.replication.serve import Portioner
from tidings.core.replication.write_guard import WriteGuard
from tidings.core.settings.profiles import Losses, MaxAges, RecentProfiles, close
from tidings.core.state.projector import Projector
from tidings.core.state.removed_parents_reader import RemovedParentsReader
from tidings.core.state.sum_demand import SumDemand
from tidings.core.state.sum_keeper import SumKeeper
from tidings.core.state.sum_reader import SumReader
from tidings.core.sync.apply import Corrector
from tidings.core.tracing import Passage, Tracer
from tidings.core.triton.http import ChangeFeeds
from tidings.core.triton.items import Items as ItemLines
from tidings.core.websocket.lanes import Lanes
from tidings.core.websocket.listener import Registrar
from tidings.core.websocket.push import Pusher
from tidings.core.websocket.receive import Receiver
from tidings.core.websocket.replay import Replayer
from tidings.core.websocket.send import Delivery
from tidings.http.durable_streams.reads import StreamReads
from tidings.http.durable_streams.writes import StreamWrites
from tidings.http.endpoints.admin import Administration
from tidings.http.endpoints.changefeeds import Resources
from tidings.http.endpoints.changes import Changes
from tidings.http.endpoints.consumers import ConsumerRouter
from tidings.http.endpoints.corrections import Corrections
from tidings.http.endpoints.hooks import WebhookRouter
from tidings.http.endpoints.keys import KeyRouter
from tidings.http.endpoints.posting import Items, Operations
from tidings.http.endpoints.replication import ReplicaRouter
from tidings.http.endpoints.status import Status
from tidings.http.endpoints.sums import FeedSums
from tidings.http.outbound.bcrypt import matches
from tidings.http.outbound.folder_archive import FolderArchive
from tidings.http.outbound.webhooks import Poster
from tidings.http.outbound.webhooks import Webhooks as AskedHooks
from tidings.http.router import ByPath
from tidings.http.routes import HOOKS, KEYS, SUMS
from tidings.http.streams.row_prefetch import ReadAhead
from tidings.server.counting import ThreadCounters
from tidings.server.generation import Generations
from tidings.server.hooks import Webhooks
from tidings.server.memory.connections import (
    MemoryConnections,
    MemoryInbox,
    MemoryRegistry,
    MemorySubscriptions,
)
from tidings.server.memory.keys import MemoryKeyUsage
from tidings.server.recovery import Recovery
from tidings.server.sockets import Sockets
from tidings.server.sqlite.database import Database
from tidings.server.sqlite.documents import Documents
from tidings.server.sqlite.followers import SqliteCounters, SqliteFollowers
from tidings.server.sqlite.log import SqliteClaims, SqliteLog
from tidings.server.sqlite.settings import (
    SqliteConsumers,
    SqliteCoordinator,
    SqliteKeys,
    SqliteOperatorDocuments,
    SqliteProfiles,
    SqliteRelays,
    SqliteStreams,
    SqliteUpstreams,
)
from tidings.server.sqlite.starts import SqliteStarts
from tidings.server.sqlite.state import (
    SqliteRemovedParents,
    SqliteState,
    SqliteSums,
    SqliteTags,
    SqliteTombstones,
)
from tidings.server.wakeups import News, Runs, Wakeups
from tidings.server.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence, Set
    from pathlib import Path
    from typing import Any

    from tidings.core.auth.guard import Bearers
    from tidings.core.auth.quotas import ReadCharge
    from tidings.core.settings.revocations import Admission
    from tidings.http.request import Endpoint
    from tidings.http.settings import Shared
    from tidings.server.issuer_keys import IssuerKeys

log = logging.getLogger(__name__)
traces = logging.getLogger("tidings.traces")
traces.setLevel(logging.INFO)  # also without --verbose: whoever asked for a trace looks for it
KEY_BYTES = 32  # as the digests that are made with it
STAGE = "local"
# Of webhooks. This process alone has the file, so that it takes over its own leases after a crash.
WEBHOOK_WORKER = "tidings-serve"
# How long a follower pauses, in times of its run. Clients wait for a push, while there are any; who
# copies the state reads the log from where the state stands, so nobody waits for that.
PUSH_REST, STATE_REST, RELAY_REST = 1.0, 10.0, 1.0
ARCHIVE_REST = 1.0  # of the one that the sweep wakes once a minute
IDLE_REST = 100.0  # of a push to nobody, which only keeps up with the log
# Of a turn, also of the first: the store answers, and takes many rows at once for half the price.
FOLLOWING = Habits(operations_max=20_000, operations_first=20_000)
STATE_PAUSE_S = 0.2  # at the most, behind thousands of operations: the more wait, the cheaper each
SETTLE_POLL_MS, SETTLE_POLLS_MAX = 2, 250  # half a second: a registration waits no longer
_BEGAN_MS, _BEGAN_S = time.time_ns() // 1_000_000, time.monotonic()
THREADS = 32  # requests that are not appended in groups
REPLAY_THREADS = 8  # catch-ups of WebSockets, none of which waits for its client
SLOW_THREADS = 32  # requests that wait for others: operators' webhooks, pages still to be written


def now_ms() -> int:
    """Implements `Clock`."""
    return time.time_ns() // 1_000_000


def steady_ms() -> int:
    """The time as it was when the process began, and what has elapsed since: it never steps."""
    return _BEGAN_MS + round((time.monotonic() - _BEGAN_S) * 1000)


def expiring_ms() -> int:
    """
    The time by which something has expired: both by the clock and by what has elapsed.

    So a clock that is ahead for a while ends nothing too early.
    """
    return min(now_ms(), steady_ms())


def sleep_ms(ms: int) -> None:
    """Implements `Sleep`."""
    time.sleep(ms / 1000)


def new_id() -> str:
    """Implements `NewId`: unlike any other, also one of another process; it is no secret."""
    return f"{random.getrandbits(128):032x}"


def tell_passage(passage: Passage) -> None:
    """Implements `tracing.Tell`: what is traced in one line each, what is late in a warning."""
    fields = passage._asdict()
    trace_id = fields.pop("trace")
    place = " ".join(f"{name}={value}" for name, value in fields.items())
    if trace_id:
        traces.info("traced trace_id=%s %s", trace_id, place)
    else:
        traces.warning("late %s", place)


def one_by_one(task: Callable[[Any], None], items: Iterable[Any]) -> None:
    """Implements `Spread`: nothing here waits for a network."""
    for item in items:
        task(item)


class Settled:
    """
    Implements `Checkpoints`: the state stands where the log ended when it was called.

    Who registers then is not sent again what was acknowledged before, though the state pauses, and
    is sent what comes while it is waited for.
    """

    def __init__(self, followers: SqliteFollowers, log: SqliteLog) -> None:
        self._followers, self._log = followers, log

    def checkpoints(self, feed: str) -> dict[str, int]:
        head = self._log.head(feed)
        for _ in range(SETTLE_POLLS_MAX):
            checkpoints = self._followers.checkpoints(feed)
            if checkpoints.get(STATE, 0) >= head:
                return {**checkpoints, STATE: head}
            sleep_ms(SETTLE_POLL_MS)
        return self._followers.checkpoints(feed)


class Host:
    """
    A feed on the file at *path*, for the event loop *loop*. At *coordinator* leaders are elected,
    below the folder *archive* are the parts of the archive.

    *endpoints* has what each function of `web.routes` answers with; those that append in groups
    are in `GROUPED`, those that may wait for others in `SLOW`.
    """

    GROUPED = frozenset({"ingest", "publish", "durable"})
    SLOW = frozenset({"propose", "amend"})

    def __init__(
        self,
        path: Path,
        settings: Shared,
        coordinator: Path | None = None,
        archive: Path | None = None,
        *,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.settings = settings
        self._archive = FolderArchive(archive) if archive else None
        self._path, self.database = path, Database(path)
        self._elections = Database(coordinator, shared=True) if coordinator else None
        self._counters = ThreadCounters()
        self.count = self._counters.add  # implements `Count`
        self.issuer_keys: IssuerKeys | None = None  # made with `guard`
        self.news = News(loop)
        self.sockets = Sockets(loop, self._replay_soon)
        self.pool = ThreadPoolExecutor(THREADS, thread_name_prefix="request")
        self._replays = ThreadPoolExecutor(REPLAY_THREADS, thread_name_prefix="replay")
        self.slow_pool = ThreadPoolExecutor(SLOW_THREADS, thread_name_prefix="slow-request")
        self.writer = Writer(self.database)
        self.waker = Wakeups(self._replay_soon)
        self.sum_demand = SumDemand(now_ms, self.waker)
        self._stores()
        self._copies = Copies(settings.sources, lambda: self.relays, now_ms)
        self.lanes = Lanes(self.inbox, self.waker, new_id)  # one is enough for one process
        self._follow()
        self.webhooks = self._webhooks()
        self.database.before_commit = self.followers.write
        self.database.committed = self._committed
        self.endpoints = self._endpoints()

    @classmethod
    async def open(
        cls,
        path: Path,
        settings: Shared,
        coordinator: Path | None = None,
        archive: Path | None = None,
    ) -> Host:
        """
        Return a host for the running event loop, opened in a thread.

        Raises:
            CannotOpen: as `Database`.
        """
        loop = asyncio.get_running_loop()
        return await asyncio.to_thread(cls, path, settings, coordinator, archive, loop=loop)

    def start(self) -> None:
        """Repair what the last process left, and begin to follow the log."""
        for feed in sorted(self.settings.feeds):
            self._close_if_used(feed)
            self._archive_again(feed)
            try:
                self._recover(feed)
            except Unavailable as error:  # a full disk; what was acknowledged is still served
                log.warning("%s: not repaired, the next attempt is in a minute: %s", feed, error)
        self._generations.begin(self.settings.feeds)
        for feed in self.settings.feeds:
            # No client is connected yet. A checkpoint above a hole would make it a lost page.
            self.followers.stand(feed, PUSH, self._recovery.end(feed))
        self.waker.start()
        self.webhooks.start()
        for feed in self.settings.feeds:
            self.waker.ring(feed, STATE)
        for feed in self.settings.sources:
            self._free(feed)
            self.waker.ring(feed, RELAY)

    def _close_if_used(self, feed: str) -> None:
        """Close *feed* if it has keys or users of a release that did not note so in its profile."""
        users = self.stored_documents.operator_document(feed, USERS).text
        if not self.profiles.profile(feed).closed and (users or any(self.keys.keys(feed))):
            close(self.profiles, feed)

    def on_operator_change(self, kind: str, feed: str, name: str) -> None:
        """Read again what an operator's command stored: it counts once the command has ended."""
        if kind == "profile":
            self.profiles.forget(feed)
        elif kind == "key":
            self._key_ring.forget(feed, name)
        else:
            self.documents.forget(feed, name)

    def _archive_again(self, feed: str) -> None:
        """Let the archive begin again before the first hole: it passed it, and readers do not."""
        holes, archived = self._recovery.unwritten(feed), self.followers.checkpoints(feed)
        if holes and archived.get(ARCHIVE, 0) >= holes[0].first:
            self.followers.stand(feed, ARCHIVE, holes[0].first - 1)

    def _recover(self, feed: str) -> None:
        for numbers in self._recovery.fill(feed):
            log.warning("%s: filled %s, which a killed process did not write", feed, numbers)
            self.count("HolesFilled", numbers.last - numbers.first + 1)

    @cached_property
    def _recovery(self) -> Recovery:
        return Recovery(
            self.database, self.log, self.followers, self._copies, now_ms, self.settings.page_ms
        )

    @cached_property
    def _generations(self) -> Generations:
        restorer = Restorer(
            self.reader,
            self.log,
            self.followers,
            self.consumers,
            self.profiles,
            self._archive,
            sleep_ms,
            new_id,
            self.settings.page_ms,
        )
        starts, chained = SqliteStarts(self.database), self.settings.sources
        return Generations(self._path, starts, restorer, self.relays, chained, now_ms)

    def _free(self, feed: str) -> None:
        """Take the relay away from a process that was killed: this one alone has the file."""
        relay = self.relays.relay(feed)
        if relay.owner:
            self.relays.write(relay, replace(relay, owner="", lease_until_ms=0))

    async def stop(self) -> None:
        """End all threads, and let go of the file."""
        await asyncio.to_thread(self.webhooks.stop)
        await self.writer.stop()
        await asyncio.to_thread(self.waker.stop)
        for pool in (self.pool, self._replays, self.slow_pool):
            pool.shutdown(wait=False, cancel_futures=True)
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        try:
            with self.database.transaction():
                pass  # with the checkpoints that were not written yet
        except Unavailable as error:  # a full disk
            log.warning("the followers will handle some pages again: %s", error)
        self.database.close()
        if self._elections:
            self._elections.close()

    def sweep(self) -> None:
        """
        Do what a schedule does once a minute. A step that fails stops no other one.

        Raises:
            ExceptionGroup: the steps that failed.
        """
        failures = Failures()
        with failures.kept("the sweep"):
            self.sweeper.run(self.settings.feeds)
        with failures.kept("the mark next to the data file"):
            self._generations.renew()
        for feed in sorted(self.settings.feeds):
            with failures.kept(f"the repair of the feed {feed}"):
                self._recover(feed)
            with failures.kept(f"the index of the feed {feed}"):
                self.indexer.run(feed, now_ms() + limits.INDEX_RUN_MS)
        with failures.kept("what has expired"):
            self.database.delete_expired(expiring_ms())
        if failures.count:
            raise ExceptionGroup(f"{failures.count} steps failed", failures.errors)

    @property
    def metrics(self) -> Counter[str]:
        """What was counted by now."""
        return self._counters.totals()

    def receive(self, connection_id: str, text: str) -> None:
        self._receiver.receive(connection_id, text)

    # What is written wakes followers and readers of the log's end.

    def _committed(self, feeds: Set[str]) -> None:
        for feed in feeds:
            self.waker.ring(feed, STATE)
            self.waker.ring(feed, PUSH)
            self.webhooks.wake(feed)
        self.news.tell(feeds)

    def _replay_soon(self, connection_id: str) -> None:
        self._replays.submit(self._replay, connection_id)

    def _replay(self, connection_id: str) -> None:
        try:
            self._replayer.run(connection_id)
        except Exception:
            log.exception("a catch-up failed; the sweep takes it up again")

    def _follow(self) -> None:
        follower = Follower(
            self.followers,
            self.reader,
            Filler(self.reader, self.settings.page_ms, self._copies),
            self.waker,
            sleep_ms,
            new_id,
            FOLLOWING,
        )
        late_ms = self.settings.late_ms
        projector = TracingHandler(self._projector(), now_ms, tell_passage, late_ms)
        pusher = TracingHandler(self._pusher(), now_ms, tell_passage, late_ms)

        def state(feed: str) -> None:
            if follower.run(feed, projector):
                self.news.tell([feed])  # who is told of leaves waits for the state

        self.waker.runs = {
            STATE: Runs(STATE, state, lambda: STATE_REST, STATE_PAUSE_S),
            PUSH: Runs(PUSH, lambda feed: follower.run(feed, pusher), self._push_rest),
        }
        if self._archive is not None:
            archiving = self._archiving(follower, self._archive)
            self.waker.runs[ARCHIVE] = Runs(ARCHIVE, archiving, lambda: ARCHIVE_REST)
        self.waker.relays = {
            feed: Runs(RELAY, lambda feed: self._relayer(feed).run(feed), lambda: RELAY_REST)
            for feed in self.settings.sources
        }

    def _archiving(self, follower: Follower, store: FolderArchive) -> Callable[[str], object]:
        reader = Gatherer(self.log, self.log, self.followers, now_ms, self.count)
        gathering = replace(follower, reader=reader, habits=HABITS)
        # No late pages: no client waits for the archive.
        archiver = TracingHandler(Archiver(store, self.count), now_ms, tell_passage)
        return lambda feed: gathering.run(feed, archiver)

    def _push_rest(self) -> float:
        return PUSH_REST if self.sockets.count else IDLE_REST

    def _projector(self) -> Projector:
        return Projector(
            self.states,
            self.removed_parents,
            self.profiles,
            self.waker,
            now_ms,
            self.tombstones,
            SumKeeper(self.sums, self.states, self.sum_demand.wants),
            self.settings.tombstone_ms,
            self.settings.page_ms,
        )

    def _pusher(self) -> Pusher:
        return Pusher(
            self.lanes,
            self.subscriptions,
            Delivery(self.sockets, self.connections, sleep_ms, self.count),
            self.reader,
            one_by_one,
            self._removed_parents_reader,
            self.profiles,
            self.followers,
            self._copies,
        )

    # Stores.

    def _stores(self) -> None:
        database, documents = self.database, partial(Documents, self.database)
        self.log = SqliteLog(database)
        self.claims = SqliteClaims(database, expiring_ms)
        self.followers = SqliteFollowers(database)
        self.counters = SqliteCounters(database)
        self.states = SqliteState(database, self.sum_demand.wants)
        self.removed_parents = SqliteRemovedParents(database)
        self.tombstones = SqliteTombstones(database)
        self.sums = SqliteSums(database)
        self.tags = SqliteTags(database)
        self.stored_profiles = SqliteProfiles(documents)
        self.profiles = RecentProfiles(self.stored_profiles, now_ms)
        self.stored_documents = SqliteOperatorDocuments(documents)
        self.documents = RecentDocuments(self.stored_documents, now_ms)
        self.keys = SqliteKeys(documents)
        self.streams = SqliteStreams(database)
        self.consumers = SqliteConsumers(database)
        self.relays = SqliteRelays(database, self.log)
        self.relay_passwords = SqliteUpstreams(database)
        self.inbox, self.subscriptions = MemoryInbox(), MemorySubscriptions()
        self.registry = MemoryRegistry()
        self.connections = MemoryConnections(self.inbox, self.subscriptions, self.registry)
        self.reader = Reader(self.log, self.log, self.followers, now_ms, self.count)
        self._removed_parents_reader = RemovedParentsReader(self.removed_parents, self.followers)

    # Who is let in.

    @cached_property
    def guard(self) -> Guard:
        bearers = (self._key_ring, *self._issued())
        return Guard(
            profiles=self.profiles,
            verifier=Verifier(os.urandom(KEY_BYTES)),
            open=self.settings.open,
            failures=FailedAttemptLimiter(now_ms, limits.MISSES_MAX),
            bearers=bearers,
            target="--data FOLDER",
        )

    @cached_property
    def _key_ring(self) -> KeyRing:
        return KeyRing(
            self.keys, now_ms, FailedAttemptLimiter(now_ms, limits.MISSES_MAX), self._meter
        )

    def _issued(self) -> Sequence[Bearers]:
        if self.settings.issuer is None:
            return ()
        from tidings.http.outbound.oidc import Tokens, ask_over_http
        from tidings.server.issuer_keys import IssuerKeys  # most servers have no issuer

        tokens = Tokens(self.settings.issuer, ask_over_http)
        self.issuer_keys = IssuerKeys(tokens)
        return (tokens,)

    @cached_property
    def gate(self) -> Gate:
        verifier = UserVerifier(matches, os.urandom(KEY_BYTES))
        return Gate(
            self.documents,
            self.guard,
            verifier,
            FailedAttemptLimiter(now_ms, limits.USER_MISSES_MAX),
        )

    @cached_property
    def _meter(self) -> RateLimiter:
        return RateLimiter(MemoryKeyUsage(), now_ms)

    def charge_for(self, feed: str, admission: Admission) -> ReadCharge:
        """Implements `Charges`."""
        return (self._meter.charge_for if admission.rate else free)(feed, admission)

    # The log, written and read.

    def _await_writer(self, ms: int) -> None:
        """
        Wait for a writer that has a page number; implements `Sleep`.

        Raises:
            Unavailable: this thread is in a transaction, so that no writer can be at work.
        """
        if self.database.is_writing:
            raise Unavailable("a page of the log is missing; run `tidings verify`")
        sleep_ms(ms)

    @cached_property
    def writable(self) -> WriteGuard:
        return WriteGuard(self._copies, lambda feed: self.relays.relay(feed).master)

    @cached_property
    def appender(self) -> Appender:
        return Appender(
            self.log, self.claims, now_ms, new_id, self.settings.page_ms, self.writable.check
        )

    @cached_property
    def _ingester(self) -> Ingester:
        return Ingester(
            self.appender,
            now_ms,
            self.count,
            self.settings.feeds,
            self.counters,
            self.guard,
            Bounds(self.states, self.reader, self._await_writer),
            tracer=self._tracer,
        )

    @cached_property
    def _tracer(self) -> Tracer:
        return Tracer(self.settings.traces, now_ms, new_id, tell_passage)

    @cached_property
    def losses(self) -> Losses:
        return Losses(self.profiles, CopiedLosses(self._copies, self.relays))

    @cached_property
    def catch_up(self) -> CatchUp:
        return CatchUp(
            self.reader,
            self.states,
            self.tombstones,
            self._removed_parents_reader,
            ArchiveReader(self._archive, self.count) if self._archive else None,
            self.losses,
            CopiedUntil(self._copies, self.relays),
        )

    @cached_property
    def compatibility(self) -> CompatibilityMode:
        return CompatibilityMode(self.profiles, self.settings.feeds)

    @cached_property
    def streamer(self) -> Streamer:
        return Streamer(
            self.catch_up,
            self.settings.feeds,
            self.guard,
            self._holding,
            ReadAhead(),
            self.charge_for,
        )

    @cached_property
    def _holding(self) -> StreamQuota:
        return StreamQuota(MemoryKeyUsage(), now_ms, new_id)

    def stream_reads(self) -> StreamReads:
        """Of durable streams; who waits there is told by who has it."""
        return StreamReads(
            StreamReader(self.streams, self.reader, self.losses),
            self.guard,
            self.settings.feeds,
            self._holding,
            self.charge_for,
            now_ms,
            self.settings.cors_origins,
        )

    def _stream_writer(self) -> StreamWriter:
        return StreamWriter(
            self.appender,
            self.streams,
            self.database.transaction,
            now_ms,
            self.count,
            self._tracer,
        )

    @cached_property
    def lister(self) -> Lister:
        return Lister(self.reader, self.tags, self.losses, self._copies)

    @cached_property
    def portioner(self) -> Portioner:
        return Portioner(self.catch_up, self._copies, self.relays, self.log, self.losses.ranges)

    # WebSockets.

    @cached_property
    def _receiver(self) -> Receiver:
        registrar = Registrar(
            self.connections,
            self.registry,
            self.lanes,
            self.sockets,
            Settled(self.followers, self.log),
            self.profiles,
            self.guard,
            self.settings.feeds,
            now_ms,
            self.count,
        )
        return Receiver(
            self.connections,
            self.lanes,
            self.sockets,
            self.waker,
            self.catch_up,
            self.settings.feeds,
            self.guard,
            registrar,
        )

    @cached_property
    def _replayer(self) -> Replayer:
        sockets = self.sockets.for_replays
        delivery = Delivery(sockets, self.connections, sleep_ms, self.count)
        return Replayer(
            self.lanes,
            delivery,
            self.waker,
            self.catch_up,
            now_ms,
            new_id,
            self.profiles,
            self.charge_for,
            sockets,
        )

    # Chained feeds.

    @cached_property
    def _relay_control(self) -> RelayControl:
        settings = self.settings
        return RelayControl(
            self.relays,
            settings.sources,
            settings.feeds,
            self.reader,
            self.log,
            self.waker,
            settings.page_ms,
            self.profiles,
            self._coordinator,
        )

    @cached_property
    def _coordinator(self) -> SqliteCoordinator | None:
        return SqliteCoordinator(self._elections) if self._elections else None

    @property
    def _sum_reader(self) -> SumReader:
        return SumReader(self.sums, self.followers, self.sum_demand.note)

    def _relayer(self, feed: str) -> Relayer:
        """For one run: its upstream is asked with the password of *feed*."""
        from tidings.http.outbound.upstream import HttpUpstream  # most servers chain nothing

        upstream = HttpUpstream(lambda: self.relay_passwords.password(feed))
        bootstrapper = Bootstrapper(
            upstream,
            self.states,
            self.states,
            self.followers,
            self.log,
            self.waker,
            now_ms,
            new_id,
            self.tombstones,
            self.settings.tombstone_ms,
        )
        return Relayer(
            self.relays,
            upstream,
            self.settings.sources,
            bootstrapper,
            self.log,
            self.waker,
            now_ms,
            sleep_ms,
            new_id,
            self.count,
            self.settings.page_ms,
            self._sum_reader,
            self._coordinator,
        )

    # Maintenance.

    @cached_property
    def named_consumers(self) -> Consumers:
        view = LogView(self.reader, self.losses)
        return Consumers(ConsumerRepository(self.consumers), view, now_ms)

    @cached_property
    def indexer(self) -> Indexer:
        return Indexer(self.tags, self.reader, self.settings.page_ms)

    @cached_property
    def sweeper(self) -> Sweeper:
        settings = self.settings
        trimmer = Trimmer(
            self.reader,
            settings.retention,
            Renewer(self.log, one_by_one, now_ms, self.count, settings.page_ms),
            Purges(self.documents),
            MaxAges(self.profiles),
            ConsumerRetention(self.consumers, settings.consumer_cap),
            archives=self._archive is not None,
        )
        monitor = None
        if settings.sources:
            monitor = ReplicaMonitor(self.relays, settings.sources, self.waker, now_ms, self.count)
        return Sweeper(
            self.reader,
            self.followers,
            trimmer,
            self.connections,
            self.subscriptions,
            self.lanes,
            Delivery(self.sockets, self.connections, sleep_ms, self.count),
            self.waker,
            self.counters,
            one_by_one,
            ConsumerMonitor(self.named_consumers, settings.retention, self.count),
            self._archive is not None,
            monitor,
            self.profiles,
        )

    # What each function of the routes answers with.

    def _endpoints(self) -> dict[str, Endpoint]:
        settings, prefix = self.settings, self.settings.url_prefix
        ingester, feeds, guard = self._ingester, self.settings.feeds, self.guard
        objects = ChangeFeeds(self.registry, self.states, guard, feeds, self.charge_for)
        resources = Resources(objects)
        sums = FeedSums(self._sum_reader, guard, feeds)
        administrator = Administrator(self.documents, self.gate, feeds)
        return {
            "ingest": Operations(ingester, self.compatibility, prefix),
            "publish": Items(replace(ingester, lines=ItemLines(self.profiles))),
            "durable": StreamWrites(self._stream_writer(), guard, feeds, prefix),
            "propose": Changes(self._proposer()),
            "browse": ByPath({SUMS: lambda: sums}, resources),
            "consume": self._consumer_endpoint(),
            "amend": Corrections(self._corrector(), guard),
            "supervise": ReplicaRouter(
                self._relay_control, self.relay_passwords, guard, settings.sources
            ),
            "administer": Administration(administrator, self.lister, stage=STAGE, prefix=prefix),
            "report": Status(self._reporter(), feeds, prefix),
        }

    def _consumer_endpoint(self) -> ByPath:
        guard, feeds = self.guard, self.settings.feeds
        consumers = ConsumerRouter(self.named_consumers, guard, feeds)
        admin = WebhookAdmin(self._hooks, self.named_consumers, now_ms, secrets.token_bytes)
        hooks = WebhookRouter(self.named_consumers, guard, feeds, admin)
        keys = KeyRouter(KeyIssuer(self.keys, self.profiles, now_ms), guard, feeds)
        return ByPath({HOOKS: lambda: hooks, KEYS: lambda: keys}, consumers)

    @cached_property
    def _hooks(self) -> Registry:
        return Registry(self.stored_documents)

    def _webhooks(self) -> Webhooks:
        post = Poster(private=self.settings.hooks_private, timeout_s=limits.WEBHOOK_S)
        courier = Courier(self.named_consumers, self.profiles, post, now_ms, WEBHOOK_WORKER)
        return Webhooks(self._hooks, courier, self.settings.feeds, now_ms, post.close)

    def _proposer(self) -> Proposer:
        return Proposer(
            self.appender,
            self.gate,
            self.stored_documents,
            AskedHooks(private=self.settings.hooks_private),
            self.settings.feeds,
            self.count,
            self.counters,
            self._tracer,
        )

    def _corrector(self) -> Corrector:
        return Corrector(
            self.states,
            Filler(self.reader, self.settings.page_ms, self._copies),
            self._await_writer,
            new_id,
            self.settings.feeds,
            self.tombstones,
            self.writable,
        )

    def _reporter(self) -> Reporter:
        return Reporter(
            self.log,
            self.followers,
            self.counters,
            self.reader,
            self.settings.feeds,
            self._archive is not None,
            self._copies,
            lost=self.losses.ranges,
            condition=lambda feed: self.relays.relay(feed).status,
        )

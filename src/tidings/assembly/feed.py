"""The services of a host, each built when it is first used."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.log.due import NEXT_SWEEP, earliest
from tidings.core.model.feeds import ERASE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tidings.assembly.stores import Stores
    from tidings.core.archive.reader import ArchiveReader
    from tidings.core.auth.access import ReaderGate
    from tidings.core.auth.guard import Allowed, Credential, Guard, Role
    from tidings.core.auth.keys import KeyRing
    from tidings.core.auth.quotas import RateLimiter, ReadCharge
    from tidings.core.catchup.catchup import CatchUp
    from tidings.core.catchup.sse import Streamer
    from tidings.core.changeagent.documents import RecentDocuments
    from tidings.core.changeagent.list import Lister
    from tidings.core.changeagent.tag_index import Indexer
    from tidings.core.changeagent.users import UserAuthenticator
    from tidings.core.consumers.service import Consumers, Lag
    from tidings.core.effects import Clock, Runtime
    from tidings.core.erasure.eraser import Eraser, ErasureProgress
    from tidings.core.erasure.forget import Forgetter
    from tidings.core.erasure.records import Erasure
    from tidings.core.erasure.rewriting import TextEraser
    from tidings.core.erasure.service import ErasureReporter, Erasures
    from tidings.core.errors import StorageFailed
    from tidings.core.feeds.directory import Directory
    from tidings.core.feeds.records import FeedData
    from tidings.core.feeds.remover import Remover
    from tidings.core.feeds.service import Feeds
    from tidings.core.followers.follower import BuiltInFollowers, Follower, FollowerConfig, Handler
    from tidings.core.hooks.registry import WebhookAdmin
    from tidings.core.ingest.ingest import Ingester
    from tidings.core.log.append import Appender, Precondition
    from tidings.core.log.reader import Filler, Reader
    from tidings.core.maintenance.clients import ClientReporter, OpenRequests
    from tidings.core.maintenance.history import History
    from tidings.core.maintenance.retention import RetentionService
    from tidings.core.maintenance.status import Reporter
    from tidings.core.maintenance.sweep import Step, Sweeper
    from tidings.core.replication.admin import RelayControl
    from tidings.core.replication.copies import CopiedLosses, WriteGuard
    from tidings.core.replication.replicate import Relayer
    from tidings.core.replication.serve import ReplicationReader
    from tidings.core.replication.source import Sources
    from tidings.core.replication.wire import Upstream
    from tidings.core.settings.profiles import PushLanes, RecentProfiles
    from tidings.core.settings.values import Admission
    from tidings.core.state.projector import SumDemand, SumKeeper
    from tidings.core.state.removed_parents import RemovedParentsReader
    from tidings.core.state.rows import Row, StateStore
    from tidings.core.state.sums import SumReader
    from tidings.core.sync.apply import Corrector
    from tidings.core.tracing import Tracer
    from tidings.core.triton.objects import ObjectReader
    from tidings.core.websocket.connections import Lanes
    from tidings.core.websocket.push import Pusher
    from tidings.core.websocket.receive import Receiver
    from tidings.core.websocket.replay import Replayer
    from tidings.core.websocket.send import Broadcast, Delivery, Exchange
    from tidings.http.outbound.credentials import Tokens
    from tidings.http.request import Endpoint
    from tidings.http.settings import Shared
    from tidings.http.wire import Routes

INDEX, FORWARD = "index", "forward"  # jobs of the host, which the sweep wakes
KEY_BYTES = 32  # size of the random key for password digests; equals the size of a digest


class Assembly:
    """The object graph of one process.

    Imports are inside the properties, so that a Lambda function loads only the modules that it
    uses. A host overrides the class attributes and the first properties if it needs other values.

    Args:
        new_key: returns a random key of the given number of bytes.
    """

    stage = "local"
    target = "--stage STAGE"  # the option that error messages name in commands
    follower_config: FollowerConfig | None = (
        None  # if None, followers have the default configuration
    )
    sum_rows_max = limits.SUM_COUNT_ROWS  # maximum of rows counted at once for the sums
    few_subscriptions = 0  # read at once for a batch of push, if more than on a stage
    sum_demand: SumDemand | None = None  # if None, the sums of each feed are always maintained
    archive_wait_ms = 0
    forget_every_ms = limits.FORGET_EVERY * limits.SWEEP_EVERY_MS  # between two looks for deletions
    file_rewritten_ms: int | None = None  # of the database file, see `ErasureReporter`
    recovery_ms = 0  # how far back the tables can be restored, without backups of the operator
    stale_ms = 0  # the longest time for which another process may use the record of a deleted feed
    erasure_settle_ms = 0  # the longest time for which a process without its lease may still write
    broadcast: Broadcast | None = None  # sends a message to many WebSockets at once
    webhook_admin: WebhookAdmin | None = None  # if the host calls webhooks
    history: History | None = None  # the samples of the last hour, if the host keeps them
    text_erasers: Sequence[TextEraser] = ()  # of texts that only this host stores
    free_space: Callable[[], bool] | None = None  # overwrites that of a file; False if unfinished
    rest: Callable[[], object] | None = None  # is called within an erasure, see `ErasureProgress`
    records_erasures = True  # the followers record which feeds ever had an erasure

    @property
    def ca_file(self) -> str | None:
        """Return the file of CA certificates for outgoing requests; None for the system's file."""
        return None

    @property
    def exchange(self) -> Exchange | None:
        """Return a sender of concurrent WebSocket messages, or None to send one at a time."""
        return None

    @property
    def push_lanes(self) -> PushLanes | None:
        """Return the number of push lanes of each feed, or None if each feed has one lane."""
        return None

    @property
    def aging(self) -> Clock:
        """Return the clock that measures the age of cached values.

        It is the wall clock, because a steady clock may stop while a Lambda function is frozen.
        """
        return self.runtime.clock

    def __init__(
        self, *, stores: Stores, runtime: Runtime, settings: Shared, new_key: Callable[[int], bytes]
    ) -> None:
        self.stores, self.runtime, self.settings = stores, runtime, settings
        self._new_key = new_key
        self._endpoints: dict[str, Endpoint] = {}

    # Feeds and their settings.

    @cached_property
    def directory(self) -> Directory:
        """Return the feeds of this host, by name."""
        from tidings.core.feeds.directory import Directory

        return Directory(self.stores.feed_store, self.settings.feeds, self.aging, self.stale_ms)

    @cached_property
    def feed_service(self) -> Feeds:
        """Return the service that creates and deletes feeds."""
        from tidings.core.feeds.service import Feeds

        return Feeds(
            directory=self.directory,
            profiles=self.profiles,
            log=self.stores.log,
            numbers=self.stores.numbers,
            runtime=self.runtime,
            host=self,
        )

    def users_of(self, feed: str) -> list[str]:
        """Return what uses *feed*; implements `FeedHost`."""
        hooks = self.webhook_admin.registry.all(feed) if self.webhook_admin else {}
        names = [each.name for each in self.stores.consumers.consumers(feed)]
        return [
            *(f"the consumer {name}" for name in names if name not in hooks),
            *(f"the webhook {name}" for name in sorted(hooks)),
            *(["the relay, which copies its upstream"] if feed in self.copies else []),
        ]

    def on_feed_deleted(self, feed: str) -> None:
        """End the readers of the feed with the key *feed*, and start the removal of its data."""

    def wake(self, job: str, feed: str) -> None:
        """Start the job *job* of *feed* soon. A host without this job does nothing."""

    def if_exists(self, run: Callable[..., object]) -> Callable[..., None]:
        """Return a function that calls *run* for a feed that exists, and else does nothing.

        A wake-up may be an hour old, so its feed may be deleted. Work on it would write items that
        no job removes any more.
        """

        def run_existing(feed: str, *until_ms: int) -> None:
            if self.directory.exists(feed):
                run(feed, *until_ms)

        return run_existing

    @property
    def feed_data(self) -> FeedData:
        """Return all data that the host has of feeds."""
        raise NotImplementedError

    @cached_property
    def remover(self) -> Remover:
        """Return the job that removes the data of deleted feeds."""
        from tidings.core.feeds.remover import Remover

        return Remover(
            directory=self.directory,
            data=self.feed_data,
            runtime=self.runtime,
            settle_ms=self.erasure_settle_ms,
            overwrite=self.free_space,
        )

    @cached_property
    def profiles(self) -> RecentProfiles:
        from tidings.core.settings.profiles import RecentProfiles

        return RecentProfiles(self.stores.profiles, self.aging)

    @cached_property
    def documents(self) -> RecentDocuments:
        from tidings.core.changeagent.documents import RecentDocuments

        return RecentDocuments(self.stores.documents, self.aging)

    @cached_property
    def copies(self) -> Sources:
        """Return the sources of the feeds that are copies now. Without sources, load no module."""
        if not self.settings.sources:
            return self.settings.sources
        from tidings.core.replication.copies import Copies

        return Copies(self.settings.sources, lambda: self.stores.relays, self.aging)

    @cached_property
    def losses(self) -> CopiedLosses:
        from tidings.core.replication.copies import CopiedLosses

        return CopiedLosses(self.profiles, self.copies, lambda: self.stores.relays)

    def about(self, feed: str) -> None:
        """Record that *feed* is being swept, for log messages that do not name the feed."""

    # Authentication.

    @cached_property
    def guard(self) -> Guard:
        from tidings.core.auth.guard import FailedAttemptLimiter, Guard, PasswordCheck
        from tidings.core.auth.passwords import Verifier

        failures = FailedAttemptLimiter(self.aging, limits.MISSES_MAX)
        return Guard(
            profiles=self.profiles,
            passwords=PasswordCheck(Verifier(self._new_key(KEY_BYTES)), failures),
            open=self.settings.open and self.settings.issuer is None,
            bearers=(_LazyKeys(lambda: self.key_ring), *self.tokens),
            target=self.target,
            feed_names=self.directory,
        )

    @cached_property
    def key_ring(self) -> KeyRing:
        from tidings.core.auth.guard import FailedAttemptLimiter
        from tidings.core.auth.keys import KeyRing

        misses = FailedAttemptLimiter(self.aging, limits.MISSES_MAX)
        return KeyRing(self.stores.keys, self.runtime.clock, self.aging, misses, self.meter)

    @cached_property
    def tokens(self) -> Sequence[Tokens]:
        """Return the verifier of JWTs if the settings name an issuer."""
        if self.settings.issuer is None:
            return ()
        from tidings.http.outbound.credentials import Tokens, ask_over_http

        return (Tokens(self.settings.issuer, partial(ask_over_http, ca_certs=self.ca_file)),)

    @cached_property
    def gate(self) -> UserAuthenticator:
        import bcrypt  # noqa: F401 (loaded with the handler, not with the first password)

        from tidings.core.auth.guard import FailedAttemptLimiter
        from tidings.core.changeagent.users import UserAuthenticator, UserVerifier
        from tidings.http.outbound.credentials import matches_bcrypt

        return UserAuthenticator(
            operator_documents=self.documents,
            guard=self.guard,
            verifier=UserVerifier(matches_bcrypt, self._new_key(KEY_BYTES)),
            failures=FailedAttemptLimiter(self.aging, limits.USER_MISSES_MAX),
        )

    @cached_property
    def meter(self) -> RateLimiter:
        from tidings.core.auth.quotas import RateLimiter

        return RateLimiter(self.stores.key_usage, self.runtime.clock)

    @cached_property
    def reader_gate(self) -> ReaderGate:
        from tidings.core.auth.access import ReaderGate
        from tidings.core.auth.quotas import StreamQuota

        quota = StreamQuota(store=self.stores.key_usage, runtime=self.runtime)
        return ReaderGate(self.guard, quota, self.charge_for)

    def charge_for(self, feed: str, admission: Admission) -> ReadCharge:
        """Return the charge of a read; implements `Charges`."""
        from tidings.core.auth.quotas import free

        return (self.meter.charge_for if admission.rate else free)(feed, admission)

    # The log.

    @cached_property
    def reader(self) -> Reader:
        return self._reader(self.stores)

    def _reader(self, stores: Stores) -> Reader:
        from tidings.core.log.reader import Reader

        return Reader(
            log=stores.log,
            checkpoints=stores.followers,
            clock=self.runtime.clock,
            count=self.runtime.count,
            expiring=self.runtime.expiring,
        )

    @cached_property
    def filler(self) -> Filler:
        from tidings.core.log.reader import Filler

        return Filler(reader=self.reader, page_ms=self.settings.page_ms, chained=self.copies)

    @cached_property
    def writable(self) -> WriteGuard:
        """Return the guard that refuses writes to chained feeds."""
        from tidings.core.replication.copies import WriteGuard

        return WriteGuard(self.copies, lambda: self.stores.relays)

    @cached_property
    def appender(self) -> Appender:
        from tidings.core.log.append import Appender

        return Appender(
            log=self.stores.log,
            claims=self.stores.claims,
            runtime=self.runtime,
            check_writable=self.writable.check,
        )

    @cached_property
    def tracer(self) -> Tracer:
        from tidings.core.tracing import Tracer

        return Tracer(self.settings.traces, self.runtime)

    @cached_property
    def ingester(self) -> Ingester:
        from tidings.core.ingest.ingest import Ingester

        return Ingester(
            appender=self.appender,
            counters=self.stores.counters,
            guard=self.guard,
            required=self._precondition,
            tracer=self.tracer,
        )

    def _precondition(
        self, feed: str, allowed: Allowed, lines: Sequence[str]
    ) -> Precondition | None:
        """Return the precondition of a page; load its module only if parents restrict the key."""
        if allowed.bound.parents is None:
            return None
        from tidings.core.ingest.write_bounds import ParentBoundCheck

        bounds = ParentBoundCheck(self.stores.state, self.reader, self.runtime.await_writer)
        return bounds(feed, allowed, lines)

    # Readers with a cursor.

    @cached_property
    def removed_parents_reader(self) -> RemovedParentsReader:
        from tidings.core.state.removed_parents import RemovedParentsReader

        return RemovedParentsReader(self.stores.removed_parents, self.stores.followers)

    @cached_property
    def archive_reader(self) -> ArchiveReader | None:
        if self.stores.archive is None:
            return None
        from tidings.core.archive.reader import ArchiveReader

        return ArchiveReader(self.stores.archive, self.runtime.count, self.aging)

    @cached_property
    def catch_up(self) -> CatchUp:
        from tidings.core.catchup.catchup import CatchUp

        return CatchUp(
            reader=self.reader,
            states=self.stores.state,
            tombstones=self.stores.tombstones,
            removed_parents_reader=self.removed_parents_reader,
            losses=self.losses,
            archive=self.archive_reader,
        )

    @cached_property
    def prefetch(self) -> Callable[[StateStore], StateStore]:
        """Return a function that wraps the state store of a stream, to prefetch rows for a copy."""
        from tidings.http.streams.row_prefetch import ReadAhead

        return ReadAhead()

    @cached_property
    def streamer(self) -> Streamer:
        from tidings.core.catchup.sse import Streamer

        return Streamer(self.catch_up, self.reader_gate, self.prefetch)

    @cached_property
    def lister(self) -> Lister:
        from tidings.core.changeagent.list import Lister

        return Lister(self.reader, self.runtime.steady, self.stores.tags, self.losses)

    @cached_property
    def replication_reader(self) -> ReplicationReader:
        from tidings.core.replication.serve import ReplicationReader

        return ReplicationReader(self.catch_up, self.losses)

    @cached_property
    def sum_reader(self) -> SumReader:
        from tidings.core.state.sums import SumReader

        on_read = () if self.sum_demand is None else (self.sum_demand.note,)
        return SumReader(self.stores.sums, self.stores.followers, *on_read)

    # Followers.

    @cached_property
    def built_in_followers(self) -> BuiltInFollowers:
        from tidings.core.followers.follower import BuiltInFollowers

        return BuiltInFollowers(self.stores.archive is not None, self.lanes.count)

    @cached_property
    def follower(self) -> Follower:
        from tidings.core.followers.follower import Follower

        follower = Follower(
            store=self.stores.followers,
            reader=self.reader,
            filler=self.filler,
            waker=self.stores.waker,
            runtime=self.runtime,
        )
        if self.follower_config is None:
            return follower
        return replace(follower, follower_config=self.follower_config)

    @cached_property
    def archive_follower(self) -> Follower:
        from tidings.core.archive.writer import ARCHIVE_CONFIG, ArchiveReadAhead

        stores, runtime = self.stores, self.runtime
        read_ahead = ArchiveReadAhead(
            log=stores.log, checkpoints=stores.followers, clock=runtime.clock, count=runtime.count
        )
        return replace(self.follower, reader=read_ahead, follower_config=ARCHIVE_CONFIG)

    def trace(self, handler: Handler, late_ms: int | None = None) -> Handler:
        """Wrap *handler* to trace its pages and to report pages that are older than *late_ms*."""
        from tidings.core.followers.follower import TracingHandler

        late_ms = self.settings.late_ms if late_ms is None else late_ms
        return TracingHandler(handler=handler, runtime=self.runtime, late_ms=late_ms)

    def archiver(self) -> Handler:
        """Return the archive's handler. No page is late, as no reader waits for the file."""
        from tidings.core.archive.writer import Archiver

        assert self.stores.archive is not None, "this host has no archive"
        return self.trace(Archiver(self.stores.archive, self.runtime.count), late_ms=0)

    @cached_property
    def sum_keeper(self) -> SumKeeper:
        from tidings.core.state.projector import SumKeeper, always

        wanted = always if self.sum_demand is None else self.sum_demand.wants
        return SumKeeper(self.stores.sums, self.stores.state, wanted, self.sum_rows_max)

    def projector(self) -> Handler:
        """Return the handler that maintains the state."""
        from tidings.core.state.projector import Projector, RemovedParentsWriter

        stores, runtime = self.stores, self.runtime
        parents = RemovedParentsWriter(
            stores.removed_parents, self.profiles, stores.waker, stores.tombstones, runtime
        )
        projector = Projector(
            states=stores.state,
            parents=parents,
            tombstones=stores.tombstones,
            sums=self.sum_keeper,
            runtime=runtime,
            on_erasure=self._record_erasure,
        )
        return self.trace(projector)

    def pusher(self, lane: int = 0) -> Handler:
        """Return the handler that pushes to the WebSockets of *lane*."""
        return self.trace(self._pusher(lane))

    def _pusher(self, lane: int) -> Pusher:
        from tidings.core.websocket.push import Lane, Pusher

        return Pusher(
            lane=Lane(
                lanes=self.lanes,
                subscriptions=self.stores.subscriptions,
                followers=self.stores.followers,
                number=lane,
                few=self.few_subscriptions,
            ),
            delivery=self.delivery,
            reader=self.reader,
            removed_parents_reader=self.removed_parents_reader,
            profiles=self.profiles,
            chained=self.copies,
        )

    @cached_property
    def indexer(self) -> Indexer:
        from tidings.core.changeagent.tag_index import Indexer

        steady = self.runtime.steady
        return Indexer(self.stores.tags, self.reader, steady, self.settings.page_ms)

    # WebSockets.

    @cached_property
    def lanes(self) -> Lanes:
        from tidings.core.websocket.connections import Lanes

        lanes = Lanes(self.stores.inbox, self.stores.waker, self.runtime.new_id)
        if self.push_lanes is None:
            return lanes
        return replace(lanes, count=self.push_lanes, recount=self.push_lanes.fresh)

    @cached_property
    def delivery(self) -> Delivery:
        from tidings.core.websocket.send import Delivery

        return Delivery(
            sockets=self.stores.sockets,
            connections=self.stores.connections,
            runtime=self.runtime,
            exchange=self.exchange,
            broadcast=self.broadcast,
        )

    @cached_property
    def receiver(self) -> Receiver:
        from tidings.core.websocket.receive import Receiver, Registrar

        stores = self.stores
        registrar = Registrar(
            registry=stores.registry,
            lanes=self.lanes,
            delivery=self.delivery,
            checkpoints=stores.followers,
            guard=self.guard,
        )
        return Receiver(
            lanes=self.lanes,
            delivery=self.delivery,
            catch_up=self.catch_up,
            guard=self.guard,
            registrar=registrar,
        )

    @cached_property
    def replayer(self) -> Replayer:
        from tidings.core.websocket.replay import Replayer

        return Replayer(
            lanes=self.lanes,
            delivery=replace(self.delivery, sockets=self.stores.replay_sockets),
            catch_up=self.catch_up,
            profiles=self.profiles,
            charges=self.charge_for,
            room=self.stores.replay_room,
        )

    # Chained feeds.

    @cached_property
    def relay_control(self) -> RelayControl:
        from tidings.core.replication.admin import RelayControl, RelayReporter

        reporter = RelayReporter(
            store=self.stores.relays,
            sources=self.settings.sources,
            feed_names=self.directory,
            reader=self.reader,
            coordinator=self.stores.coordinator,
        )
        return RelayControl(reporter, self.stores.waker, self.profiles, self.runtime)

    def upstream(self, feed: str) -> Upstream:
        """Return the client for the upstream of *feed*. It sends the upstream's password."""
        from tidings.http.outbound.upstream import HttpUpstream

        return HttpUpstream(lambda: self.stores.relay_passwords.password(feed), self.ca_file)

    def relayer(self, feed: str) -> Relayer:
        """Return a new relay that copies *feed* in one run."""
        from tidings.core.replication.bootstrap import Bootstrapper, StateLease
        from tidings.core.replication.replicate import Relayer

        stores, runtime = self.stores, self.runtime
        bootstrapper = Bootstrapper(
            upstream=self.upstream(feed),
            states=stores.state,
            log=stores.log,
            tombstones=stores.tombstones,
            lease=StateLease(stores.followers, stores.waker, runtime),
            runtime=runtime,
        )
        return Relayer(
            store=stores.relays,
            sources=self.settings.sources,
            bootstrapper=bootstrapper,
            runtime=runtime,
            sums=self.sum_reader,
            coordinator=stores.coordinator,
        )

    # Named consumers.

    @cached_property
    def consumers(self) -> Consumers:
        from tidings.core.consumers.log_view import LogView
        from tidings.core.consumers.service import ConsumerRepository, Consumers

        view = LogView(self.reader, self.losses)
        return Consumers(ConsumerRepository(self.stores.consumers), view, self.runtime.clock)

    # Erasures.

    @cached_property
    def erasures(self) -> Erasures:
        """Return the service for requests of erasures."""
        from tidings.core.erasure.service import Erasures
        from tidings.core.ingest.write_bounds import ParentBoundCheck

        stores, runtime = self.stores, self.runtime
        current = ParentBoundCheck(stores.state, self.reader, runtime.await_writer)
        return Erasures(self.appender, current, stores.erasures, runtime, stores.erasure_ledger)

    @cached_property
    def erasure_reporter(self) -> ErasureReporter:
        from tidings.core.erasure.service import ErasureReporter

        return ErasureReporter(
            consumers=self.stores.consumers,
            keys=self.stores.keys,
            runtime=self.runtime,
            archives=self.stores.archive is not None,
            file_rewritten_ms=self.file_rewritten_ms,
            recovery_ms=self.recovery_ms,
        )

    @cached_property
    def erasure_progress(self) -> ErasureProgress:
        from tidings.core.erasure.eraser import ErasureProgress

        progress = ErasureProgress(store=self.stores.erasures, profiles=self.profiles)
        return replace(progress, rest=self.rest) if self.rest else progress

    @cached_property
    def eraser(self) -> Eraser:
        """Return the job that erases."""
        from tidings.core.erasure import eraser, rewriting
        from tidings.core.erasure.records import Phase

        stores, runtime, progress = self.stores, self.runtime, self.erasure_progress
        ledger, settle_ms = stores.erasure_ledger, self.erasure_settle_ms
        consumers = rewriting.ConsumerTexts(stores.consumers, stores.rewrites, stores.log)
        texts = [*self.text_erasers, rewriting.KeyTexts(progress, stores.keys, runtime)]
        steps: dict[Phase, eraser.Step] = {
            Phase.PARENTS: eraser.ParentCorrections(
                progress, self.reader, self.corrector, self.copies
            ),
            Phase.WAITING: eraser.FollowerWait(
                progress, self.reader, self.built_in_followers, stores.waker, ledger
            ),
            Phase.LOG: rewriting.LogRewriter(
                progress, stores.log, stores.rewrites, stores.removed_parents, runtime, settle_ms
            ),
            Phase.PARKED: rewriting.TextRewriter(progress, consumers, texts, runtime, settle_ms),
            Phase.ARCHIVE: rewriting.ArchiveRewriter(progress, stores.archive),
            Phase.SPACE: eraser.SpaceOverwriter(
                progress, runtime, self.free_space, ledger, self.on_nothing_erased
            ),
            Phase.KEPT: eraser.TombstoneEnd(progress, self.reader, stores.state, runtime),
        }
        return eraser.Eraser(stores.erasures, steps, runtime)

    @cached_property
    def forgetter(self) -> Forgetter:
        """Return the search for old deletions."""
        from tidings.core.erasure.forget import Forgetter

        return Forgetter(
            profiles=self.profiles,
            documents=self.stores.documents,
            erasures=self.erasures,
            runtime=self.runtime,
            archive=self.archive_reader,
            chained=self.copies,
        )

    def _record_erasure(self, feed: str, row: Row) -> None:
        """Record the erasure with its entry in *row*, unless it is known, and start it."""
        from tidings.core.erasure.records import erasure_of

        self.stores.erasures.save(feed, erasure_of(row, self.settings.tombstone_ms))
        self.wake(ERASE, feed)

    def on_nothing_erased(self, feed: str, erasure: Erasure) -> None:
        """Log that *erasure* has found no data."""

    def wake_due_erasures(self, feed: str, erases: bool) -> int | None:
        """Wake the job if an erasure of *feed* is due, or if a deletion can be forgotten.

        Return the time at which the job has work again, or None. If *erases* is False, the feed
        never had an erasure. The sweep has read the profile, so a feed without both costs no read.
        """
        next_ms = None
        if erases or not self.records_erasures:
            from tidings.core.erasure.records import due_ms

            next_ms = due_ms(self.stores.erasures.unfinished(feed))
            if next_ms is not None and next_ms <= self.runtime.expiring():
                self.wake(ERASE, feed)
                return NEXT_SWEEP
        if not self.profiles.profile(feed).forget_after_days:
            return next_ms
        forget_ms, now_ms = self.forgetter.due_ms(feed), self.runtime.clock()
        if forget_ms is not None and forget_ms <= now_ms:
            # Pages become old one after the other, and each run costs a start of the job.
            every_ms = self.forget_every_ms
            if now_ms % every_ms < limits.SWEEP_EVERY_MS:
                self.wake(ERASE, feed)
            forget_ms = now_ms - now_ms % every_ms + every_ms
        return earliest((next_ms, forget_ms))

    # Maintenance.

    @cached_property
    def open_requests(self) -> OpenRequests:
        """Return the requests of this process that send events or wait for them."""
        from tidings.core.maintenance.clients import OpenRequests

        return OpenRequests()

    @cached_property
    def client_reporter(self) -> ClientReporter:
        from tidings.core.maintenance.clients import SubscribedClients

        return SubscribedClients(
            subscriptions=self.stores.subscriptions,
            checkpoints=self.stores.followers,
            counters=self.stores.counters,
            log=self.stores.log,
            clock=self.runtime.clock,
            lanes=self.lanes.count,
        )

    @cached_property
    def retention_service(self) -> RetentionService:
        from tidings.core.changeagent.config import Purges
        from tidings.core.consumers.service import ConsumerRetention
        from tidings.core.maintenance.retention import Renewer, RetentionService
        from tidings.core.settings.profiles import MaxAges

        return RetentionService(
            reader=self.reader,
            retention=self.settings.retention,
            renewer=Renewer(log=self.stores.log, rounds=self.stores.renewals, runtime=self.runtime),
            rules=(Purges(self.documents), MaxAges(self.profiles)),
            holds=ConsumerRetention(self.stores.consumers, self.settings.consumer_cap),
            followers=self.built_in_followers,
        )

    def observe_lags(self, feed: str, lags: Sequence[Lag]) -> None:
        """Note the *lags* of the consumers of *feed*, which the sweep visits."""

    @cached_property
    def sweeper(self) -> Sweeper:
        from tidings.core.maintenance.sweep import (
            ConnectionSweeper,
            FeedVisit,
            FollowerMonitor,
            Sweeper,
        )

        stores = self.stores
        followers = FollowerMonitor(
            reader=self.reader,
            store=stores.followers,
            waker=stores.waker,
            subscriptions=stores.subscriptions,
            followers=self.built_in_followers,
            archive_wait_ms=self.archive_wait_ms,
        )
        connections = ConnectionSweeper(
            self.delivery, self.lanes, self.directory, self.profiles, stores.counters, self.runtime
        )
        return Sweeper(
            due_feeds=stores.due_feeds,
            feed_names=self.directory,
            runtime=self.runtime,
            visit=FeedVisit(followers=followers, steps=self.sweep_steps(), about=self.about),
            connections=connections,
            chained=self.settings.sources,
        )

    def sweep_steps(self) -> dict[str, Step]:
        """Return the steps of the sweep's visit to a feed after the followers, by name."""
        from tidings.core.changeagent.tag_index import IndexMonitor
        from tidings.core.consumers.service import ConsumerMonitor
        from tidings.core.ingest.outbox import OutboxMonitor

        stores, settings, runtime = self.stores, self.settings, self.runtime
        retention, wake = self.retention_service, self.wake_due_erasures
        consumers = ConsumerMonitor(
            self.consumers, settings.retention, runtime.count, self.observe_lags
        )
        index = IndexMonitor(stores.tags, partial(self.wake, INDEX), runtime.clock)
        steps: dict[str, Step] = {}
        if settings.sources:
            from tidings.core.replication.admin import ReplicaMonitor

            relays = ReplicaMonitor(
                store=stores.relays, sources=settings.sources, waker=stores.waker, runtime=runtime
            )
            steps["the relay"] = lambda feed, _: relays.run(feed)
        steps["the retention"] = lambda feed, look: retention.run(feed, look).next_ms
        steps["the consumers"] = lambda feed, _: consumers.run(feed)
        steps["the index"] = lambda feed, look: index.run(feed, head=look.head) if look else None
        if stores.outbox is not None:
            outbox = OutboxMonitor(
                outbox=stores.outbox, wake=partial(self.wake, FORWARD), runtime=runtime
            )
            steps["the outbox"] = lambda feed, _: outbox.run(feed)
        steps["the erasures"] = lambda feed, look: wake(feed, look.erases) if look else None
        return steps

    @cached_property
    def corrector(self) -> Corrector:
        from tidings.core.sync.apply import Corrector

        return Corrector(
            states=self.stores.state,
            filler=self.filler,
            runtime=self.runtime,
            feed_names=self.directory,
            tombstones=self.stores.tombstones,
            writable=self.writable,
        )

    def storage_problem(self) -> StorageFailed | None:
        """Return a problem of the storage that an operator has to solve; a stage knows none."""
        return None

    @cached_property
    def reporter(self) -> Reporter:
        """Return the reporter for `/status`. It does not retry, to report a failing store soon."""
        from tidings.core.maintenance.status import Reporter

        without_retries = self.stores.without_retries
        return Reporter(
            store=(without_retries or self.stores).followers,
            counters=self.stores.counters,
            reader=self._reader(without_retries) if without_retries else self.reader,
            feed_names=self.directory,
            followers=self.built_in_followers,
            losses=self.losses,
        )

    # The routes.

    def endpoint(self, function: str) -> Endpoint:
        """Return the endpoint for the routes of *function* in `tidings.http.routes`."""
        if function not in self._endpoints:
            self._endpoints[function] = self.builders[function]()
        return self._endpoints[function]

    @property
    def builders(self) -> Mapping[str, Callable[[], Endpoint]]:
        """Return the builder of each HTTP function's endpoint, by function name."""
        return {
            "administer": self._administer,
            "amend": self._amend,
            "browse": self._browse,
            "consume": self._consume,
            "ingest": self._ingest,
            "propose": self._propose,
            "publish": self._publish,
            "report": self._report,
            "supervise": self._supervise,
        }

    def _ingest(self) -> Endpoint:
        from tidings.http.endpoints.producers import Operations

        return Operations(self.ingester, self.settings.url_prefix)

    def _publish(self) -> Endpoint:
        from tidings.core.triton.items import Items as ItemLines
        from tidings.http.endpoints.producers import Items

        return Items(replace(self.ingester, lines=ItemLines(self.profiles)))

    def _propose(self) -> Endpoint:
        from tidings.core.changeagent.submit import Proposer
        from tidings.http.endpoints.producers import Changes
        from tidings.http.outbound.webhooks import Webhooks

        proposer = Proposer(
            appender=self.appender,
            gate=self.gate,
            operator_documents=self.stores.documents,
            ask=Webhooks(private=self.settings.hooks_private),
            counters=self.stores.counters,
            tracer=self.tracer,
        )
        return Changes(proposer)

    def _browse(self) -> Endpoint:
        from tidings.http.endpoints.browse import FeedBrowser
        from tidings.http.router import by_path

        browser = FeedBrowser(
            guard=self.guard,
            registry=self.stores.registry,
            objects=self.object_reader,
            sums=self.sum_reader,
        )
        return by_path({"/feeds/{feed}/clients": self._clients}, browser)

    def _clients(self) -> Routes:
        from tidings.http.endpoints.clients import FeedClients

        return FeedClients(self.guard, self.client_reporter)

    @cached_property
    def object_reader(self) -> ObjectReader:
        from tidings.core.triton.objects import ObjectReader

        return ObjectReader(self.stores.state, self.charge_for)

    def _consume(self) -> Endpoint:
        from tidings.http.router import by_path

        below: dict[str, Callable[[], Endpoint]] = {
            "/feeds/{feed}/hooks": self._hooks,
            "/feeds/{feed}/keys": self._keys,
            "/feeds/{feed}/access": self._reports,
            "/feeds/{feed}/history": self._reports,
        }
        return by_path(below, self._consumers())

    def _consumers(self) -> Routes:
        from tidings.http.endpoints.consumers import ConsumerRouter

        admin = self.webhook_admin
        webhooks = admin.registry.all if admin else None
        return ConsumerRouter(self.consumers, self.guard, webhooks)

    def _hooks(self) -> Routes:
        from tidings.http.endpoints.hooks import WebhookRouter

        return WebhookRouter(self.consumers, self.guard, self.webhook_admin)

    def _reports(self) -> Endpoint:
        from tidings.http.endpoints.reports import FeedReports

        return FeedReports(self.guard, self.history)

    def _keys(self) -> Routes:
        from tidings.core.auth.keys import KeyIssuer
        from tidings.http.endpoints.keys import KeyRouter

        changed = self.key_ring.forget
        issuer = KeyIssuer(self.stores.keys, self.profiles, self.runtime.clock, changed)
        return KeyRouter(issuer=issuer, guard=self.guard, new_key=self._new_key)

    def _amend(self) -> Endpoint:
        from tidings.http.router import by_path

        below: dict[str, Callable[[], Endpoint]] = {
            "/feeds/{feed}/erasures": self._erasures,
            "/feeds/{feed}/corrections": self._corrections,
            "/feeds": self._feeds,  # the last one, because the other paths begin with it, too
        }
        return by_path(below)

    def _corrections(self) -> Endpoint:
        from tidings.http.endpoints.corrections import Corrections

        return Corrections(self.guard, self.corrector)

    def _feeds(self) -> Routes:
        from tidings.http.endpoints.feeds import FeedRouter

        return FeedRouter(self.guard, self.feed_service)

    def _erasures(self) -> Routes:
        from tidings.http.endpoints.erasures import ErasureRouter

        return ErasureRouter(self.guard, self.erasures, self.erasure_reporter)

    def _supervise(self) -> Routes:
        from tidings.http.endpoints.replication import ReplicaRouter

        return ReplicaRouter(self.relay_control, self.stores.relay_passwords, self.guard)

    def _administer(self) -> Endpoint:
        """Build the operators' endpoint.

        If the stores retry, the endpoint reads documents without retries and without a cache, to
        report the health at once while a store fails.
        """
        from tidings.core.changeagent.config import Administrator
        from tidings.http.endpoints.admin import Administration

        without_retries = self.stores.without_retries
        administrator = Administrator(
            operator_documents=without_retries.documents if without_retries else self.documents,
            gate=self.gate,
        )
        return Administration(
            administrator,
            self.lister,
            stage=self.stage,
            prefix=self.settings.url_prefix,
            storage=self.storage_problem,
        )

    def _report(self) -> Endpoint:
        from tidings.http.endpoints.status import Status

        return Status(self.reporter, self.settings.url_prefix, self.storage_problem)


class _LazyKeys:
    """Implements `Bearers` with the key ring, loaded when the first key is presented."""

    def __init__(self, key_ring: Callable[[], KeyRing]) -> None:
        self._key_ring = key_ring

    def knows(self, given: Credential) -> bool:
        from tidings.core.auth.guard import KEY_PREFIX  # the caller has loaded this module

        return given.secret.startswith(KEY_PREFIX) and self._key_ring().knows(given)

    def may_block(self, feed: str, given: Credential) -> bool:
        return self._key_ring().may_block(feed, given)

    def authorize(self, feed: str, role: Role, given: Credential) -> Allowed:
        return self._key_ring().authorize(feed, role, given)

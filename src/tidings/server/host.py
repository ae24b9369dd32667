"""The objects of a server, assembled on one SQLite file, and the threads that run them."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain, islice
from threading import local
from typing import TYPE_CHECKING

from tidings.assembly.feed import INDEX, Assembly
from tidings.core import limits
from tidings.core.changeagent.documents import USERS
from tidings.core.durable_streams.service import StreamReader, StreamWriter
from tidings.core.effects import Runtime, one_by_one
from tidings.core.erasure.rewriting import StreamTexts
from tidings.core.errors import TidingsError, Unavailable
from tidings.core.feeds.records import Removed
from tidings.core.feeds.remover import FeedDataParts
from tidings.core.followers.follower import ARCHIVE, STATE, FollowerConfig
from tidings.core.hooks.attempts import AttemptLog
from tidings.core.hooks.registry import Registry, WebhookAdmin
from tidings.core.hooks.webhook import WebhookDelivery
from tidings.core.maintenance.clients import LocalClients
from tidings.core.maintenance.history import Figures, History
from tidings.core.maintenance.restore import Restorer, Rewinder
from tidings.core.maintenance.sweep import Failures
from tidings.core.model.feeds import ERASE, HOST, PUSH, public_name
from tidings.core.newest import Newest
from tidings.core.replication.relay import RELAY
from tidings.core.settings.profiles import ProfileStore, close
from tidings.core.state.projector import SumDemand
from tidings.http.durable_streams import StreamReads, StreamWrites
from tidings.http.outbound.folder_archive import FolderFeedFiles
from tidings.http.outbound.webhooks import Poster
from tidings.server.local import LocalAdmin
from tidings.server.meters import EVENT_STREAM, WEBSOCKET, Meters
from tidings.server.posts import Posts
from tidings.server.recovery import Generations, Recovery, SqliteStarts
from tidings.server.sockets import Sockets
from tidings.server.sqlite.database import CommitSteps, Database
from tidings.server.sqlite.erasures import SqliteFreeSpace
from tidings.server.sqlite.records import deleted_feeds, feeds_with_webhooks, used_but_open
from tidings.server.sqlite.removal import SqliteFeedData
from tidings.server.stores import FileStores
from tidings.server.wakeups import FeedNotifications, Rests, Runs, Wakeups, Webhooks
from tidings.server.writer import StateProjection, Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tidings.core.consumers.service import Lag
    from tidings.core.effects import TraceRecord
    from tidings.core.erasure.records import Erasure
    from tidings.core.errors import StorageFailed
    from tidings.core.feeds.records import FeedData
    from tidings.core.followers.follower import Handler
    from tidings.core.model.pages import Page
    from tidings.http.outbound.credentials import Tokens
    from tidings.http.request import Endpoint
    from tidings.http.wire import Routes
    from tidings.server.issuer_keys import IssuerKeys
    from tidings.server.settings import Settings

log = logging.getLogger(__name__)
traces = logging.getLogger("tidings.traces")
traces.setLevel(logging.INFO)  # traces are logged without --verbose too: a client requested them
# The owner of the webhooks' leases. It is the same in each process, so that a new process takes
# over the leases of a crashed one. This is safe, because only one process can open the file.
WEBHOOK_WORKER = "tidings-serve"
# The pause after a run, as a multiple of the run's duration. An erasure is never urgent.
REST, ERASE_REST = 1.0, 3.0
AGAIN_S = 2.0  # the pause while an erasure or a removal waits, for example for a backup
ERASE_MS = 10  # the duration of a run; the pause after it is longer
REMOVE_MS = 100  # the duration of a run, which then stores its position
# The kinds of records on which the workers of webhooks depend.
_OF_WEBHOOKS = frozenset({"consumer", "erasure", "profile", "relay"})
REMOVE = "remove"  # the job that removes deleted feeds, woken like a follower of the host
IDLE_PUSH_S = 1.0  # between two runs of push for a feed, when no client is connected
# All batches are large, including the first one: the store is local, and a row costs half as much
# if many rows are written at once.
STATE_CONFIG = FollowerConfig(operations_max=20_000, operations_first=20_000)
FEW_SUBSCRIPTIONS = 5_000  # indexed at once, in some 10 ms, after one of them has changed
SUM_ROWS_MAX = 250  # rows counted for the sums in one step of the event loop, in some 2 ms
BEGAN_MS, _BEGAN_S = time.time_ns() // 1_000_000, time.monotonic()
THREADS = 32  # threads for requests, except those that share a commit (`Host.GROUPED`)
REPLAY_THREADS = 8  # threads for catch-ups of WebSockets; a catch-up does not wait for its client
SLOW_THREADS = 32  # threads for requests that wait for operators' webhooks or for unwritten pages
# Threads for requests with a large body. Python runs one thread at a time, so more would only make
# the event loop wait longer for its turn.
HEAVY_THREADS = 2
SLOW_HEAVY_THREADS = 4  # the same for requests that may wait, as above


def now_ms() -> int:
    """Implement `Clock`."""
    return time.time_ns() // 1_000_000


def steady_ms() -> int:
    """Return a time that is never adjusted: the start time of the process plus the time since."""
    return BEGAN_MS + round((time.monotonic() - _BEGAN_S) * 1000)


def expiring_ms() -> int:
    """Return the time that decides expiry: the earlier of the wall clock and `steady_ms`.

    So nothing expires too early while the wall clock is ahead.
    """
    return min(now_ms(), steady_ms())


def sleep_ms(ms: int) -> None:
    """Implement `Sleep`."""
    time.sleep(ms / 1000)


def new_id() -> str:
    """Implement `NewId`: an id that is unique across processes, but not secret."""
    return f"{random.getrandbits(128):032x}"


def write_trace(record: TraceRecord) -> None:
    """Implement `TraceSink`: log one line for a traced page, and a warning for a late page."""
    fields = record._asdict()
    trace_id = fields.pop("trace")
    place = " ".join(f"{name}=%({name})s" for name in fields)
    if trace_id:
        traces.info(f"traced trace_id=%(trace_id)s {place}", {"trace_id": trace_id, **fields})
    else:
        traces.warning(f"late {place}", fields)


def _request_pools() -> dict[tuple[bool, bool], ThreadPoolExecutor]:
    """Return the threads for requests, by whether these are slow (`Host.SLOW`), and heavy."""
    return {
        (False, False): ThreadPoolExecutor(THREADS, "request"),
        (False, True): ThreadPoolExecutor(HEAVY_THREADS, "heavy-request"),
        (True, False): ThreadPoolExecutor(SLOW_THREADS, "slow-request"),
        (True, True): ThreadPoolExecutor(SLOW_HEAVY_THREADS, "slow-heavy-request"),
    }


class Host(Assembly):
    """The feeds in the file at *path*, served by the event loop *loop*.

    Requests to the functions in `GROUPED` append, and share a commit. Requests to the functions in
    `SLOW` may wait for other hosts.
    """

    GROUPED = frozenset({"ingest", "publish", "durable"})
    SLOW = frozenset({"propose", "amend"})
    stores: FileStores
    target = "--data FOLDER"
    follower_config = STATE_CONFIG
    aging = staticmethod(steady_ms)
    sum_rows_max = SUM_ROWS_MAX
    records_erasures = False
    forget_every_ms = limits.SWEEP_EVERY_MS
    history: History
    webhook_admin: WebhookAdmin
    few_subscriptions = FEW_SUBSCRIPTIONS

    def __init__(
        self,
        path: Path,
        settings: Settings,
        *,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.path, self.database, self.meters = path, Database(path), Meters(loop)
        is_rewritten = SqliteFreeSpace(self.database).rewrite_file()
        self.file_rewritten_ms = now_ms() if is_rewritten else 0
        self._counters = ThreadCounters()
        self.count = self._counters.add  # implements `Count`
        self.notifications = FeedNotifications(loop, self.meters.push[EVENT_STREAM].observe)
        self.sockets = Sockets(loop, self._replay_soon, self.meters.push[WEBSOCKET].observe)
        self._pools = _request_pools()
        self._replays = ThreadPoolExecutor(REPLAY_THREADS, thread_name_prefix="replay")
        self.writer = Writer(self.database, loop, self.meters.commits.observe)
        self.waker = Wakeups(loop, self._replay_soon)
        self._traced = Newest[str, int]()  # the last page with a trace of each feed
        self._recent = Newest[str, None](limits.FEEDS_NAMED)  # the feeds that have grown last
        self.late_consumers: dict[str, Sequence[Lag]] = {}  # lags of feeds with a late consumer
        self.sum_demand = SumDemand(steady_ms, self.waker)
        stores = FileStores(
            self.database,
            settings,
            sockets=self.sockets,
            waker=self.waker,
            sum_demand=self.sum_demand,
            expiring=expiring_ms,
        )
        runtime = Runtime(
            clock=now_ms,
            steady=steady_ms,
            expiring=expiring_ms,
            sleep=sleep_ms,
            new_id=new_id,
            count=self.count,
            spread=one_by_one,
            trace=write_trace,
            await_writer=self._await_writer,
            page_ms=settings.page_ms,
            tombstone_ms=settings.tombstone_ms,
        )
        super().__init__(stores=stores, runtime=runtime, settings=settings, new_key=os.urandom)
        self.broadcast, self.history = self.sockets.broadcast, History(self._figures)
        self.free_space, self.rest = stores.free_space.overwrite, Rests(ERASE_REST)
        self.text_erasers = (StreamTexts(stores.streams, stores.log),)
        self._hook_registry, self._attempts = Registry(stores.documents), AttemptLog(now_ms())
        self.webhook_admin = WebhookAdmin(
            self._hook_registry,
            self.consumers,
            now_ms,
            secrets.token_bytes,
            self._attempts,
            private=settings.hooks_private,
        )
        self.issuer_keys = _issuer_keys(*self.tokens)
        self._follow()
        self.webhooks = self._webhooks()
        self.database.steps = CommitSteps(
            submit=self.writer.submit,
            check_feed=self.directory.check,
            write_more=self.state.project,
            count=self.history.count,
            record=self._generations.last_pages.record,
            record_changed=self._on_record,
            committed=self._on_commit,
        )

    @classmethod
    async def open(cls, path: Path, settings: Settings) -> Host:
        """Return a host for the running event loop, opened in a thread.

        Raises:
            CannotOpen: see `Database`.
        """
        loop = asyncio.get_running_loop()
        return await asyncio.to_thread(cls, path, settings, loop=loop)

    def start(self) -> None:
        """Repair the data that the previous process left incomplete, and start the followers.

        The feeds with work are found by statements over all feeds, so idle feeds cost nothing.
        """
        for function in self.builders:
            self.endpoint(function)  # loads the modules now, not for the first request
        self._warn_of_deleted()
        self._repair()
        lagging = self.stores.due_feeds.lagging()
        for feed in lagging:
            # Push starts at the end of the log, because no client is connected yet. If the log has
            # a hole, push starts before it: otherwise pages that are written into the hole later
            # would count as handled, and clients would not receive them.
            with suppress(Unavailable):  # the log is damaged: push continues at its checkpoint
                self.stores.followers.set_checkpoint(feed, PUSH, self._recovery.end(feed))
        self.waker.start()
        self.webhooks.start()
        for feed in lagging:
            self.waker.wake(feed, STATE)
        for feed in self.stores.due_feeds.erasing(expiring_ms()):
            self.waker.wake(feed, ERASE)
        for feed in self.settings.sources:
            # Release the lock of the relay of *feed*. At the start, only a killed process holds it.
            relay = self.stores.relays.relay(feed)
            if relay.owner:
                self.stores.relays.write(relay, replace(relay, owner="", lease_until_ms=0))
            self.waker.wake(feed, RELAY)
        self.waker.wake(HOST, REMOVE)

    def storage_problem(self) -> StorageFailed | None:
        return self.database.find_problem() or self.database.storage.damage

    def _warn_of_deleted(self) -> None:
        """Warn once of the configured feeds that were deleted, because they are not served."""
        for name in deleted_feeds(self.database):
            if name in self.settings.feeds:
                log.warning(
                    "the feed %(feed)s is configured, but was deleted; `tidings feeds create"
                    " %(feed)s` creates a new feed of that name",
                    {"feed": name},
                )

    # Feeds that are created and deleted while the server runs.

    def on_feed_deleted(self, feed: str) -> None:
        """Disconnect the WebSockets of *feed*, and start the removal.

        Other readers check the directory, and end within two seconds.
        """
        self.late_consumers.pop(feed, None)
        self.sweeper.connections.disconnect(feed)
        self.notifications.look_soon(feed)
        self.waker.wake(HOST, REMOVE)

    @cached_property
    def posts(self) -> Posts:
        return Posts(self.ingester, self.stores.log, self.writer)

    @cached_property
    def feed_data(self) -> FeedData:
        database = SqliteFeedData(self.database, self.stores.followers, steady_ms)
        files = FolderFeedFiles(self.stores.folder)
        return FeedDataParts((self._generations, database, files, self))

    def remove(self, key: str, resume_at: str, until_ms: int) -> Removed:
        """Implement `FeedData`: remove a deleted feed from the memory of this process."""
        self.notifications.loop.call_soon_threadsafe(self._forget, key)
        return Removed(None, {})

    def _forget(self, feed: str) -> None:
        """Remove *feed*, in the event loop, which also writes the state; see also `Newest`."""
        self.webhooks.reload(feed)
        self.state.forget(feed)
        self.sum_keeper.forget(feed)

    def _remove(self, _: str) -> None:
        """Remove data of deleted feeds for a short time; continue in the next run."""
        if self.remover.run(steady_ms() + REMOVE_MS):
            self.waker.wake(HOST, REMOVE)
        elif self.remover.waits():
            self.waker.wake_later(HOST, REMOVE, AGAIN_S)

    def _repair(self) -> None:
        """Close feeds, fill holes, begin new generations and repeat erasures, where needed."""
        for feed in used_but_open(self.database):
            users = self.stores.documents.operator_document(feed, USERS).text
            is_used = users or any(self.stores.keys.keys(feed))
            if is_used and not self.profiles.profile(feed).closed:
                close(self.profiles, feed)
        for feed in self.stores.due_feeds.lagging():
            try:
                self._archive_again(feed)
                self._recover(feed)
            except Unavailable as error:  # such as a full disk; acknowledged pages remain readable
                log.warning(
                    "%(feed)s: holes not filled, next attempt in a minute: %(error)s",
                    {"feed": feed, "error": error},
                )
        self._generations.begin()
        for feed in self.stores.erasure_ledger.feeds():
            if feed not in self.copies:
                self._erase_lost(feed)

    def _erase_lost(self, feed: str) -> None:
        """Request the erasures again that a restored data file lacks."""
        try:
            for erasure in self.erasures.request_again(feed):
                log.warning(
                    "%(feed)s: an erasure was requested again: %(erasure)s",
                    {"feed": feed, "erasure": erasure.id},
                )
        except (TidingsError, OSError, ValueError) as error:  # such as a full disk
            log.warning(
                "%(feed)s: erasures were not requested again: %(error)s",
                {"feed": feed, "error": error},
            )

    @property
    def managed(self) -> Mapping[str, Callable[[], Routes]]:
        """Return the builders of the routes that operators may call, by the name of their class."""
        return {
            "ConsumerRouter": self._consumers,
            "ErasureRouter": self._erasures,
            "FeedClients": self._clients,
            "FeedRouter": self._feeds,
            "KeyRouter": self._keys,
            "LocalAdmin": self._local_admin,
            "ReplicaRouter": self._supervise,
            "WebhookRouter": self._hooks,
        }

    def _local_admin(self) -> LocalAdmin:
        # Not `profiles`, which would add the passwords in the options of this process.
        return LocalAdmin(ProfileStore(self.stores.records), self.documents, now_ms)

    def _archive_again(self, feed: str) -> None:
        """Move the checkpoint of the archive back to before the first hole.

        Do nothing if the checkpoint is already before the hole. No other reader can
        have passed the hole.
        """
        holes, archived = self._recovery.unwritten(feed), self.stores.followers.checkpoints(feed)
        if holes and archived.get(ARCHIVE, 0) >= holes[0].first:
            (note,) = (
                each.note for each in self.stores.followers.leases(feed) if each.name == ARCHIVE
            )
            self.stores.followers.set_checkpoint(feed, ARCHIVE, holes[0].first - 1, note=note)

    def _recover(self, feed: str) -> None:
        for numbers in self._recovery.fill(feed):
            log.warning(
                "%(feed)s: filled %(pages)s, which a killed process did not write",
                {"feed": feed, "pages": numbers},
            )
            self.count("HolesFilled", numbers.last - numbers.first + 1)

    @cached_property
    def _recovery(self) -> Recovery:
        return Recovery(
            database=self.database,
            log=self.stores.log,
            checkpoints=self.stores.followers,
            chained=self.copies,
            clock=now_ms,
            page_ms=self.settings.page_ms,
        )

    @cached_property
    def _generations(self) -> Generations:
        restorer = Restorer(
            reader=self.reader,
            numbers=self.stores.log,
            profiles=self.profiles,
            archive=self.stores.archive,
            rewinder=Rewinder(self.stores.followers, self.stores.consumers, self.runtime),
            runtime=self.runtime,
        )
        starts, chained = SqliteStarts(self.database), self.settings.sources
        return Generations(self.directory, starts, restorer, self.stores.relays, chained)

    @property
    def pool(self) -> ThreadPoolExecutor:
        """Return the threads for requests that are neither slow nor heavy."""
        return self._pools[False, False]

    def pool_of(self, function: str, *, is_heavy: bool) -> ThreadPoolExecutor:
        """Return the threads for the requests to *function*; see `HEAVY_THREADS`."""
        return self._pools[function in self.SLOW, is_heavy]

    async def stop(self) -> None:
        """Stop all threads and close the file."""
        self.state.stop()
        await asyncio.to_thread(self.webhooks.stop)
        await asyncio.to_thread(self.waker.stop)
        for pool in (self._replays, *self._pools.values()):
            pool.shutdown(wait=False, cancel_futures=True)
        try:
            await self.writer.write(lambda: None)  # a transaction writes the pending checkpoints
        except Unavailable as error:  # such as a full disk
            log.warning("checkpoints not written, so some pages will be handled again: %s", error)
        await self.writer.stop()
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self.database.close()
        self._generations.close()
        if self.stores.elections:
            self.stores.elections.close()

    def sweep(self) -> None:
        """Run the scheduled sweep, once a minute. A step that fails does not stop the others.

        Raises:
            ExceptionGroup: the errors of the failed steps.
        """
        self.database.find_problem()  # which logs a new problem
        failures = Failures()
        with failures.record("the history"):
            self.history.sample(now_ms(), [*self.late_consumers])
        with failures.record("the sweep"):
            self.sweeper.run()
        with failures.record("the file feed.db.started"):
            self._generations.renew()
        with failures.record("the search for holes"):
            lagging = self.stores.due_feeds.lagging()
            for feed in lagging:
                with failures.record(f"the repair of the feed {feed}"):
                    self._recover(feed)
        with failures.record("the deletion of expired rows"):
            self.database.delete_expired(expiring_ms())
        if failures.count:
            raise ExceptionGroup(f"{failures.count} steps failed", failures.errors)

    @property
    def metrics(self) -> Counter[str]:
        """Return the current totals of all counters."""
        return self._counters.totals()

    def receive(self, connection_id: str, text: str) -> None:
        self.receiver.receive(connection_id, text)

    # A commit wakes the followers, and the readers that wait at the end of the log.

    def _on_commit(self, pages: Sequence[tuple[str, Page]]) -> None:
        traced = {}
        for feed, page in pages:
            if page.trace:
                traced[feed] = self._traced[feed] = page.number
        has_clients = self.sockets.count > 0
        for feed in dict(pages):
            if next(reversed(self._recent), None) != feed:
                self._recent[feed] = None
            if has_clients:
                self.sockets.mark_committed(feed)
            if has_clients or feed in traced:
                self.waker.wake(feed, PUSH)
            else:
                self.waker.wake_seldom(feed, PUSH, IDLE_PUSH_S)
            self.webhooks.wake(feed)
        self.notifications.notify(pages)

    @cached_property
    def client_reporter(self) -> LocalClients:
        return LocalClients(
            requests=self.open_requests,
            connections=self.stores.connections,
            checkpoints=self.stores.followers,
            log=self.stores.log,
            user_agent=self.sockets.user_agent,
        )

    def _figures(self, feed: str) -> Figures:
        """Return the figures of *feed*; read the followers first, so that no lag is negative."""
        self.directory.check(feed)
        checkpoints = self.stores.followers.checkpoints(feed)
        head = self.stores.log.head(feed)
        lags = {name: max(0, head - page) for name, page in sorted(checkpoints.items())}
        for consumer, lag in self.consumers.all(feed):
            lags[f"consumer {consumer.name}"] = lag.pages
        return Figures(head, lags)

    def recent_feeds(self) -> frozenset[str]:
        """Return up to `limits.FEEDS_NAMED` feeds: the last to have grown, then others by name."""
        recent = list(self._recent)[::-1]
        recent = [each for each in recent if self.directory.find(public_name(each)) == each]
        found = dict.fromkeys(chain(recent, islice(self.directory.all_keys(), limits.FEEDS_NAMED)))
        return frozenset(islice(found, limits.FEEDS_NAMED))

    def observe_lags(self, feed: str, lags: Sequence[Lag]) -> None:
        """Keep the lags of a feed with a late consumer. The sweep visits it each minute."""
        late = [lag for lag in lags if lag.pages or lag.fell_off]
        if late:
            self.late_consumers[feed] = late
        else:
            self.late_consumers.pop(feed, None)

    def _on_record(self, feed: str, kind: str) -> None:
        """Discard a cached record of *feed*, and wake its webhooks if they may have changed."""
        self.posts.forget()
        if kind == "feed":
            self.directory.forget()
        if kind == "profile":  # `save` discarded it before the commit
            self.profiles.forget(feed)
        if kind == "operator-document":
            self.webhooks.reload(feed)
        elif kind in _OF_WEBHOOKS:
            self.webhooks.wake(feed)

    def _replay_soon(self, connection_id: str) -> None:
        self._replays.submit(self._replay, connection_id)

    def _replay(self, connection_id: str) -> None:
        try:
            self.replayer.run(connection_id)
        except Exception:
            log.exception("a catch-up failed; the sweep will continue it")

    def _follow(self) -> None:
        follower, pusher, loop = self.follower, self.pusher(), self.notifications.loop
        self.state = StateProjection(
            writer=self.writer,
            followers=self.stores.followers,
            follower=follower,
            handler=self.projector(),
            on_appended=self.notifications.look,  # readers with `leave=true` wait for the state
        )
        push = lambda feed: self._push(feed, pusher)  # noqa: E731
        runs = {
            PUSH: Runs(PUSH, self.if_exists(push), REST, loop),
            ERASE: Runs(ERASE, self.if_exists(self._erase), ERASE_REST, loop),
            REMOVE: Runs(REMOVE, self._remove, ERASE_REST, loop),
        }
        if self.stores.archive is not None:
            archiver, archiving = self.archiver(), self.archive_follower
            archive = self.if_exists(lambda feed: archiving.run(feed, archiver))
            runs[ARCHIVE] = Runs(ARCHIVE, archive, REST, loop)
        relay = self.if_exists(lambda feed: self.relayer(feed).run(feed))
        sources = self.settings.sources
        relays = {feed: Runs(RELAY, relay, REST, loop) for feed in sources}
        self.waker.follow(self.state.wake, runs, relays)

    def on_nothing_erased(self, feed: str, erasure: Erasure) -> None:
        log.warning(
            "%(feed)s: erasure %(erasure)s has found no data; check its type and id",
            {"feed": feed, "erasure": erasure.id},
        )

    def _erase(self, feed: str) -> None:
        """Work on the erasures of *feed* for a short time; continue in the next run."""
        more = self.forgetter.run(feed, steady_ms() + ERASE_MS)
        more |= self.eraser.run(feed, steady_ms() + ERASE_MS)
        if self.archive_reader is not None:
            self.archive_reader.forget()
        if more:
            self.waker.wake(feed, ERASE)
        elif self.eraser.waits(feed):
            self.waker.wake_later(feed, ERASE, AGAIN_S)

    def wake(self, job: str, feed: str) -> None:
        if job == INDEX:
            self.indexer.run(feed)
        else:
            self.database.on_commit(partial(self.waker.wake, feed, job))

    def _push(self, feed: str, pusher: Handler) -> None:
        """Run push for *feed*. Without connected clients, skip the pages that state has handled.

        A client that connects later receives all pages after its cursor before it joins push, so it
        misses nothing. Pages with a trace are not skipped, because their handling is reported.
        """
        checkpoints = self.stores.followers.checkpoints(feed)
        handled, pushed = checkpoints.get(STATE, 0), checkpoints.get(PUSH, 0)
        if not self.sockets.count and self._traced.get(feed, 0) <= pushed < handled:
            self.stores.followers.set_checkpoint(feed, PUSH, handled)
        with self.sockets.pushing(feed):
            self.follower.run(feed, pusher)

    def _await_writer(self, ms: int) -> None:
        """Implement `Sleep` for a reader that waits until the page of a taken number is written."""
        if self.database.is_writing:
            raise Unavailable("a page of the log is missing; run `tidings verify`")
        sleep_ms(ms)

    # Durable streams and webhooks, which only the server has.

    @property
    def builders(self) -> Mapping[str, Callable[[], Endpoint]]:
        return {**super().builders, "durable": self._durable}

    def _durable(self) -> Endpoint:
        writer = StreamWriter(
            appender=self.appender,
            store=self.stores.streams,
            runtime=self.runtime,
            tracer=self.tracer,
        )
        settings = self.settings
        return StreamWrites(writer, self.guard, settings.url_prefix)

    def stream_reads(self) -> StreamReads:
        """Return the ASGI app for reads of durable streams."""
        reader = StreamReader(self.stores.streams, self.reader, self.losses)
        return StreamReads(reader, self.reader_gate, self.settings.cors_origins)

    def _webhooks(self) -> Webhooks:
        post = Poster(
            private=self.settings.hooks_private,
            timeout_s=limits.WEBHOOK_S,
            observe=self.meters.count_call,
        )
        delivery = WebhookDelivery(
            consumers=self.consumers,
            profiles=self.profiles,
            post=post,
            runtime=self.runtime,
            worker=WEBHOOK_WORKER,
            attempts=self._attempts,
        )
        feeds = partial(feeds_with_webhooks, self.database)
        return Webhooks(self._hook_registry, delivery, feeds, now_ms, post.close)


def _issuer_keys(tokens: Tokens | None = None) -> IssuerKeys | None:
    if tokens is None:
        return None
    from tidings.server.issuer_keys import IssuerKeys  # most servers have no issuer

    return IssuerKeys(tokens)


class ThreadCounters:
    """Counters of the process. Each thread increments counters of its own, so no lock is needed."""

    def __init__(self) -> None:
        self._own = local()
        self._all: list[Counter[str]] = []

    def add(self, metric: str, value: int) -> None:
        """Add *value* to *metric*."""
        try:
            counter = self._own.counter
        except AttributeError:
            counter = self._own.counter = Counter()
            self._all.append(counter)
        counter[metric] += value

    def totals(self) -> Counter[str]:
        """Return the sums over all threads, including threads that have ended."""
        totals: Counter[str] = Counter()
        for counter in list(self._all):
            totals.update(dict(counter))
        return totals

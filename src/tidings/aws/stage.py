"""The objects of a stage, assembled on DynamoDB and Lambda, and the parts only a stage has."""

from __future__ import annotations

import os
import random
from dataclasses import asdict
from functools import cache, cached_property
from typing import TYPE_CHECKING

from tidings.assembly.feed import Assembly
from tidings.aws import clients, telemetry
from tidings.aws.config.settings import (
    DAY_S,
    METRICS_FOR_ALARMS,
    Settings,
    from_environment,
    is_snapshot,
)
from tidings.aws.effects import Threads, new_runtime, now_ms
from tidings.aws.stores import StageStores
from tidings.core import limits
from tidings.http.settings import WrongSetting

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tidings.aws.effects import Threads
    from tidings.core.attention import AlarmRules, Alert
    from tidings.core.effects import TraceRecord
    from tidings.core.erasure.records import Erasure
    from tidings.core.feeds.records import FeedData
    from tidings.core.followers.follower import Follower, Handler
    from tidings.core.ingest.outbox import Forwarder
    from tidings.core.ingest.table_capture import Capture, Capturer
    from tidings.core.settings.profiles import PushLanes
    from tidings.core.websocket.send import Exchange

REMOVE = "remove"  # the function that removes the data of deleted feeds
SPREAD_WORKERS = 16  # threads; each waits for a store, or for API Gateway's answer about one client


class Stage(Assembly):
    """The objects of a stage in one process of Lambda."""

    stores: StageStores
    settings: Settings
    stale_ms = limits.FEED_STALE_MS
    recovery_ms = limits.RECOVERY_DAYS * DAY_S * 1000

    def __init__(self, settings: Settings) -> None:
        super().__init__(
            stores=StageStores(settings),
            runtime=new_runtime(settings, self.count, self._spread, write_trace),
            settings=settings,
            new_key=os.urandom,
        )
        self.stage = settings.stage
        self.archive_wait_ms = settings.archive_wait_ms
        self.erasure_settle_ms = settings.erasure_settle_ms

    def count(self, metric: str, value: int) -> None:
        """Implement `Count`: compare *value* with the limit of the metric, and write the metric."""
        self.alarm_rules(metric, value)

    @cached_property
    def alarm_rules(self) -> AlarmRules:
        """Return the rules of alarms. Powertools is imported when the first metric is written."""
        from tidings.core.attention import AlarmRules, rules

        written = None if self.settings.all_metrics else METRICS_FOR_ALARMS

        def write(metric: str, value: int) -> None:
            if written is None or metric in written:
                telemetry.count(metric, value)

        return AlarmRules(write, _log_alert, now_ms, rules(self.settings.lag_pages_max))

    def _spread(self, task: Callable[[str], None], items: Sequence[str]) -> None:
        self._threads(task, items)

    @cached_property
    def _threads(self) -> Threads:
        return Threads(SPREAD_WORKERS)

    def about(self, feed: str) -> None:
        self.alarm_rules.feed = feed

    @cached_property
    def ca_file(self) -> str | None:
        return clients.ca_certs()

    @property
    def exchange(self) -> Exchange:
        return self.stores.sockets.exchange

    @cached_property
    def push_lanes(self) -> PushLanes:
        from tidings.core.settings.profiles import PushLanes

        return PushLanes(self.profiles)

    # Feeds.

    def wake(self, job: str, feed: str) -> None:
        self.stores.waker.run(job, feed)

    def by_key(self, numbers: Mapping[str, str]) -> dict[str, str]:
        """Return *numbers* by the keys of the feeds that exist under the names in *numbers*.

        Names under which no feed exists are left out, such as those of refused messages.

        Raises:
            Unavailable: the store does not answer.
        """
        from tidings.core.model.feeds import public_name

        found = {self.directory.find(public_name(name)): each for name, each in numbers.items()}
        return {key: each for key, each in found.items() if key is not None}

    def on_feed_deleted(self, feed: str) -> None:
        self.wake(REMOVE, feed)

    def mark_outboxes(self) -> None:
        """Mark the feeds with messages in the outbox, because the producers do not mark them.

        The stream of the table usually wakes the forwarder before.
        """
        for name in self.stores.outbox.waiting():
            key = self.directory.find(name)
            if key is not None:
                self.stores.due_feeds.mark(key)

    def wake_remover(self) -> None:
        """Wake the job that removes the data of deleted feeds, if it has work."""
        if self.remover.has_work():
            self.wake(REMOVE, "")

    def remove(self, until_ms: int) -> None:
        """Continue the removal of deleted feeds; see `Remover`."""
        self.remover.run(until_ms)

    @cached_property
    def feed_data(self) -> FeedData:
        return self.stores.feed_data(self._disconnect, self._outbox_until, self.runtime)

    def _outbox_until(self, name: str) -> int:
        """Return the time before which messages for *name* belong to no feed that exists."""
        now = self.runtime.clock()
        record = self.directory.fresh(name)
        return 0 if record is not None and record.is_live else now

    def _disconnect(self, feed: str, connection_id: str) -> None:
        from tidings.core.errors import FeedDeleted
        from tidings.core.model.feeds import public_name

        self.delivery.end(connection_id, FeedDeleted(public_name(feed)))

    # Followers. Each function runs one follower.

    @cached_property
    def deployed_follower(self) -> Follower:
        from tidings.core.model.feeds import ARCHIVE

        return self.archive_follower if self.settings.follower == ARCHIVE else self.follower

    @cached_property
    def _handlers(self) -> dict[int, Handler]:
        return {}

    def handler(self, lane: int = 0) -> Handler:
        """Return the handler of this function's follower; *lane* is the lane of a push follower.

        Raises:
            WrongSetting: TIDINGS_FOLLOWER is not a follower, or it is `archive` and TIDINGS_ARCHIVE
                is not set.
        """
        if lane not in self._handlers:
            self._handlers[lane] = self._handler(lane)
        return self._handlers[lane]

    def _handler(self, lane: int) -> Handler:
        from tidings.core.model.feeds import ARCHIVE, PUSH, STATE

        follower = self.settings.follower
        if follower == ARCHIVE and self.stores.archive is None:
            rule = "must be set for the follower `archive`"
            raise WrongSetting("TIDINGS_ARCHIVE", "", rule)
        builders: dict[str, Callable[[], Handler]] = {
            STATE: self.projector,
            PUSH: lambda: self.pusher(lane),
            ARCHIVE: self.archiver,
        }
        if follower not in builders:
            rule = f"must be {STATE}, {PUSH} or {ARCHIVE}"
            raise WrongSetting("TIDINGS_FOLLOWER", follower, rule)
        return builders[follower]()

    def checkpoint(self, feed: str) -> int:
        """Return the checkpoint of `state`: the state of *feed* has all pages up to this page."""
        from tidings.core.model.feeds import STATE

        return self.stores.followers.checkpoints(feed).get(STATE, 0)

    def on_nothing_erased(self, feed: str, erasure: Erasure) -> None:
        telemetry.logger().warning("erasure found nothing", feed=feed, id=erasure.id)

    def erase(self, feed: str, until_ms: int) -> None:
        """Request the erasure of old deletions, then run the job; see `Forgetter` and `Eraser`.

        If the job waits for followers, which it has woken, run it again a few times after short
        pauses. Otherwise the erasure would wait for the sweep.
        """
        self.forgetter.run(feed, until_ms)
        for _ in range(limits.ERASE_POLLS):
            if self.eraser.run(feed, until_ms) or not self.eraser.awaits_followers(feed):
                break
            self.runtime.sleep(limits.ERASE_POLL_MS)
        if self.archive_reader is not None:
            self.archive_reader.forget()

    def erase_lost(self, feed: str, until_ms: int) -> None:
        """Request the erasures again that a restored log of *feed* lacks, then erase."""
        for erasure in self.erasures.request_again(feed):
            telemetry.logger().warning("erasure requested again", feed=feed, id=erasure.id)
        self.erase(feed, until_ms)

    # Producers that write to tables.

    @cached_property
    def forwarder(self) -> Forwarder:
        from tidings.core.ingest.outbox import ITEMS, OPERATIONS, Forwarder
        from tidings.core.triton.items import Items

        return Forwarder(
            outbox=self.stores.outbox,
            appender=self.appender,
            lines={OPERATIONS: self.ingester.lines, ITEMS: Items(self.profiles)},
            runtime=self.runtime,
        )

    @property
    def capturer(self) -> Capturer:
        """Return the worker that captures a table, for the feed that has the name now.

        Raises:
            FeedDeleted: the feed was deleted, so writes are not captured.
        """
        from dataclasses import replace

        from tidings.core.errors import FeedDeleted
        from tidings.core.ingest.table_capture import Capturer

        name = self._capture.feed
        try:
            key = self.directory.key(name)
        except FeedDeleted:  # it may have been created again a moment ago
            self.directory.forget()
            key = self.directory.key(name)
        return Capturer(
            replace(self._capture, feed=key), self.appender, self.stores.outbox, self.count
        )

    @cached_property
    def _capture(self) -> Capture:
        from tidings.core.ingest.table_capture import parse

        return parse(self.settings.capture)


@cache
def stage() -> Stage:
    """Return the stage of this process, as its environment describes it."""
    return Stage(from_environment())


def prepare_snapshot(build: Callable[[], object]) -> None:
    """Import the modules that *build* needs before Lambda takes a snapshot of this process.

    With SnapStart, many processes start from the memory of one process (ADR 54). The snapshot must
    not contain state that has to differ between processes: ids, random keys, times, and clients
    with their connections and credentials. *build* creates all of this. So before the snapshot,
    *build* is called only for its imports, and its results are discarded. Without SnapStart this
    function does nothing, and the first request builds the objects.
    """
    if not is_snapshot():
        return
    from snapshot_restore_py import register_after_restore, register_before_snapshot

    register_before_snapshot(rehearse, build)
    # Botocore's retries have random delays. If all processes had the random state of the snapshot,
    # they would retry at the same moments.
    register_after_restore(random.seed)


def rehearse(build: Callable[[], object]) -> None:
    """Call *build*, then discard the objects, except for botocore's parsed service descriptions."""
    try:
        build()
    finally:
        forget()


def forget() -> None:
    """Discard the stage and its clients, so that they are built again on the next use."""
    stage.cache_clear()
    for part in vars(clients).values():
        clear = getattr(part, "cache_clear", None)
        if clear is not None:
            clear()


def write_trace(record: TraceRecord) -> None:
    """Implement `TraceSink`: log a line for a traced page, and a warning for a late page."""
    fields = record._asdict()
    trace_id = fields.pop("trace")
    if trace_id:
        telemetry.logger().info("traced", trace_id=trace_id, **fields)
    else:
        telemetry.logger().warning("late", **fields)


def _log_alert(alert: Alert) -> None:
    """Log the details of *alert*, which the alarm does not contain."""
    telemetry.logger().warning("metric above its limit", **asdict(alert))

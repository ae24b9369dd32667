"""
The composition root: settings become adapters, adapters become what a handler calls.

Every part is built once per process, when it is first asked for. Imports stand inside the
builders for the same reason: a function loads and connects only what it uses.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from tidings.aws.config.settings import WrongSetting
from tidings.aws.runtime import clients
from tidings.aws.runtime.clock import now_ms, sleep_ms
from tidings.aws.wiring import adapters, auth, catchup, chained, ingest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidings.core.catchup.sse import Streamer
    from tidings.core.followers.follower import Follower, Handler
    from tidings.core.maintenance.sweep import Sweeper
    from tidings.core.websocket.receive import Receiver
    from tidings.core.websocket.replay import Replayer
    from tidings.core.websocket.send import Delivery
    from tidings.http.endpoints.status import Status


@cache
def delivery() -> Delivery:
    from tidings.core.websocket.send import Delivery

    sockets = adapters.sockets()
    return Delivery(sockets, adapters.connections(), sleep_ms, adapters.count, sockets.exchange)


@cache
def follower() -> Follower:
    from tidings.aws.wiring import archive
    from tidings.core.followers.follower import ARCHIVE, Follower

    made = Follower(
        adapters.followers(),
        adapters.reader(),
        ingest.filler(),
        adapters.waker(),
        sleep_ms,
        adapters.new_id,
    )
    return archive.with_habits(made) if adapters.settings().follower == ARCHIVE else made


@cache
def follower_handler(lane: int = 0) -> Handler:
    """
    What this function's follower does; *lane* is the one of push.

    Raises:
        WrongSetting: TIDINGS_FOLLOWER names none.
    """
    from tidings.aws.wiring import archive
    from tidings.core.followers.follower import TracingHandler
    from tidings.core.followers.lanes import PUSH
    from tidings.core.followers.names import ARCHIVE, STATE

    known: dict[str, Callable[[], Handler]] = {
        STATE: _projector,
        PUSH: lambda: _pusher(lane),
        ARCHIVE: archive.handler,
    }
    build = known.get(adapters.settings().follower)
    if build is None:
        rule = f"must be {STATE}, {PUSH} or {ARCHIVE}"
        raise WrongSetting("TIDINGS_FOLLOWER", adapters.settings().follower, rule)
    handler = build()
    late_ms = 0 if handler.name == ARCHIVE else adapters.settings().late_ms  # nobody waits for it
    return TracingHandler(handler, now_ms, adapters.tell_passage, late_ms)


def _projector() -> Handler:
    from tidings.core.state.projector import Projector
    from tidings.core.state.sum_keeper import SumKeeper

    kept_ms = adapters.settings().tombstone_ms, adapters.settings().page_ms
    return Projector(
        adapters.state(),
        adapters.departures(),
        adapters.profiles(),
        adapters.waker(),
        now_ms,
        adapters.tombstones(),
        SumKeeper(adapters.sums(), adapters.state()),
        *kept_ms,
    )


@cache
def _pusher(lane: int) -> Handler:
    from tidings.aws.runtime.thread_pool import Threads
    from tidings.core.websocket.push import Pusher

    return Pusher(
        adapters.lanes(),
        adapters.watches(),
        delivery(),
        adapters.reader(),
        Threads(adapters.SPREAD_WORKERS),
        adapters.departure_reader(),
        adapters.profiles(),
        adapters.followers(),
        chained.copies(),
        lane=lane,
    )


@cache
def receiver() -> Receiver:
    from tidings.aws.wiring.triton import registrar
    from tidings.core.websocket.receive import Receiver

    return Receiver(
        adapters.connections(),
        adapters.lanes(),
        adapters.sockets(),
        adapters.waker(),
        catchup.catch_up(),
        adapters.settings().feeds,
        auth.guard(),
        registrar(),
    )


@cache
def replayer() -> Replayer:
    from tidings.aws.wiring.auth import charge_for
    from tidings.core.websocket.replay import Replayer

    return Replayer(
        adapters.lanes(),
        delivery(),
        adapters.waker(),
        catchup.catch_up(),
        now_ms,
        adapters.new_id,
        adapters.profiles(),
        charge_for,
    )


@cache
def streamer() -> Streamer:
    from tidings.aws.wiring.auth import charge_for, holding
    from tidings.core.catchup.sse import Streamer
    from tidings.http.streams.row_prefetch import ReadAhead

    return Streamer(
        catchup.catch_up(),
        adapters.settings().feeds,
        auth.guard(),
        holding(),
        ReadAhead(),
        charge_for,
    )


@cache
def sweeper() -> Sweeper:
    from tidings.aws.dynamodb.renewals import DynamoDBRenewals
    from tidings.aws.runtime.thread_pool import Threads
    from tidings.aws.wiring import changeagent, consumers, replication, triton
    from tidings.core.changeagent.config import Purges
    from tidings.core.log.renewal import Renewer
    from tidings.core.maintenance.retention import Trimmer
    from tidings.core.maintenance.sweep import Sweeper
    from tidings.core.settings.profiles import MaxAges

    renewals = DynamoDBRenewals(
        clients.dynamodb(), adapters.settings().log_table, adapters.settings().control_table
    )
    threads = Threads(adapters.SPREAD_WORKERS)
    renewer = Renewer(renewals, threads, now_ms, adapters.count, adapters.settings().page_ms)
    archives = adapters.settings().archive != ""
    trimmer = Trimmer(
        adapters.reader(),
        adapters.settings().retention,
        renewer,
        Purges(changeagent.operator_documents()),
        MaxAges(adapters.profiles()),
        consumers.holds(),
        archives,
        adapters.push_lanes(),
    )
    return Sweeper(
        adapters.reader(),
        adapters.followers(),
        trimmer,
        adapters.connections(),
        adapters.watches(),
        adapters.lanes(),
        delivery(),
        adapters.waker(),
        adapters.tallies(),
        threads,
        consumers.watch(),
        archives,
        replication.watch(),
        adapters.profiles(),
        adapters.settings().archive_wait_ms,
        changeagent.index_monitor(),
        triton.outbox_monitor(),
        _about,
    )


def _about(feed: str) -> None:
    """Implements `Sweeper.about`: findings name the feed that is swept."""
    adapters.judge().feed = feed


@cache
def status() -> Status:
    """On stores that ask once: a report is to say that they do not answer while it is asked."""
    from tidings.aws.dynamodb.followers import DynamoDBFollowers
    from tidings.aws.dynamodb.log import DynamoDBLog
    from tidings.core.log.reader import Reader
    from tidings.core.maintenance.status import Reporter
    from tidings.http.endpoints.status import Status

    settings, client = adapters.settings(), clients.dynamodb_once()
    log = DynamoDBLog(client, settings.log_table, settings.control_table)
    followers = DynamoDBFollowers(client, settings.control_table)
    reporter = Reporter(
        log,
        followers,
        adapters.tallies(),
        Reader(log, log, followers, now_ms, adapters.count),
        settings.feeds,
        settings.archive != "",
        chained.copies(),
        adapters.push_lanes(),
        chained.losses().ranges,
        lambda feed: chained.store().relay(feed).status,
    )
    return Status(reporter, settings.feeds, settings.url_prefix)

"""
The composition root: settings become adapters, adapters become what a handler calls.

Every part is built once per process, when it is first asked for. Imports stand inside the
builders for the same reason: a function loads and connects only what it uses.
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING

from . import clients
from .clock import now_ms, sleep_ms
from .settings import Settings, WrongSetting, from_environment

if TYPE_CHECKING:
    from tidings.core.access import Guard
    from tidings.core.append import Appender
    from tidings.core.catchup import CatchUp
    from tidings.core.delivery import Delivery
    from tidings.core.departure_reader import DepartureReader
    from tidings.core.followers import Follower, Handler
    from tidings.core.ingesting import Ingester
    from tidings.core.manners import Manners
    from tidings.core.profiles import RecentProfiles
    from tidings.core.reader import Filler, Reader
    from tidings.core.receiving import Receiver
    from tidings.core.replaying import Replayer
    from tidings.core.reporting import Reporter
    from tidings.core.streaming import Streamer
    from tidings.core.sweeping import Sweeper

    from .apigateway_sockets import ApiGatewaySockets
    from .dynamodb_connections import DynamoDBConnections, DynamoDBInbox, DynamoDBWatches
    from .dynamodb_departures import DynamoDBDepartures
    from .dynamodb_followers import DynamoDBFollowers
    from .dynamodb_log import DynamoDBLog
    from .dynamodb_state import DynamoDBState
    from .dynamodb_tallies import DynamoDBTallies
    from .dynamodb_tombstones import DynamoDBTombstones
    from .lambda_bells import LambdaBells
    from .s3_documents import S3Documents
    from .s3_parts import S3Parts

KEY_BYTES = 32  # as the digests that are made with it
SPREAD_WORKERS = 16  # sends wait for the network; API Gateway's throttle is far above this


def count(metric: str, value: int) -> None:
    """Implements `Count`; Powertools is loaded by the first metric, if no handler has."""
    from .telemetry import count as add

    add(metric, value)


def new_id() -> str:
    """Implements `NewId`; the module uuid would take 15 ms to import for the same."""
    return os.urandom(16).hex()


@cache
def settings() -> Settings:
    return from_environment()


@cache
def log() -> DynamoDBLog:
    from .dynamodb_log import DynamoDBLog

    return DynamoDBLog(clients.dynamodb(), settings().log_table, settings().control_table)


@cache
def followers() -> DynamoDBFollowers:
    from .dynamodb_followers import DynamoDBFollowers

    return DynamoDBFollowers(clients.dynamodb(), settings().control_table)


@cache
def profiles() -> RecentProfiles:
    from tidings.core.profiles import RecentProfiles

    from .dynamodb_profiles import DynamoDBProfiles

    stored = DynamoDBProfiles(clients.dynamodb(), settings().control_table)
    return RecentProfiles(stored, now_ms)


@cache
def manners() -> Manners:
    from tidings.core.manners import Manners

    return Manners(profiles(), settings().feeds)


@cache
def guard() -> Guard:
    from . import access_app

    return access_app.guard()


@cache
def tallies() -> DynamoDBTallies:
    from .dynamodb_tallies import DynamoDBTallies

    return DynamoDBTallies(clients.dynamodb_once, settings().control_table)


@cache
def state() -> DynamoDBState:
    from .dynamodb_state import DynamoDBState

    return DynamoDBState(clients.dynamodb(), settings().state_table)


@cache
def tombstones() -> DynamoDBTombstones:
    from .dynamodb_tombstones import DynamoDBTombstones

    return DynamoDBTombstones(clients.dynamodb(), settings().control_table)


@cache
def departures() -> DynamoDBDepartures:
    from .dynamodb_departures import DynamoDBDepartures

    return DynamoDBDepartures(clients.dynamodb(), settings().state_table)


@cache
def departure_reader() -> DepartureReader:
    from tidings.core.departure_reader import DepartureReader

    return DepartureReader(departures(), followers())


@cache
def connections() -> DynamoDBConnections:
    from .dynamodb_connections import DynamoDBConnections

    return DynamoDBConnections(clients.dynamodb(), settings().connections_table)


@cache
def inbox() -> DynamoDBInbox:
    from .dynamodb_connections import DynamoDBInbox

    return DynamoDBInbox(clients.dynamodb(), settings().connections_table)


@cache
def watches() -> DynamoDBWatches:
    from .dynamodb_connections import DynamoDBWatches

    return DynamoDBWatches(clients.dynamodb(), settings().connections_table)


@cache
def sockets() -> ApiGatewaySockets:
    from .apigateway_sockets import ApiGatewaySockets

    return ApiGatewaySockets(clients.sockets(settings().sockets_url))


@cache
def bells() -> LambdaBells:
    from .lambda_bells import LambdaBells

    return LambdaBells(clients.functions(), settings().function_prefix)


@cache
def parts() -> S3Parts:
    from .s3_parts import S3Parts

    return S3Parts(clients.objects())


@cache
def documents() -> S3Documents:
    from .s3_documents import S3Documents

    return S3Documents(clients.objects())


def checkpoint(feed: str) -> int:
    """How far the follower `state` is: its rows show at least what was handled up to there."""
    from tidings.core.followers import STATE

    return followers().checkpoints(feed).get(STATE, 0)


@cache
def reader() -> Reader:
    from tidings.core.reader import Reader

    return Reader(log(), log(), followers(), now_ms, count)


@cache
def catch_up() -> CatchUp:
    from tidings.core.catchup import CatchUp
    from tidings.core.losses import Losses

    from . import archive_app, relay_app

    kept = departure_reader(), archive_app.reader(), Losses(profiles()), relay_app.copied_until()
    return CatchUp(reader(), state(), followers(), now_ms, tombstones(), *kept)


@cache
def delivery() -> Delivery:
    from tidings.core.delivery import Delivery

    return Delivery(sockets(), connections(), sleep_ms, count)


@cache
def appender() -> Appender:
    from tidings.core.append import Appender

    from . import relay_app
    from .dynamodb_claims import DynamoDBClaims

    claims = DynamoDBClaims(clients.dynamodb(), settings().control_table)
    return Appender(log(), claims, now_ms, new_id, settings().page_ms, relay_app.masters())


@cache
def ingester() -> Ingester:
    from tidings.core.ingesting import Ingester

    from .access_app import required

    return Ingester(appender(), now_ms, count, settings().feeds, tallies(), guard(), required)


@cache
def filler() -> Filler:
    from tidings.core.reader import Filler

    return Filler(reader(), settings().page_ms, settings().sources)


@cache
def follower() -> Follower:
    from tidings.core.followers import ARCHIVE, Follower

    from . import archive_app

    made = Follower(followers(), reader(), filler(), bells(), now_ms, sleep_ms, new_id, count)
    return archive_app.with_habits(made) if settings().follower == ARCHIVE else made


@cache
def follower_handler() -> Handler:
    """
    What this function's follower does.

    Raises:
        WrongSetting: TIDINGS_FOLLOWER names none.
    """
    from tidings.core.followers import ARCHIVE, PUSH, STATE

    from . import archive_app

    known = {STATE: _projector, PUSH: _pusher, ARCHIVE: archive_app.handler}
    build = known.get(settings().follower)
    if build is None:
        rule = f"must be {STATE}, {PUSH} or {ARCHIVE}"
        raise WrongSetting("TIDINGS_FOLLOWER", settings().follower, rule)
    return build()


def _projector() -> Handler:
    from tidings.core.projecting import Projector

    kept_ms = settings().tombstone_ms, settings().page_ms
    return Projector(state(), departures(), profiles(), bells(), now_ms, tombstones(), *kept_ms)


def _pusher() -> Handler:
    from tidings.core.pushing import Pusher

    from .threads import Threads

    return Pusher(
        connections(),
        inbox(),
        watches(),
        delivery(),
        reader(),
        Threads(SPREAD_WORKERS),
        departure_reader(),
        profiles(),
        settings().sources,
    )


@cache
def receiver() -> Receiver:
    from tidings.core.receiving import Receiver

    from .listeners_app import registrar

    return Receiver(
        connections(),
        inbox(),
        sockets(),
        bells(),
        catch_up(),
        new_id,
        settings().feeds,
        guard(),
        registrar(),
    )


@cache
def replayer() -> Replayer:
    from tidings.core.replaying import Replayer

    from .access_app import charge_for

    return Replayer(
        connections(),
        inbox(),
        delivery(),
        bells(),
        catch_up(),
        now_ms,
        new_id,
        profiles(),
        charge_for,
    )


@cache
def streamer() -> Streamer:
    from tidings.core.streaming import Streamer

    from .access_app import charge_for, holding
    from .read_ahead import ReadAhead

    return Streamer(catch_up(), settings().feeds, guard(), holding(), ReadAhead(), charge_for)


@cache
def sweeper() -> Sweeper:
    from tidings.core.configuration import Purges
    from tidings.core.profiles import MaxAges
    from tidings.core.renewing import Renewer
    from tidings.core.retention import Trimmer
    from tidings.core.sweeping import Sweeper

    from . import changes_app, consumers_app, relay_app
    from .dynamodb_renewals import DynamoDBRenewals
    from .threads import Threads

    renewals = DynamoDBRenewals(clients.dynamodb(), settings().log_table, settings().control_table)
    threads = Threads(SPREAD_WORKERS)
    renewer = Renewer(renewals, threads, now_ms, count, settings().page_ms)
    ages = Purges(changes_app.sheets()), MaxAges(profiles())
    archives = settings().archive != ""
    kept = settings().retention, now_ms, count, renewer, *ages, consumers_app.holds(), archives
    trimmer = Trimmer(log(), log(), followers(), reader(), *kept)
    return Sweeper(
        log(),
        followers(),
        trimmer,
        connections(),
        inbox(),
        delivery(),
        bells(),
        now_ms,
        new_id,
        count,
        tallies(),
        threads,
        consumers_app.watch(),
        archives,
        relay_app.watch(),
        profiles(),
    )


@cache
def reporter() -> Reporter:
    """On stores that ask once: a report is to say that they do not answer while it is asked."""
    from tidings.core.reader import Reader
    from tidings.core.reporting import Reporter

    from .dynamodb_followers import DynamoDBFollowers
    from .dynamodb_log import DynamoDBLog

    client, control = clients.dynamodb_once(), settings().control_table
    log = DynamoDBLog(client, settings().log_table, control)
    followers = DynamoDBFollowers(client, control)
    has = settings().feeds, settings().archive != "", settings().sources
    return Reporter(
        log, followers, tallies(), Reader(log, log, followers, now_ms, count), now_ms, *has
    )

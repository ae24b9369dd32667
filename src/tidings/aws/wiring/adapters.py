"""The adapters of the composition root: settings, stores and the ways to other services.

Every part is built once per process, when it is first asked for. Imports stand inside the
builders for the same reason: a function loads and connects only what it uses.
"""

from __future__ import annotations

import os
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING

from tidings.aws.config.settings import Settings, from_environment
from tidings.aws.runtime import clients
from tidings.aws.runtime.clock import now_ms

if TYPE_CHECKING:
    from tidings.aws.dynamodb.connections import (
        DynamoDBConnections,
        DynamoDBInbox,
        DynamoDBSubscriptions,
    )
    from tidings.aws.dynamodb.departures import DynamoDBRemovedParents
    from tidings.aws.dynamodb.followers import DynamoDBFollowers
    from tidings.aws.dynamodb.log import DynamoDBLog
    from tidings.aws.dynamodb.state import DynamoDBState
    from tidings.aws.dynamodb.sums import DynamoDBSums
    from tidings.aws.dynamodb.tallies import DynamoDBCounters
    from tidings.aws.dynamodb.tombstones import DynamoDBTombstones
    from tidings.aws.gateway.invoker import LambdaWaker
    from tidings.aws.gateway.ws_sender import ApiGatewaySockets
    from tidings.core.attention import Finding, Judge
    from tidings.core.ingest.oplog_compat import CompatibilityMode
    from tidings.core.log.reader import Reader
    from tidings.core.settings.profiles import PushLanes, RecentProfiles
    from tidings.core.state.removed_parents_reader import RemovedParentsReader
    from tidings.core.state.sum_reader import SumReader
    from tidings.core.tracing import Passage, Tracer
    from tidings.core.websocket.lanes import Lanes

KEY_BYTES = 32  # as the digests that are made with it
SPREAD_WORKERS = 16  # threads for what waits for a store, or for one client's answer


def count(metric: str, value: int) -> None:
    """Implements `Count`: judged, and written if the stage wants it."""
    judge()(metric, value)


@cache
def judge() -> Judge:
    """Powertools is loaded by the first metric that is written, if no handler has."""
    from tidings.aws.config import metrics
    from tidings.core.attention import Judge, rules

    written = None if settings().all_metrics else metrics.FOR_ALARMS

    def write(metric: str, value: int) -> None:
        from tidings.aws.runtime.telemetry import count as add

        if written is None or metric in written:
            add(metric, value)

    return Judge(write, _tell, now_ms, rules(settings().lag_pages_max))


def _tell(finding: Finding) -> None:
    """In a line that says what the alarm cannot."""
    from tidings.aws.runtime.telemetry import logger

    logger().warning("somebody has to look", **asdict(finding))


def tell_passage(passage: Passage) -> None:
    """Implements `tracing.Tell`: what is traced in one line each, what is late in a warning."""
    from tidings.aws.runtime.telemetry import logger

    fields = passage._asdict()
    trace_id = fields.pop("trace")
    if trace_id:
        logger().info("traced", trace_id=trace_id, **fields)
    else:
        logger().warning("late", **fields)


@cache
def tracer() -> Tracer:
    from tidings.core.tracing import Tracer

    return Tracer(settings().traces, now_ms, new_id, tell_passage)


def new_id() -> str:
    """Implements `NewId`; the module uuid would take 15 ms to import for the same."""
    return os.urandom(16).hex()


@cache
def settings() -> Settings:
    return from_environment()


@cache
def log() -> DynamoDBLog:
    from tidings.aws.dynamodb.log import DynamoDBLog

    return DynamoDBLog(clients.dynamodb(), settings().log_table, settings().control_table)


@cache
def followers() -> DynamoDBFollowers:
    from tidings.aws.dynamodb.followers import DynamoDBFollowers

    return DynamoDBFollowers(clients.dynamodb(), settings().control_table)


@cache
def compatibility() -> CompatibilityMode:
    from tidings.core.ingest.oplog_compat import CompatibilityMode

    return CompatibilityMode(profiles(), settings().feeds)


@cache
def profiles() -> RecentProfiles:
    from tidings.aws.dynamodb.profiles import DynamoDBProfiles
    from tidings.core.settings.profiles import RecentProfiles

    stored = DynamoDBProfiles(clients.dynamodb(), settings().control_table)
    return RecentProfiles(stored, now_ms)


@cache
def tallies() -> DynamoDBCounters:
    from tidings.aws.dynamodb.tallies import DynamoDBCounters

    return DynamoDBCounters(clients.dynamodb_once, settings().control_table)


@cache
def state() -> DynamoDBState:
    from tidings.aws.dynamodb.state import DynamoDBState

    return DynamoDBState(clients.dynamodb(), settings().state_table)


@cache
def tombstones() -> DynamoDBTombstones:
    from tidings.aws.dynamodb.tombstones import DynamoDBTombstones

    return DynamoDBTombstones(clients.dynamodb(), settings().control_table)


@cache
def sums() -> DynamoDBSums:
    from tidings.aws.dynamodb.sums import DynamoDBSums

    return DynamoDBSums(clients.dynamodb(), settings().control_table)


@cache
def sum_reader() -> SumReader:
    from tidings.core.state.sum_reader import SumReader

    return SumReader(sums(), followers())


@cache
def departures() -> DynamoDBRemovedParents:
    from tidings.aws.dynamodb.departures import DynamoDBRemovedParents

    return DynamoDBRemovedParents(clients.dynamodb(), settings().state_table)


@cache
def departure_reader() -> RemovedParentsReader:
    from tidings.core.state.removed_parents_reader import RemovedParentsReader

    return RemovedParentsReader(departures(), followers())


@cache
def connections() -> DynamoDBConnections:
    from tidings.aws.dynamodb.connections import DynamoDBConnections

    return DynamoDBConnections(clients.dynamodb(), settings().connections_table)


@cache
def inbox() -> DynamoDBInbox:
    from tidings.aws.dynamodb.connections import DynamoDBInbox

    return DynamoDBInbox(clients.dynamodb(), settings().connections_table)


@cache
def watches() -> DynamoDBSubscriptions:
    from tidings.aws.dynamodb.connections import DynamoDBSubscriptions

    return DynamoDBSubscriptions(clients.dynamodb(), settings().connections_table)


@cache
def push_lanes() -> PushLanes:
    from tidings.core.settings.profiles import PushLanes

    return PushLanes(profiles())


@cache
def lanes() -> Lanes:
    from tidings.core.websocket.lanes import Lanes

    count = push_lanes()
    return Lanes(inbox(), waker(), new_id, count, count.fresh)


@cache
def sockets() -> ApiGatewaySockets:
    return clients.sockets(settings().sockets_url)


@cache
def waker() -> LambdaWaker:
    from tidings.aws.gateway.invoker import LambdaWaker

    return LambdaWaker(clients.functions(), settings().function_prefix)


def checkpoint(feed: str) -> int:
    """How far the follower `state` is: its rows show at least what was handled up to there."""
    from tidings.core.followers.names import STATE

    return followers().checkpoints(feed).get(STATE, 0)


@cache
def reader() -> Reader:
    from tidings.core.log.reader import Reader

    return Reader(log(), log(), followers(), now_ms, count)

"""The composition root's part for chained feeds (PROTOCOL 16)."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from tidings.aws.runtime import clients
from tidings.aws.runtime.clock import now_ms, sleep_ms
from tidings.aws.wiring import adapters, auth, catchup, chained

if TYPE_CHECKING:
    from tidings.aws.dynamodb.clusters import DynamoDBClusters
    from tidings.aws.dynamodb.upstreams import DynamoDBUpstreams
    from tidings.core.replication.admin import RelayControl
    from tidings.core.replication.monitor import ReplicaMonitor
    from tidings.core.replication.replicate import Relayer
    from tidings.core.replication.serve import Portioner
    from tidings.http.endpoints.replication import ReplicaRouter


@cache
def upstreams() -> DynamoDBUpstreams:
    from tidings.aws.dynamodb.upstreams import DynamoDBUpstreams

    return DynamoDBUpstreams(clients.dynamodb(), adapters.settings().control_table)


@cache
def coordinator() -> DynamoDBClusters | None:
    """None where roles are static."""
    at = adapters.settings().coordinator
    if at is None:
        return None
    from tidings.aws.dynamodb.clusters import DynamoDBClusters

    return DynamoDBClusters(clients.coordination(at.region, at.endpoint), at.table)


@cache
def control() -> RelayControl:
    from tidings.core.replication.admin import RelayControl

    settings = adapters.settings()
    return RelayControl(
        chained.store(),
        settings.sources,
        settings.feeds,
        adapters.reader(),
        adapters.log(),
        adapters.waker(),
        settings.page_ms,
        adapters.profiles(),
        coordinator(),
    )


def relayer(feed: str) -> Relayer:
    """For one run: its upstream is asked with the password of *feed*."""
    from tidings.core.replication.bootstrap import Bootstrapper
    from tidings.core.replication.replicate import Relayer
    from tidings.http.outbound.upstream import HttpUpstream

    settings, log = adapters.settings(), adapters.log()
    upstream = HttpUpstream(lambda: upstreams().password(feed), clients.ca_certs())
    bootstrapper = Bootstrapper(
        upstream,
        adapters.state(),
        adapters.state(),
        adapters.followers(),
        log,
        adapters.waker(),
        now_ms,
        adapters.new_id,
        adapters.tombstones(),
        settings.tombstone_ms,
    )
    return Relayer(
        chained.store(),
        upstream,
        settings.sources,
        bootstrapper,
        log,
        adapters.waker(),
        now_ms,
        sleep_ms,
        adapters.new_id,
        adapters.count,
        settings.page_ms,
        adapters.sum_reader(),
        coordinator(),
    )


@cache
def portioner() -> Portioner:
    """What is told to those who copy a feed of ours, one that is a copy itself among them."""
    from tidings.core.replication.serve import Portioner

    losses = chained.losses()
    return Portioner(
        catchup.catch_up(), chained.copies(), chained.store(), adapters.log(), losses.ranges
    )


@cache
def watch() -> ReplicaMonitor | None:
    """None where nothing is chained."""
    sources = adapters.settings().sources
    if not sources:
        return None
    from tidings.core.replication.monitor import ReplicaMonitor

    return ReplicaMonitor(chained.store(), sources, adapters.waker(), now_ms, adapters.count)


@cache
def router() -> ReplicaRouter:
    from tidings.http.endpoints.replication import ReplicaRouter

    return ReplicaRouter(control(), upstreams(), auth.guard(), adapters.settings().sources)

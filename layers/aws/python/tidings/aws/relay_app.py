"""The composition root's part for chained feeds (PROTOCOL 16)."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from . import app, clients
from .clock import now_ms, sleep_ms

if TYPE_CHECKING:
    from tidings.core.masters import Masters
    from tidings.core.relay_control import RelayControl
    from tidings.core.relay_watch import RelayWatch
    from tidings.core.relaying import Relayer
    from tidings.core.relays import CopiedUntil
    from tidings.core.telling import Portioner

    from .dynamodb_clusters import DynamoDBClusters
    from .dynamodb_relays import DynamoDBRelays
    from .dynamodb_upstreams import DynamoDBUpstreams
    from .relays_http import RelayDesk


@cache
def store() -> DynamoDBRelays:
    from .dynamodb_relays import DynamoDBRelays

    settings = app.settings()
    return DynamoDBRelays(clients.dynamodb(), settings.log_table, settings.control_table)


@cache
def upstreams() -> DynamoDBUpstreams:
    from .dynamodb_upstreams import DynamoDBUpstreams

    return DynamoDBUpstreams(clients.dynamodb(), app.settings().control_table)


@cache
def coordinator() -> DynamoDBClusters | None:
    """None where roles are static."""
    at = app.settings().coordinator
    if at is None:
        return None
    from .dynamodb_clusters import DynamoDBClusters

    return DynamoDBClusters(clients.coordination(at.region, at.endpoint), at.table)


@cache
def control() -> RelayControl:
    from tidings.core.relay_control import RelayControl

    settings = app.settings()
    return RelayControl(
        store(),
        settings.sources,
        settings.feeds,
        app.reader(),
        app.bells(),
        now_ms,
        coordinator(),
    )


def relayer(feed: str) -> Relayer:
    """For one run: its upstream is asked with the password of *feed*."""
    from tidings.core.bootstrapping import Bootstrapper
    from tidings.core.relaying import Relayer

    from .http_upstream import HttpUpstream

    settings, log = app.settings(), app.log()
    upstream = HttpUpstream(lambda: upstreams().password(feed))
    bootstrapper = Bootstrapper(
        upstream,
        app.state(),
        app.state(),
        app.followers(),
        log,
        app.bells(),
        now_ms,
        app.new_id,
        app.tombstones(),
        settings.tombstone_ms,
    )
    return Relayer(
        store(),
        upstream,
        settings.sources,
        bootstrapper,
        log,
        app.bells(),
        now_ms,
        sleep_ms,
        app.new_id,
        app.count,
        settings.page_ms,
        coordinator(),
    )


def copied_until() -> CopiedUntil:
    from tidings.core.relays import CopiedUntil

    return CopiedUntil(app.settings().sources, store())


@cache
def portioner() -> Portioner:
    """What is told to those who copy a feed of ours, one that is a copy itself among them."""
    from tidings.core.telling import Portioner

    return Portioner(app.catch_up(), app.settings().sources, store())


def masters() -> Masters:
    """Keeps writers off chained feeds; only a refusal loads what tells where to post instead."""
    from tidings.core.masters import Masters

    return Masters(app.settings().sources, _master)


def _master(feed: str) -> str:
    """As the relay of *feed* has heard; "" where it has not, or where nobody can tell now."""
    from tidings.core.errors import TidingsError

    try:
        return store().relay(feed).master
    except TidingsError:
        return ""


@cache
def watch() -> RelayWatch | None:
    """None where nothing is chained."""
    sources = app.settings().sources
    if not sources:
        return None
    from tidings.core.relay_watch import RelayWatch

    return RelayWatch(store(), sources, app.bells(), now_ms, app.count)


@cache
def desk() -> RelayDesk:
    from .relays_http import RelayDesk

    return RelayDesk(control(), upstreams(), app.guard(), app.settings().sources)

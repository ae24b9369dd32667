"""The composition root's part for listeners, publishers and owners of tables (PROTOCOL 13)."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING

from tidings.aws.runtime import clients
from tidings.aws.runtime.clock import now_ms
from tidings.aws.wiring import adapters, auth, ingest

if TYPE_CHECKING:
    from tidings.aws.dynamodb.outbox import DynamoDBOutbox
    from tidings.aws.dynamodb.registry import DynamoDBRegistry
    from tidings.core.ingest.forwarder import Forwarder, OutboxMonitor
    from tidings.core.ingest.table_capture import Capturer
    from tidings.core.websocket.listener import Registrar
    from tidings.http.endpoints.changefeeds import Resources
    from tidings.http.endpoints.posting import Items
    from tidings.http.endpoints.sums import FeedSums
    from tidings.http.router import ByPath


@cache
def registry() -> DynamoDBRegistry:
    from tidings.aws.dynamodb.registry import DynamoDBRegistry

    return DynamoDBRegistry(clients.dynamodb(), adapters.settings().connections_table)


@cache
def registrar() -> Registrar:
    from tidings.core.websocket.listener import Registrar

    return Registrar(
        adapters.connections(),
        registry(),
        adapters.lanes(),
        adapters.sockets(),
        adapters.followers(),
        adapters.profiles(),
        auth.guard(),
        adapters.settings().feeds,
        now_ms,
        adapters.count,
    )


@cache
def endpoint() -> ByPath:
    from tidings.http.router import ByPath
    from tidings.http.routes import SUMS

    return ByPath({SUMS: _sums}, _resources())


@cache
def _sums() -> FeedSums:
    from tidings.http.endpoints.sums import FeedSums

    return FeedSums(adapters.sum_reader(), auth.guard(), adapters.settings().feeds)


@cache
def _resources() -> Resources:
    from tidings.aws.wiring.auth import charge_for
    from tidings.core.triton.http import ChangeFeeds
    from tidings.http.endpoints.changefeeds import Resources

    feeds = adapters.settings().feeds
    return Resources(ChangeFeeds(registry(), adapters.state(), auth.guard(), feeds, charge_for))


@cache
def items() -> Items:
    from dataclasses import replace

    from tidings.core.triton import items
    from tidings.http.endpoints.posting import Items

    return Items(replace(ingest.ingester(), lines=items.Items(adapters.profiles())))


@cache
def outbox() -> DynamoDBOutbox:
    from tidings.aws.dynamodb.outbox import DynamoDBOutbox

    return DynamoDBOutbox(clients.dynamodb(), adapters.settings().outbox_table)


@cache
def forwarder() -> Forwarder:
    from tidings.core.ingest.forwarder import Forwarder
    from tidings.core.ingest.outbox import ITEMS, OPERATIONS
    from tidings.core.triton.items import Items

    lines = {OPERATIONS: ingest.ingester().lines, ITEMS: Items(adapters.profiles())}
    return Forwarder(outbox(), ingest.appender(), lines, now_ms, adapters.count)


@cache
def outbox_monitor() -> OutboxMonitor:
    from tidings.core.ingest.forwarder import OutboxMonitor

    wake = partial(adapters.waker().run, "forward")
    return OutboxMonitor(outbox(), wake, now_ms, adapters.count)


@cache
def capturer() -> Capturer:
    from tidings.core.ingest.table_capture import Capturer, parse
    from tidings.core.model.feeds import check_known

    capture = parse(adapters.settings().capture)
    check_known(capture.feed, adapters.settings().feeds)
    return Capturer(capture, ingest.appender(), outbox(), adapters.count)

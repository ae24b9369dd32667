"""The composition root's part for listeners, publishers and owners of tables (PROTOCOL 13)."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from . import app, clients
from .clock import now_ms

if TYPE_CHECKING:
    from tidings.core.capturing import Capturer
    from tidings.core.changefeeds import ChangeFeeds
    from tidings.core.ingesting import Ingester
    from tidings.core.outboxes import Forwarder
    from tidings.core.registering import Registrar

    from .dynamodb_outbox import DynamoDBOutbox
    from .dynamodb_registry import DynamoDBRegistry


@cache
def registry() -> DynamoDBRegistry:
    from .dynamodb_registry import DynamoDBRegistry

    return DynamoDBRegistry(clients.dynamodb(), app.settings().connections_table)


@cache
def registrar() -> Registrar:
    from tidings.core.registering import Registrar

    return Registrar(
        app.connections(),
        registry(),
        app.inbox(),
        app.sockets(),
        app.bells(),
        app.followers(),
        app.profiles(),
        app.guard(),
        app.settings().feeds,
        now_ms,
        app.new_id,
        app.count,
    )


@cache
def changefeeds() -> ChangeFeeds:
    from tidings.core.changefeeds import ChangeFeeds

    from .access_app import charge_for

    feeds = app.settings().feeds
    return ChangeFeeds(app.profiles(), registry(), app.state(), app.guard(), feeds, charge_for)


@cache
def publisher() -> Ingester:
    """An ingester of items."""
    from dataclasses import replace

    from tidings.core.items import Items

    return replace(app.ingester(), lines=Items(app.profiles()))


@cache
def outbox() -> DynamoDBOutbox:
    from .dynamodb_outbox import DynamoDBOutbox

    return DynamoDBOutbox(clients.dynamodb(), app.settings().outbox_table)


@cache
def forwarder() -> Forwarder:
    from tidings.core.items import Items
    from tidings.core.outboxes import ITEMS, OPERATIONS, Forwarder

    lines = {OPERATIONS: app.ingester().lines, ITEMS: Items(app.profiles())}
    return Forwarder(outbox(), app.appender(), lines, now_ms, app.count)


@cache
def capturer() -> Capturer:
    from tidings.core.captures import parse
    from tidings.core.capturing import Capturer
    from tidings.core.feeds import check_known

    capture = parse(app.settings().capture)
    check_known(capture.feed, app.settings().feeds)
    return Capturer(capture, app.appender(), outbox(), app.count)

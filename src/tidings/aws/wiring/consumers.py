"""The composition root's part for named consumers (PROTOCOL 14)."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from tidings.aws.runtime import clients
from tidings.aws.runtime.clock import now_ms
from tidings.aws.wiring import adapters, auth, chained

if TYPE_CHECKING:
    from tidings.aws.dynamodb.consumers import DynamoDBConsumers
    from tidings.core.consumers.log_view import LogView
    from tidings.core.consumers.repository import Book
    from tidings.core.consumers.retention import ConsumerMonitor, Holds
    from tidings.core.consumers.worker import Watchers
    from tidings.http.endpoints.consumers import ConsumerRouter
    from tidings.http.endpoints.hooks import WebhookRouter
    from tidings.http.endpoints.keys import KeyRouter
    from tidings.http.router import ByPath


@cache
def store() -> DynamoDBConsumers:
    from tidings.aws.dynamodb.consumers import DynamoDBConsumers

    return DynamoDBConsumers(clients.dynamodb(), adapters.settings().control_table, adapters.new_id)


@cache
def view() -> LogView:
    from tidings.core.consumers.log_view import LogView

    return LogView(adapters.reader(), chained.losses())


@cache
def book() -> Book:
    from tidings.core.consumers.repository import Book

    return Book(store())


@cache
def watchers() -> Watchers:
    from tidings.core.consumers.worker import Watchers

    return Watchers(book(), view(), store(), now_ms)


@cache
def holds() -> Holds:
    from tidings.core.consumers.retention import Holds

    return Holds(store(), adapters.settings().consumer_cap)


@cache
def watch() -> ConsumerMonitor:
    from tidings.core.consumers.retention import ConsumerMonitor

    return ConsumerMonitor(watchers(), adapters.settings().retention, adapters.count)


@cache
def endpoint() -> ByPath:
    from tidings.http.router import ByPath
    from tidings.http.routes import HOOKS, KEYS

    return ByPath({HOOKS: _hooks, KEYS: _keys}, _router())


@cache
def _hooks() -> WebhookRouter:
    """A stage calls no webhooks, and says so."""
    from tidings.http.endpoints.hooks import WebhookRouter

    return WebhookRouter(watchers(), auth.guard(), adapters.settings().feeds)


@cache
def _keys() -> KeyRouter:
    from tidings.aws.dynamodb.keys import DynamoDBKeys
    from tidings.core.auth.keys import KeyIssuer
    from tidings.http.endpoints.keys import KeyRouter

    settings = adapters.settings()
    keys = DynamoDBKeys(clients.dynamodb(), settings.control_table)
    issuer = KeyIssuer(keys, adapters.profiles(), now_ms)
    return KeyRouter(issuer, auth.guard(), settings.feeds)


@cache
def _router() -> ConsumerRouter:
    from tidings.core.consumers.admin import Overseer
    from tidings.core.consumers.worker import Workers
    from tidings.http.endpoints.consumers import ConsumerRouter

    parts = book(), view(), store(), now_ms
    guard, feeds = auth.guard(), adapters.settings().feeds
    return ConsumerRouter(watchers(), Workers(*parts), Overseer(*parts), guard, feeds)

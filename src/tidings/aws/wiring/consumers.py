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
    from tidings.core.consumers.service import ConsumerMonitor, ConsumerRetention, Consumers
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
def consumers() -> Consumers:
    from tidings.core.consumers.service import ConsumerRepository, Consumers

    return Consumers(ConsumerRepository(store()), view(), now_ms)


@cache
def holds() -> ConsumerRetention:
    from tidings.core.consumers.service import ConsumerRetention

    return ConsumerRetention(store(), adapters.settings().consumer_cap)


@cache
def watch() -> ConsumerMonitor:
    from tidings.core.consumers.service import ConsumerMonitor

    return ConsumerMonitor(consumers(), adapters.settings().retention, adapters.count)


@cache
def endpoint() -> ByPath:
    from tidings.http.router import ByPath
    from tidings.http.routes import HOOKS, KEYS

    return ByPath({HOOKS: _hooks, KEYS: _keys}, _router())


@cache
def _hooks() -> WebhookRouter:
    """A stage calls no webhooks, and says so."""
    from tidings.http.endpoints.hooks import WebhookRouter

    return WebhookRouter(consumers(), auth.guard(), adapters.settings().feeds)


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
    from tidings.http.endpoints.consumers import ConsumerRouter

    return ConsumerRouter(consumers(), auth.guard(), adapters.settings().feeds)

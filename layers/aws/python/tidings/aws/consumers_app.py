"""The composition root's part for named consumers (PROTOCOL 14)."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from . import app, clients
from .clock import now_ms

if TYPE_CHECKING:
    from tidings.core.consumer_book import Book
    from tidings.core.consumer_holds import ConsumerWatch, Holds
    from tidings.core.consuming import Watchers
    from tidings.core.log_view import LogView

    from .consumers_http import Desk
    from .dynamodb_consumers import DynamoDBConsumers


@cache
def store() -> DynamoDBConsumers:
    from .dynamodb_consumers import DynamoDBConsumers

    return DynamoDBConsumers(clients.dynamodb(), app.settings().control_table, app.new_id)


@cache
def view() -> LogView:
    from tidings.core.log_view import LogView

    return LogView(app.log(), app.log(), app.reader(), app.followers())


@cache
def book() -> Book:
    from tidings.core.consumer_book import Book

    return Book(store())


@cache
def watchers() -> Watchers:
    from tidings.core.consuming import Watchers

    return Watchers(book(), view(), store(), now_ms)


@cache
def holds() -> Holds:
    from tidings.core.consumer_holds import Holds

    return Holds(store(), app.settings().consumer_cap)


@cache
def watch() -> ConsumerWatch:
    from tidings.core.consumer_holds import ConsumerWatch

    return ConsumerWatch(watchers(), app.settings().retention, app.count)


@cache
def desk() -> Desk:
    from tidings.core.consuming import Workers
    from tidings.core.overseeing import Overseer

    from .consumers_http import Desk

    parts = book(), view(), store(), now_ms
    guard, feeds = app.guard(), app.settings().feeds
    return Desk(watchers(), Workers(*parts), Overseer(*parts), guard, feeds)

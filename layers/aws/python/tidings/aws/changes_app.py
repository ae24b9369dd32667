"""
The composition of what serves changes: users, lists, webhooks, the index, what operators ask.

As `app`, on which it stands: built once per process, when it is first asked for.
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING

from . import app, clients
from .clock import now_ms

if TYPE_CHECKING:
    from tidings.core.listing import Lister
    from tidings.core.proposing import Proposer
    from tidings.core.sheets import RecentSheets
    from tidings.core.tag_index import Indexer
    from tidings.core.users import Gate

    from .administration import Administration
    from .dynamodb_sheets import DynamoDBSheets
    from .dynamodb_tags import DynamoDBTags


@cache
def stored_sheets() -> DynamoDBSheets:
    from .dynamodb_sheets import DynamoDBSheets

    return DynamoDBSheets(clients.dynamodb(), app.settings().control_table)


@cache
def sheets() -> RecentSheets:
    from tidings.core.sheets import RecentSheets

    return RecentSheets(stored_sheets(), now_ms)


@cache
def gate() -> Gate:
    from tidings.core import limits
    from tidings.core.misses import Misses
    from tidings.core.users import Gate, UserVerifier

    from .bcrypts import matches

    verifier = UserVerifier(matches, os.urandom(app.KEY_BYTES))
    return Gate(sheets(), app.guard(), verifier, Misses(now_ms, limits.USER_MISSES_MAX))


@cache
def tags() -> DynamoDBTags:
    from .dynamodb_tags import DynamoDBTags

    return DynamoDBTags(clients.dynamodb_once(), app.settings().state_table)


@cache
def proposer() -> Proposer:
    from tidings.core.proposing import Proposer

    from .webhooks import Webhooks

    return Proposer(
        app.appender(),
        gate(),
        sheets(),
        Webhooks(private=app.settings().hooks_private),
        app.settings().feeds,
        now_ms,
        app.new_id,
        app.count,
        app.tallies(),
    )


@cache
def lister() -> Lister:
    from tidings.core.listing import Lister
    from tidings.core.losses import Losses

    return Lister(app.reader(), tags(), app.followers(), now_ms, Losses(app.profiles()))


@cache
def indexer() -> Indexer:
    from tidings.core.tag_index import Indexer

    return Indexer(tags(), app.reader(), now_ms, app.settings().page_ms)


@cache
def administration() -> Administration:
    """On sheets as they are now, asked for once: health is to be told while a store is away."""
    from tidings.core.administering import Administrator

    from .administration import Administration
    from .dynamodb_sheets import DynamoDBSheets

    sheets = DynamoDBSheets(clients.dynamodb_once(), app.settings().control_table)
    administrator = Administrator(sheets, gate(), app.settings().feeds)
    where = {"stage": app.settings().stage, "prefix": app.settings().url_prefix}
    return Administration(administrator, lister(), **where)
